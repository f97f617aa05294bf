/* The board by keyboard: arrows go from card to card, Space picks one up, letters do what the sheet says. */

import { announce } from "./say.js";
import { board, cardsIn, columnOf, COLUMNS, focusOn, listOf, mayWrite, nameOf, TITLES } from "./cards.js";
import { back, cancel, drop, menu, placeOf, undo } from "./moves.js";

let lifted = null; // { card, from, done }
let carried = Promise.resolve();

/** Settled while no card is picked up. */
export const free = () => carried;

const lettersOn = () => localStorage.getItem("devflow-letters") !== "off";
const typing = (target) => target.closest?.("input:not(.pick), textarea, select, [contenteditable]");

function beside(card, step) {
  let at = COLUMNS.indexOf(columnOf(card)) + step;
  for (; COLUMNS[at]; at += step) {
    const list = listOf(COLUMNS[at], card.closest("ol").dataset.lane);
    if (list && (lifted || cardsIn(list).length)) return list;
  }
  return null;
}

function next(card, step) {
  let other = card;
  do other = step > 0 ? other.nextElementSibling : other.previousElementSibling;
  while (other && !other.matches(".card"));
  return other;
}

function go(card, key) {
  if (key === "ArrowUp" || key === "ArrowDown") {
    const other = next(card, key === "ArrowDown" ? 1 : -1);
    if (other) focusOn(other);
    return;
  }
  const list = beside(card, key === "ArrowRight" ? 1 : -1);
  if (!list) return;
  const cards = cardsIn(list);
  const top = card.getBoundingClientRect().top;
  const nearest = cards.reduce((best, one) =>
    Math.abs(one.getBoundingClientRect().top - top) < Math.abs(best.getBoundingClientRect().top - top) ? one : best,
  );
  focusOn(nearest);
}

function lift(card) {
  if (!mayWrite()) return announce("You may look at this board, not change it.");
  let done;
  carried = new Promise((resolve) => (done = resolve));
  lifted = { card, from: placeOf(card), done };
  card.classList.add("lifted");
  announce(`${nameOf(card)} picked up. Column ${TITLES[columnOf(card)]}, ${where(card)}.`);
}

const where = (card) => {
  const cards = cardsIn(card.closest("ol"));
  return `place ${cards.indexOf(card) + 1} of ${cards.length}`;
};

function carry(card, key) {
  if (key === "ArrowUp" || key === "ArrowDown") {
    const other = next(card, key === "ArrowDown" ? 1 : -1);
    if (!other) return;
    if (key === "ArrowDown") other.after(card);
    else other.before(card);
  } else {
    const list = beside(card, key === "ArrowRight" ? 1 : -1);
    if (!list) return;
    list.prepend(card);
  }
  focusOn(card);
  announce(`${TITLES[columnOf(card)]}, ${where(card)}.`);
}

async function settle(keep) {
  const { card, from, done } = lifted;
  lifted = null;
  card.classList.remove("lifted");
  const moved = card.closest("ol") !== from.list || card.nextElementSibling !== from.next;
  if (!keep || !moved) {
    back(card, from);
    focusOn(card);
    announce(`${nameOf(card)} is back where it was.`);
    done();
    return;
  }
  focusOn(card);
  done();
  await drop(card, from);
}

function onCard(event, card) {
  const { key } = event;
  const inside = event.target !== card;
  if (lifted) {
    if (key === "Escape") settle(false);
    else if (key === "Enter" || key === " ") settle(true);
    else if (key.startsWith("Arrow")) carry(lifted.card, key);
    else if (key !== "Tab") return false;
    if (key === "Tab") settle(false);
    return key !== "Tab";
  }
  if (key.startsWith("Arrow")) return go(card, key) ?? true;
  if (inside) return false;
  if (key === " ") return lift(card) ?? true;
  if (key === "Enter") return card.querySelector("h3 a").click() ?? true;
  if (key === "Delete" && mayWrite()) return cancel([card.id]) ?? true;
  return false;
}

const LETTERS = {
  n: () => open("new-task", "#id_description"),
  "/": () => document.getElementById("q")?.focus(),
  f: () => open("filter", "input"),
  u: () => mayWrite() && undo(),
  "?": () => document.getElementById("shortcuts").showModal(),
};
const CARD_LETTERS = {
  m: (card) => menu(card),
  e: (card) => card.dispatchEvent(new CustomEvent("retitle", { bubbles: true })),
  x: (card) => card.querySelector(".pick").click(),
};

function open(id, first) {
  const details = document.getElementById(id);
  if (!details) return;
  details.open = true;
  details.querySelector(first)?.focus();
}

export function wireKeys() {
  addEventListener("pointerdown", ({ target }) => lifted && !lifted.card.contains(target) && settle(false));
  const letters = document.getElementById("letters");
  letters.checked = lettersOn();
  letters.addEventListener("change", () => localStorage.setItem("devflow-letters", letters.checked ? "on" : "off"));
  document.getElementById("help").addEventListener("click", LETTERS["?"]);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    const card = event.target.closest?.(".card");
    if (card && board().contains(card) && onCard(event, card)) return event.preventDefault();
    if (event.key === "Escape") {
      for (const details of document.querySelectorAll("details.menu[open]")) {
        details.open = false;
        if (details.contains(event.target)) details.querySelector("summary").focus();
      }
    }
    if (!lettersOn() || lifted) return;
    const act = (card && mayWrite() && CARD_LETTERS[event.key]) || LETTERS[event.key];
    if (!act) return;
    event.preventDefault();
    act(card);
  });
}
