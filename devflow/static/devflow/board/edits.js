/* Titles changed in place and tasks added at the foot of a column. */

import { send } from "./api.js";
import { board, find, focusOn } from "./cards.js";
import { announce, toast } from "./say.js";

/** Turn a card's title into a field. Enter keeps, Escape leaves; somebody else's change meanwhile is said. */
export function retitle(card, look) {
  const heading = card.querySelector("h3");
  if (!heading || heading.querySelector("input")) return;
  const link = heading.querySelector("a");
  const before = link.textContent.trim();
  const field = Object.assign(document.createElement("input"), { className: "field retitle", value: before, maxLength: 255 });
  field.setAttribute("aria-label", `Title of #${card.dataset.ref}`);
  let version = Number(card.dataset.version);
  let overwrites = false; // somebody changed it meanwhile: only Enter writes over that
  let over = false;
  const end = () => {
    over = true;
    field.replaceWith(link);
    focusOn(find(card.id) ?? card);
    look();
  };
  const keep = async () => {
    const subject = field.value.trim();
    if (over) return;
    if (!overwrites && (!subject || subject === before)) return end();
    over = true;
    try {
      await send("PATCH", `tasks/${card.id}`, { subject, version });
      link.textContent = subject;
      announce("The title is changed.");
    } catch (error) {
      const now = error.code === "conflict" && !overwrites && (await send("GET", `tasks/${card.id}`).catch(() => null));
      if (now) {
        toast(
          `Somebody changed this task meanwhile. It is now called “${now.subject}”. Your words are kept in the field; ` +
            "press Enter to write them over it.",
          { tone: "bad" },
        );
        version = now.version;
        overwrites = true;
        over = false;
        return field.focus();
      }
      toast(error.message, { tone: "bad" });
    }
    end();
  };
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") end();
    if (event.key === "Enter") keep();
  });
  field.addEventListener("blur", () => over || overwrites || keep());
  link.replaceWith(field);
  field.select();
}

/** The form at the foot of a column. */
export function quick(button) {
  const form = document.createElement("form");
  form.className = "quick-form stack";
  const field = Object.assign(document.createElement("textarea"), { className: "field", rows: 2, maxLength: 100000, required: true });
  field.setAttribute("aria-label", "What has to be done?");
  field.placeholder = "What has to be done?";
  const phase = document.getElementById("id_phase").cloneNode(true);
  phase.id = "";
  phase.className = "field";
  phase.setAttribute("aria-label", "Phase");
  const chosen = new URLSearchParams(board().dataset.query).get("phase");
  if (chosen) phase.value = chosen;
  const add = Object.assign(document.createElement("button"), { className: "btn small primary", textContent: "Add" });
  const leave = Object.assign(document.createElement("button"), { type: "button", className: "btn small", textContent: "Close" });
  const row = Object.assign(document.createElement("div"), { className: "row" });
  row.append(add, leave);
  form.append(field, phase, row);
  const close = () => {
    form.replaceWith(button);
    button.focus();
  };
  leave.addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !event.shiftKey && event.target === field) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = { project: board().dataset.project, phase: Number(phase.value), description: field.value, column: button.dataset.quick };
    add.disabled = true;
    try {
      const task = await send("POST", "tasks", body);
      field.value = "";
      announce(`#${task.ref} added`);
    } catch (error) {
      toast(error.message, { tone: "bad" });
    } finally {
      add.disabled = false;
      field.focus();
    }
  });
  button.replaceWith(form);
  field.focus();
}
