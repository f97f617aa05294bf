/* The page's line to the server: hx-ws keeps the WebSocket, this says how it stands and asks for what was missed.
   Every [data-live] element gets `live` events whose detail is the server's message; one that sets `hold` to a promise
   keeps the next message waiting for it.
   Neither a module nor deferred: htmx starts where the document is read, and needs this and its extension by then. */

{
  const ready = new Promise((resolve) => addEventListener("DOMContentLoaded", resolve)); // every module listens by then
  const STATES = {
    live: "Live",
    quiet: "Connecting…",
    stale: "Connection lost. What you see may be out of date; trying again",
    gone: "Not connected. Reload the page",
  };

  function say(state) {
    const light = document.getElementById("live");
    if (!light) return;
    light.hidden = false;
    if (light.dataset.state === state) return;
    light.dataset.state = state;
    light.querySelector(".words").textContent = STATES[state];
  }

  /* When the line is opened again, the server tells what came after. */
  function upTo(connection, seq) {
    const url = new URL(connection.url);
    url.searchParams.set("since", seq);
    connection.url = url.href;
  }

  const LEAVES_FOR_GOOD = [4401, 4404];

  addEventListener("htmx:ws:before:connection", ({ target, detail }) => {
    const { connection } = detail;
    if (!target.matches?.("[data-live]") || !target.dataset.seq) return;
    upTo(connection, target.dataset.seq);
  });

  addEventListener("htmx:ws:after:connection", () => say("live"));

  addEventListener("htmx:ws:close", ({ target, detail }) => {
    if (detail.reason === "removed" || !target.matches?.("[data-live]")) return;
    say(LEAVES_FOR_GOOD.includes(detail.code) ? "gone" : document.hidden ? "quiet" : "stale");
    if (detail.code === 4401) location.reload(); // the log-in page takes over
  });

  addEventListener("htmx:ws:before:message:incoming", ({ target, detail }) => {
    if (!target.matches?.("[data-live]")) return;
    detail.waitUntil(
      Promise.all([detail.message.json(), ready]).then(async ([message]) => {
        const told = new CustomEvent("live", { detail: { message, hold: null } });
        target.dispatchEvent(told);
        await told.detail.hold;
        if (message.seq) {
          target.dataset.seq = message.seq;
          upTo(detail.connection, message.seq); // also for a page that comes back from the background
        }
      }),
    );
  });
}
