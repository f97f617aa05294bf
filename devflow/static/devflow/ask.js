/* Asking for a part of a page again: what its script says to be the page's own request, and one at a time. */

/** A part of a page; a log-in that has ended answers with a redirect that is not followed. */
export const part = (url) => fetch(url, { headers: { "HX-Request": "true" }, redirect: "manual" });

/** Gives what calls `look` soon, after `quiet` milliseconds without another call. Never twice at once: who asks
    meanwhile is looked for once more. */
export function inTurns(look, quiet) {
  let timer = 0;
  let looking = false;
  let wanted = false;

  async function turn() {
    if (looking) {
      wanted = true;
      return;
    }
    looking = true;
    try {
      await look();
    } finally {
      looking = false;
      if (wanted) {
        wanted = false;
        soon();
      }
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(turn, quiet);
  }

  return soon;
}
