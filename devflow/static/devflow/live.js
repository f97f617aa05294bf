/* Keeps an element as the server has it: an event says that something changed, the element's own view says what.
   data-live-types="source." heeds only events of types that begin so; inside, data-again="2" asks for another look
   in so many seconds, for what moves without events. */

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
  const typed = root.querySelector("input:focus, select:focus");
  if (typed) return later(); // never under somebody's hands
  root.innerHTML = html;
  const board = root.querySelector(".board");
  if (board) board.scrollLeft = scrolled;
  const again = focused && document.getElementById(focused);
  if (again) (again.matches("a, button") ? again : again.querySelector("a"))?.focus();
  for (const card of root.querySelectorAll("[data-version]")) {
    if (before.get(card.id) !== card.dataset.version) card.classList.add("fresh");
  }
  if (root.querySelector("[data-again]")) later();
}

let lookingAgain = 0;

function later() {
  clearTimeout(lookingAgain);
  const asked = root.querySelector("[data-again]");
  lookingAgain = setTimeout(soon, (asked ? Number(asked.dataset.again) : 2) * 1000);
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
    else say("stale", "The page could not be read; trying again");
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
  source.onmessage = (event) => {
    const { type } = JSON.parse(event.data);
    if (type.startsWith(root.dataset.liveTypes ?? "") || type.startsWith("bus.")) soon();
  };
  source.onerror = () => {
    say("stale", "Connection lost; the page may be out of date");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

if (root) {
  listen();
  if (root.querySelector("[data-again]")) later();
  setInterval(soon, TICK_MS);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && listen());
}
