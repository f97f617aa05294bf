/* What the page says: toasts with a way back, announcements for screen readers, and the question why. */

const TOAST_MS = 8000;

export function announce(words) {
  document.getElementById("announce").textContent = words;
}

export function toast(words, { act, label, tone } = {}) {
  const box = document.createElement("div");
  box.className = `toast ${tone ?? ""}`;
  box.append(Object.assign(document.createElement("span"), { textContent: words }));
  const close = () => box.remove();
  if (act) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: label });
    button.addEventListener("click", () => {
      close();
      act();
    });
    box.append(button);
  }
  const away = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
  away.setAttribute("aria-label", "Dismiss");
  away.addEventListener("click", close);
  box.append(away);
  const all = document.getElementById("toasts");
  all.append(box);
  while (all.children.length > 3) all.firstElementChild.remove();
  let timer = setTimeout(close, tone === "bad" ? 2 * TOAST_MS : TOAST_MS);
  box.addEventListener("pointerenter", () => clearTimeout(timer));
  box.addEventListener("focusin", () => clearTimeout(timer));
  box.addEventListener("pointerleave", () => (timer = setTimeout(close, TOAST_MS)));
}

/** Ask for the feedback of a rejection; null: leave it. */
export function why() {
  const dialog = document.getElementById("why");
  const text = document.getElementById("why-text");
  text.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "send" ? text.value.trim() : null), { once: true });
  });
}
