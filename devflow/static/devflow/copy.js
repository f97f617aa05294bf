/* Buttons with data-copy="<id>" put that element's text on the clipboard; where that is not allowed, they select it. */

async function copy(button) {
  const from = document.getElementById(button.dataset.copy);
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(from.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(from);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = words), 2000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
