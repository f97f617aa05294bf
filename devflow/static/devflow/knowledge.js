/* A document's lines: #L10 or #L10-L20 marks them and brings them into view, from whatever page they are on. */

const LINES = /^#L(\d{1,9})(?:-L?(\d{1,9}))?$/;
const list = document.getElementById("lines");
const said = document.getElementById("cited");

function cited() {
  const match = LINES.exec(location.hash);
  if (!match) return null;
  const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
  return first <= last ? { first, last } : { first: last, last: first };
}

function show({ first, last }, { scroll }) {
  for (const line of list.querySelectorAll(".line.on")) line.classList.remove("on");
  for (let number = first; number <= Math.min(last, Number(list.dataset.last)); number++) {
    document.getElementById(`L${number}`)?.classList.add("on");
  }
  const begin = document.getElementById(`L${first}`);
  said.textContent = first === last ? `Line ${first} is marked.` : `Lines ${first} to ${last} are marked.`;
  if (!begin || !scroll) return;
  begin.tabIndex = -1; // reading goes on from here
  begin.focus({ preventScroll: true });
  begin.scrollIntoView({ block: "start" });
}

function follow({ scroll = true } = {}) {
  const wanted = cited();
  if (!wanted) return;
  const there = `?line=${wanted.first}${location.hash}`;
  if (!list) {
    if (new URLSearchParams(location.search).has("view")) location.replace(there);
  } else if (wanted.first > Number(list.dataset.count)) {
    said.textContent = `There is no line ${wanted.first} here any more.`;
  } else if (wanted.first < Number(list.dataset.first) || wanted.first > Number(list.dataset.last)) {
    location.replace(there);
  } else {
    show(wanted, { scroll });
  }
}

list?.addEventListener("click", (event) => {
  const number = event.target.closest(".n")?.textContent;
  if (!number) return;
  const before = event.shiftKey && cited();
  const [first, last] = before ? [before.first, Number(number)].sort((a, b) => a - b) : [Number(number)];
  history.replaceState(null, "", last ? `#L${first}-L${last}` : `#L${first}`);
  follow({ scroll: false });
});

document.querySelector("form[data-jump]")?.addEventListener("submit", (event) => {
  const number = Number(new FormData(event.target).get("line"));
  if (!Number.isInteger(number) || number < 1) return;
  event.preventDefault();
  location.hash = `#L${number}`;
});

addEventListener("hashchange", () => follow());
follow();
