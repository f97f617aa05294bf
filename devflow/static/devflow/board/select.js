/* Many cards at once: move, tag, hand to an agent, cancel. */

import { send } from "./api.js";
import { board, COLUMNS, find, TITLES } from "./cards.js";
import { said } from "./moves.js";
import { announce, toast } from "./say.js";

const MOST = 200;
const picked = () => [...board().querySelectorAll(".pick:checked")].map((box) => box.closest(".card").id);

const WORDS = { move: "moved", tag: "tagged", untag: "lost the tag", assign: "handed over", cancel: "cancelled" };

async function all(action, values = {}) {
  const ids = picked();
  if (ids.length > MOST) return toast(`At most ${MOST} at once.`, { tone: "bad" });
  try {
    const { results } = await send("POST", "tasks/bulk", { ids, action, ...values });
    said(results, WORDS[action], { undoable: action === "move" || action === "cancel" });
    for (const one of results) if (one.ok) release(one.id);
    show();
  } catch (error) {
    toast(error.message, { tone: "bad" });
  }
}

function release(id) {
  const box = find(id)?.querySelector(".pick");
  if (box) box.checked = false;
}

function choice(words, options, act) {
  const select = document.createElement("select");
  select.className = "field";
  select.setAttribute("aria-label", words);
  select.append(new Option(words, ""));
  for (const [value, label] of options) select.append(new Option(label, value));
  select.addEventListener("change", () => {
    if (select.value) act(select.value);
    select.value = "";
  });
  return select;
}

function button(words, act, tone = "") {
  const made = Object.assign(document.createElement("button"), { type: "button", textContent: words });
  made.className = `btn small ${tone}`;
  made.addEventListener("click", act);
  return made;
}

function build(box) {
  const count = Object.assign(document.createElement("b"), { className: "num" });
  const tag = Object.assign(document.createElement("input"), { className: "field", placeholder: "Tag", maxLength: 64 });
  tag.setAttribute("aria-label", "Tag to add");
  const form = document.createElement("form");
  form.className = "row";
  form.append(tag, Object.assign(button("Add tag", () => {}), { type: "submit" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (tag.value.trim()) all("tag", { tag: tag.value.trim() });
    tag.value = "";
  });
  const agents = [...document.querySelectorAll('#filter input[name="agent"]')].map((one) => one.value).filter((name) => name !== "-");
  box.append(
    count,
    choice("Move to…", COLUMNS.map((name) => [name, TITLES[name]]), (column) => all("move", { column })),
    form,
    choice("Reserve for…", [["-", "anybody"], ...agents.map((name) => [name, name])], (agent) => all("assign", { agent: agent === "-" ? "" : agent })),
    button("Cancel tasks", () => all("cancel"), "danger"),
    button("Clear", clear),
  );
}

export function clear() {
  for (const box of board().querySelectorAll(".pick:checked")) box.checked = false;
  show();
}

export function show() {
  const box = document.getElementById("bulk");
  const number = picked().length;
  if (!box.children.length && number) build(box);
  box.hidden = !number;
  document.body.classList.toggle("picking", number > 0);
  if (number) box.querySelector("b").textContent = `${number} selected`;
}

export function wireSelect() {
  document.addEventListener("change", ({ target }) => {
    if (!target.matches?.(".pick")) return;
    show();
    announce(`${picked().length} selected`);
  });
}
