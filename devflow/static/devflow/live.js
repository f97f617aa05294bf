/* Keeps an element as the server has it: a message says that something changed, the element's own view says what.
   data-live-types="source. page." heeds only changes of types that begin so; inside, data-again="2" asks for another look
   in so many seconds, for what moves without events. */

import { inTurns, part } from "./ask.js";

const QUIET_MS = 60;
const TICK_MS = 60_000;

for (const root of document.querySelectorAll("[data-partial]")) follow(root);

function follow(root) {
  let again = 0;

  function put(html) {
    if (root.querySelector("input:focus, select:focus, textarea:focus")) return later(); // never under somebody's hands
    const inside = root.contains(document.activeElement) && document.activeElement.closest("[id]")?.id;
    root.innerHTML = html;
    const focused = inside && document.getElementById(inside);
    if (focused) (focused.matches("a, button") ? focused : focused.querySelector("a, button"))?.focus();
    if (root.querySelector("[data-again]")) later();
  }

  function later() {
    clearTimeout(again);
    again = setTimeout(soon, Number(root.querySelector("[data-again]")?.dataset.again ?? 2) * 1000);
  }

  const soon = inTurns(async () => {
    try {
      const answer = await part(root.dataset.partial);
      if (answer.type === "opaqueredirect") location.reload(); // logged out meanwhile
      else if (answer.ok) put(await answer.text());
      else later();
    } catch {
      later(); // the light beside the pages says that the line is down
    }
  }, QUIET_MS);

  root.addEventListener("live", ({ detail: { message } }) => {
    const heeded = (root.dataset.liveTypes ?? "").split(" ");
    const first = !root.dataset.seq; // nobody said what the page was made from: what changed until now is unknown
    if (first || message.reload || message.changes?.some(([type]) => heeded.some((start) => type.startsWith(start)))) soon();
  });
  if (root.querySelector("[data-again]")) later();
  setInterval(soon, TICK_MS);
}
