/* The cards as they stand: where one belongs, what a message changes, what the columns count. */

export const COLUMNS = ["backlog", "ready", "in_progress", "review", "done"];
export const TITLES = { backlog: "Backlog", ready: "Ready", in_progress: "In progress", review: "Review", done: "Done" };

export const board = () => document.getElementById("board");
export const mayWrite = () => "writes" in board().dataset;
export const columnOf = (card) => card.closest("ol.cards")?.dataset.column;
export const listOf = (column, lane) =>
  [...board().querySelectorAll(`ol.cards[data-column="${column}"]`)].find((list) => list.dataset.lane === lane);
export const cardsIn = (list) => [...list.querySelectorAll(":scope > .card")];
export const nameOf = (card) => `#${card.dataset.ref} ${card.querySelector("h3").textContent.trim()}`;

export function find(id) {
  return document.getElementById(id);
}

/** Put a card where its place is. False: it belongs behind the last card that is drawn, or in a lane there is not. */
export function put(card, column, lane) {
  const list = listOf(column, lane);
  if (!list) return false;
  const place = card.dataset.place;
  const next = cardsIn(list).find((other) => other !== card && other.dataset.place > place);
  const more = list.querySelector("[data-more]");
  if (!next && more) return false;
  if (next) next.before(card);
  else list.append(card);
  return true;
}

export function made(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.querySelector(".card");
}

/** Bring a message's cards into the page. True: something could not be placed, look at everything again. */
export function apply(message) {
  let lost = false;
  for (const id of message.gone ?? []) remove(find(id));
  for (const told of message.cards ?? []) {
    const old = find(told.id);
    const fresh = made(told.html);
    if (old?.querySelector("input.retitle")) {
      old.dataset.version = fresh.dataset.version; // the title under somebody's hands stays; the rest comes with its end
      continue;
    }
    const changed = old?.dataset.version !== fresh.dataset.version || (old && columnOf(old) !== told.column);
    const had = old?.contains(document.activeElement) ? held(old) : null;
    const picked = old?.querySelector(".pick")?.checked;
    if (old) old.replaceWith(fresh);
    if (!put(fresh, told.column, told.lane)) {
      lost ||= !listOf(told.column, told.lane);
      fresh.remove();
      continue;
    }
    dress(fresh);
    if (picked) fresh.querySelector(".pick").checked = true;
    if (changed) fresh.classList.add("fresh");
    if (had) again(fresh, had);
  }
  if (message.leases) lost = runDown(message.leases) || lost;
  if (message.counts) count(message.counts);
  return lost;
}

function remove(card) {
  if (!card) return;
  const next = card.contains(document.activeElement) && (card.nextElementSibling ?? card.previousElementSibling);
  card.remove();
  if (next?.matches?.(".card")) focusOn(next);
}

const held = (card) => (document.activeElement === card ? "card" : (document.activeElement.className || "card").split(" ")[0]);

function again(card, what) {
  focusOn(card);
  if (what !== "card") card.querySelector(`.${CSS.escape(what)}`)?.focus({ preventScroll: true });
}

/** One card of the board is in the tab order; arrows go to the others. */
export function focusOn(card, { scroll = true } = {}) {
  for (const other of board().querySelectorAll('.card[tabindex="0"]')) if (other !== card) tab(other, -1);
  tab(card, 0);
  card.focus({ preventScroll: !scroll });
  if (scroll) card.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function tab(card, index) {
  card.tabIndex = index;
  for (const inner of card.querySelectorAll("a, button, input")) inner.tabIndex = index;
}

/** What only a page with its script shows on a card. */
export function dress(card) {
  if (!mayWrite()) return;
  for (const inner of card.querySelectorAll(".pick, .moves")) inner.hidden = false;
  card.setAttribute("aria-describedby", "card-help");
}

export function dressAll() {
  const cards = [...board().querySelectorAll(".card")];
  cards.forEach(dress);
  if (cards.length && !cards.some((card) => card.tabIndex === 0)) tab(cards[0], 0);
}

function count({ columns, failed, blocked }) {
  const lanes = board().dataset.lanes;
  for (const [name, number] of Object.entries(columns)) {
    const section = document.getElementById(`col-${name}`);
    if (!section || lanes) continue;
    for (const tally of section.querySelectorAll("[data-tally]")) tally.textContent = number;
    const limit = Number(section.dataset.limit ?? 0);
    section.classList.toggle("full", limit > 0 && number >= limit);
    section.querySelector("[data-empty]").hidden = number > 0;
  }
  if (lanes) tallyLanes();
  const total = Object.values(columns).reduce((sum, one) => sum + one, 0);
  for (const panel of board().querySelectorAll("[data-none]")) panel.hidden = total > 0;
  const line = document.getElementById("tally");
  line.querySelector("[data-total]").textContent = total;
  for (const [name, number] of [["blocked", blocked], ["failed", failed]]) {
    const part = line.querySelector(`[data-${name}]`);
    part.hidden = !number;
    part.querySelector("b").textContent = number;
  }
}

export function tallyLanes() {
  for (const section of board().querySelectorAll(".col")) {
    section.querySelector("[data-tally]").textContent = section.querySelectorAll(".card").length;
  }
}

// --- leases ---

const SOON = 300;
const RING = 54;

/** True: one has run out, and its card is somewhere else by now. */
function runDown(leases) {
  for (const card of board().querySelectorAll(".card[data-whole]")) {
    const left = leases[card.id];
    if (left !== undefined) card.dataset.left = left;
  }
  return draw();
}

/** True: a lease has run out. */
export function tick(seconds) {
  for (const card of board().querySelectorAll(".card[data-whole]")) {
    card.dataset.left = Math.max(0, Number(card.dataset.left) - seconds);
  }
  return draw();
}

function draw() {
  let over = false;
  for (const card of board().querySelectorAll(".card[data-whole]")) {
    const left = Number(card.dataset.left);
    over ||= !left;
    const share = Math.min(1, left / Number(card.dataset.whole));
    const ring = card.querySelector(".lease");
    ring?.setAttribute("stroke-dasharray", `${(RING * share).toFixed(1)} ${RING}`);
    ring?.classList.toggle("soon", left < SOON);
    const words = card.querySelector(".left");
    if (words) words.textContent = left >= 7200 ? `${Math.floor(left / 3600)} h` : left >= 60 ? `${Math.floor(left / 60)} min` : `${left} s`;
  }
  return over;
}
