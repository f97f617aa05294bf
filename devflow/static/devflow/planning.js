/* The backlog: how many stories are ticked, and stories dropped elsewhere. A sprint: its chart drawn anew with the page. */

const backlog = document.getElementById("backlog");
const csrf = () => document.querySelector('meta[name="csrf-token"]').content;

if (backlog) {
  const ticked = new Set();
  const tally = document.getElementById("ticked");

  const count = () => {
    if (!tally) return;
    tally.hidden = ticked.size === 0;
    tally.textContent = ticked.size;
  };

  backlog.addEventListener("change", ({ target }) => {
    if (!target.matches(".tick-box")) return;
    if (target.checked) ticked.add(target.value);
    else ticked.delete(target.value);
    count();
  });

  /* Somebody else's change put the list anew: what was ticked stays so. */
  const again = () => {
    const here = new Set();
    for (const box of backlog.querySelectorAll(".tick-box")) {
      box.checked = ticked.has(box.value);
      here.add(box.value);
    }
    for (const one of ticked) if (!here.has(one)) ticked.delete(one);
    count();
    if ("writes" in backlog.dataset) for (const list of backlog.querySelectorAll(".stories")) sortable(list);
  };

  async function dropped({ item, from, to, oldIndex, newIndex }) {
    if (from === to && oldIndex === newIndex) return;
    const body = new FormData();
    body.set("story", item.dataset.story);
    if (from !== to) body.set("epic", to.dataset.epic);
    if (item.previousElementSibling) body.set("after", item.previousElementSibling.dataset.story);
    else if (item.nextElementSibling) body.set("before", item.nextElementSibling.dataset.story);
    const say = document.getElementById("announce");
    try {
      const answer = await fetch(backlog.dataset.place, { method: "POST", body, headers: { "X-CSRFToken": csrf() } });
      if (answer.ok) return;
      const { detail } = await answer.json().catch(() => ({}));
      say.textContent = detail ?? "It was not moved.";
    } catch {
      say.textContent = "The server does not answer. Nothing was changed.";
    }
    say.className = "note error";
    from.insertBefore(item, from.children[oldIndex] ?? null);
  }

  function sortable(list) {
    Sortable.create(list, {
      group: "stories",
      animation: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 120,
      draggable: ".story",
      filter: "input, summary, button, details",
      preventOnFilter: false,
      delay: 250,
      delayOnTouchOnly: true,
      onEnd: dropped,
    });
  }

  new MutationObserver(again).observe(backlog, { childList: true });
  again();
}

const figures = document.querySelector("[data-figures]");
if (figures) new MutationObserver(() => dispatchEvent(new Event("figures"))).observe(figures, { childList: true });
