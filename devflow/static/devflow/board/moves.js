/* Moving cards: by hand, by key, by menu. The server decides; a refused card goes back and the page says why. */

import { Refused, send } from "./api.js";
import { announce, toast, why } from "./say.js";
import { board, cardsIn, columnOf, COLUMNS, find, focusOn, mayWrite, nameOf, TITLES } from "./cards.js";

let last = null; // { id, version } of the card moved last, for the key

/** Ask the server to put a card where it lies now; `from` is where to return it. */
export async function drop(card, from) {
  const list = card.closest("ol.cards");
  const column = list.dataset.column;
  const cards = cardsIn(list);
  const at = cards.indexOf(card);
  const body = { column, version: Number(card.dataset.version) };
  if (column !== "done") {
    if (at > 0) body.after = cards[at - 1].id;
    else if (cards.length > 1) body.before = cards[1].id;
  }
  await move(card, body, () => back(card, from));
}

export const placeOf = (card) => ({ list: card.closest("ol.cards"), next: card.nextElementSibling });

/** Where it was; a card that the server told of meanwhile already stands where it belongs. */
export function back(card, { list, next }) {
  if (!card.isConnected) return;
  if (next?.parentElement === list) next.before(card);
  else list.append(card);
}

async function move(card, body, refuse) {
  if (card.dataset.status === "review" && body.column === "in_progress" && !body.reason) {
    const reason = await why();
    if (!reason) return refuse();
    body = { ...body, reason };
  }
  const focused = card.contains(document.activeElement);
  card.classList.add("moving");
  try {
    const { id, version } = await send("POST", `tasks/${card.id}/move`, body);
    last = { id, version };
    const words = `${nameOf(card)} moved to ${TITLES[body.column]}`;
    announce(words);
    toast(words, { label: "Undo", act: () => undo({ id, version }) });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refuse();
    announce(`Not moved. ${error.message}`);
    toast(error.message, { tone: "bad" });
  } finally {
    (find(card.id) ?? card).classList.remove("moving");
    if (focused && find(card.id)) focusOn(find(card.id));
  }
}

/** Take back a move, unless somebody changed the card since. */
export async function undo(moved = last) {
  if (!moved) return toast("Nothing was moved here yet.");
  try {
    const task = await send("POST", `tasks/${moved.id}/undo`, { version: moved.version });
    announce(`Taken back. ${task.id} is ${task.status.replace("_", " ")} again.`);
    toast(`#${task.ref} is back where it was`);
    if (last?.id === moved.id) last = null;
  } catch (error) {
    toast(error.message, { tone: "bad" });
  }
}

async function undoAll(moved) {
  if (moved.length === 1) return undo(moved[0]);
  let back = 0;
  let why = "";
  for (const { id, version } of moved) {
    try {
      await send("POST", `tasks/${id}/undo`, { version });
      back += 1;
    } catch (error) {
      why = error.message;
    }
  }
  toast(`${back} task${back === 1 ? " is" : "s are"} back where they were`);
  if (why) toast(why, { tone: "bad" });
}

export async function cancel(ids) {
  try {
    const { results } = await send("POST", "tasks/bulk", { ids, action: "cancel" });
    said(results, "cancelled", { undoable: true });
  } catch (error) {
    toast(error.message, { tone: "bad" });
  }
}

/** Say how a change of many ended: how many, and the first reason why not. */
export function said(results, word, { undoable = false } = {}) {
  const failed = results.filter((one) => !one.ok);
  const changed = results.filter((one) => one.ok);
  const done = changed.length;
  if (done) {
    const back = undoable ? { label: "Undo", act: () => undoAll(changed) } : {};
    toast(`${done} task${done === 1 ? "" : "s"} ${word}`, back);
  }
  if (failed.length) toast(`${failed.length} not: ${failed[0].id}: ${failed[0].error}`, { tone: "bad" });
  announce(`${done} ${word}, ${failed.length} refused`);
}

// --- by hand ---

let dropped = Promise.resolve();

/** Settled while nothing is being dragged. */
export const free = () => dropped;

export function draggable() {
  if (!mayWrite()) return;
  for (const list of board().querySelectorAll("ol.cards")) {
    if (list.dataset.drags) continue;
    list.dataset.drags = "yes";
    let from = null;
    let done = null;
    Sortable.create(list, {
      group: "cards",
      draggable: ".card",
      filter: "input, button",
      preventOnFilter: false,
      animation: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 120,
      delay: 200,
      delayOnTouchOnly: true,
      touchStartThreshold: 5,
      forceFallback: true,
      fallbackTolerance: 4,
      scrollSensitivity: 80,
      ghostClass: "ghost",
      onStart({ item }) {
        from = { list, next: item.nextElementSibling };
        dropped = new Promise((resolve) => (done = resolve));
        document.body.classList.add("dragging");
      },
      async onEnd({ item, to, oldIndex, newIndex }) {
        document.body.classList.remove("dragging");
        const lane = to.dataset.lane !== list.dataset.lane;
        if (lane) {
          back(item, from);
          toast("A lane is no column: edit the task to change what it is sorted by.", { tone: "bad" });
        }
        done();
        if (!lane && (to !== list || oldIndex !== newIndex)) await drop(item, from);
      },
    });
  }
}

// --- by menu ---

export function menu(card) {
  const box = document.getElementById("moves");
  const list = card.closest("ol.cards");
  box.replaceChildren();
  const item = (words, act) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: words });
    button.setAttribute("role", "menuitem");
    button.addEventListener("click", () => {
      box.hidePopover();
      focusOn(card);
      act();
    });
    box.append(button);
  };
  for (const column of COLUMNS) {
    if (column === columnOf(card)) continue;
    item(TITLES[column], () => {
      const from = placeOf(card);
      move(card, { column, version: Number(card.dataset.version) }, () => back(card, from));
    });
  }
  const cards = cardsIn(list);
  if (columnOf(card) !== "done" && cards.length > 1) {
    const to = (target, side) => move(card, { column: columnOf(card), [side]: target.id }, () => {});
    if (cards[0] !== card) item("Top of this column", () => to(cards[0], "before"));
    if (cards.at(-1) !== card) item("End of this column", () => to(cards.at(-1), "after"));
  }
  item("Edit the title", () => card.dispatchEvent(new CustomEvent("retitle", { bubbles: true })));
  if (columnOf(card) !== "done") item("Cancel the task", () => cancel([card.id]));
  const around = card.getBoundingClientRect();
  box.showPopover();
  box.style.setProperty("--x", `${Math.min(around.right - 190, innerWidth - 210)}px`);
  box.style.setProperty("--y", `${Math.min(around.top + 30, innerHeight - box.offsetHeight - 12)}px`);
  box.querySelector("button").focus();
}

export function wireMenu() {
  const box = document.getElementById("moves");
  box.addEventListener("keydown", (event) => {
    const items = [...box.querySelectorAll("button")];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to % items.length)?.focus();
  });
}
