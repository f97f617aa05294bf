/* The board's page: wires the parts, and follows what the server tells. */

import { fragment } from "./api.js";
import { apply, board, dressAll, focusOn, tallyLanes, tick } from "./cards.js";
import { quick, retitle } from "./edits.js";
import { free as carried, wireKeys } from "./keys.js";
import { free as dropped, draggable, menu, wireMenu } from "./moves.js";
import { toast } from "./say.js";
import { show, wireSelect } from "./select.js";

const TICK_SECONDS = 5;
const TYPING_MS = 300;

// --- what the server tells ---

function follow() {
  board().addEventListener("live", ({ detail }) => {
    detail.hold = Promise.all([dropped(), carried()]).then(() => {
      const { message } = detail;
      if (message.reload || apply(message)) return lookAgain();
      if (board().dataset.lanes) tallyLanes();
      show();
    });
  });
}

// --- looking at another part ---

const AGAIN_MS = 1000;
const MOST_AGAIN_MS = 15_000;
let looking = 0;
let asking = false;
let again = 0;

/** Look at the same part once more, because something could not be told: soon, and never under somebody's hands. */
function lookAgain(wait = 0) {
  clearTimeout(again);
  again = setTimeout(async () => {
    await Promise.all([dropped(), carried()]);
    const written = [...board().querySelectorAll(".quick-form textarea")].some((field) => field.value);
    if (written || asking || board().querySelector(".retitle")) return lookAgain(AGAIN_MS);
    if (await look(board().dataset.query, { quietly: true })) return;
    lookAgain(Math.min(2 * (wait || AGAIN_MS), MOST_AGAIN_MS));
  }, wait);
}

/** Show what `query` asks for; its address is kept, unless `quietly`. False: it could not be read. */
async function look(query, { quietly = false } = {}) {
  const mine = ++looking;
  let html;
  asking ||= !quietly;
  try {
    html = await fragment(`${board().dataset.here}?${query}`);
  } catch {
    if (!quietly) toast("The board could not be read. Try again.", { tone: "bad" });
    return false;
  } finally {
    if (!quietly) asking = false;
  }
  if (mine !== looking) return true;
  if (!quietly) history.pushState({}, "", query ? `?${query}` : location.pathname);
  const picked = [...board().querySelectorAll(".pick:checked")].map((box) => box.closest(".card").id);
  const inside = board().contains(document.activeElement) ? document.activeElement : null;
  const focused = inside && { id: inside.closest("[id]")?.id, at: inside.selectionStart };
  const open = [...board().querySelectorAll("details[open]")].map((one) => one.id);
  const scrolled = board().querySelector(".board")?.scrollLeft ?? 0;
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.querySelector("#board");
  board().replaceWith(fresh);
  htmx.process(fresh);
  for (const id of open) if (document.getElementById(id)) document.getElementById(id).open = true;
  for (const id of picked) {
    const box = document.getElementById(id)?.querySelector(".pick");
    if (box) box.checked = true;
  }
  wire();
  const first = board().querySelector(".board");
  if (first) first.scrollLeft = scrolled;
  const held = focused?.id && document.getElementById(focused.id);
  if (held?.matches(".card")) focusOn(held, { scroll: false });
  else if (held && held !== board()) {
    held.focus({ preventScroll: true });
    if (focused.at !== null && held.type === "search") held.setSelectionRange(focused.at, focused.at);
  }
  return true;
}

function asked() {
  const pairs = new URLSearchParams();
  for (const [name, value] of new FormData(document.getElementById("finding"))) if (value) pairs.append(name, value);
  return pairs.toString();
}

let typed = 0;

function wire() {
  dressAll();
  draggable();
  follow();
  show();
  const finding = document.getElementById("finding");
  finding.addEventListener("submit", (event) => {
    event.preventDefault();
    look(asked());
  });
  finding.addEventListener("input", ({ target }) => {
    clearTimeout(typed);
    if (target.id === "q") typed = setTimeout(() => look(asked()), TYPING_MS);
  });
  finding.addEventListener("change", ({ target }) => {
    if (target.id !== "q") look(asked());
  });
}

addEventListener("popstate", () => look(location.search.slice(1), { quietly: true }));

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-narrow]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    return look(new URL(link.href).search.slice(1));
  }
  const jump = event.target.closest("a[data-jump]");
  if (jump) {
    event.preventDefault();
    document.getElementById(`col-${jump.dataset.jump}`)?.scrollIntoView({ inline: "start", block: "nearest" });
  }
  const add = event.target.closest("button[data-quick]");
  if (add) return quick(add);
  const moves = event.target.closest(".card .moves");
  if (moves) return menu(moves.closest(".card"));
  for (const details of document.querySelectorAll("details.menu[open]")) if (!details.contains(event.target)) details.open = false;
});

document.addEventListener("focusin", ({ target }) => {
  const card = target.matches?.(".card") && target;
  if (card && card.tabIndex !== 0) focusOn(card, { scroll: false });
});

document.addEventListener("retitle", ({ target }) => retitle(target, () => lookAgain()));
document.addEventListener("dblclick", ({ target }) => {
  const card = target.closest(".card");
  if (card && "writes" in board().dataset && !target.closest("a, button, input")) retitle(card, () => lookAgain());
});

// Cards that came as the page was scrolled.
addEventListener("htmx:after:swap", () => {
  for (const list of board().querySelectorAll("ol.cards")) {
    const seen = new Set();
    for (const card of [...list.querySelectorAll(":scope > .card")]) {
      if (seen.has(card.id)) card.remove(); // it was moved behind what was read before
      seen.add(card.id);
    }
  }
  dressAll();
  draggable();
});

wire();
wireKeys();
wireMenu();
wireSelect();
setInterval(() => {
  if (tick(TICK_SECONDS) && !document.hidden) lookAgain();
}, TICK_SECONDS * 1000);
