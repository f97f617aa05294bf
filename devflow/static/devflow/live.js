/* Keeps an element as the server has it: an event says that something changed, the element's own view says what. */

const QUIET_MS = 60;
const TICK_MS = 60_000; // leases run down without an event

const root = document.querySelector("[data-live]");
const light = document.getElementById("live");

function say(state, words) {
  if (!light || light.dataset.state === state) return;
  light.dataset.state = state;
  light.querySelector(".words").textContent = words;
}

function remembered() {
  const cards = [...root.querySelectorAll("[data-version]")];
  return new Map(cards.map((card) => [card.id, card.dataset.version]));
}

function put(html) {
  const before = remembered();
  const scrolled = root.querySelector(".board")?.scrollLeft ?? 0;
  const focused = root.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : null;
  root.innerHTML = html;
  const board = root.querySelector(".board");
  if (board) board.scrollLeft = scrolled;
  if (focused) document.getElementById(focused)?.querySelector("a")?.focus();
  for (const card of root.querySelectorAll("[data-version]")) {
    if (before.get(card.id) !== card.dataset.version) card.classList.add("fresh");
  }
}

let fetching = false;
let again = false;

async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(root.dataset.partial, { headers: { "HX-Request": "true" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") location.reload(); // logged out meanwhile
    else if (answer.ok) put(await answer.text());
    else say("stale", "The board could not be read; trying again");
  } catch {
    say("stale", "Connection lost; trying again");
  } finally {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

let timer = 0;

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, QUIET_MS);
}

let source = null;

function listen() {
  source?.close();
  source = new EventSource(root.dataset.live);
  source.onopen = () => {
    say("live", "Live");
    soon(); // what happened while nobody listened
  };
  source.onmessage = () => {
    soon();
  };
  source.onerror = () => {
    say("stale", "Connection lost; the board may be out of date");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

if (root) {
  listen();
  setInterval(soon, TICK_MS);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && listen());
}
