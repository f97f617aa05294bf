/* A button with data-busy says so while its form is on its way: a server may take a minute to answer. */

addEventListener("submit", (event) => {
  const button = event.submitter;
  const words = button?.dataset.busy;
  if (!words) return;
  button.dataset.idle = button.textContent;
  button.textContent = words;
  button.setAttribute("aria-busy", "true");
  setTimeout(() => (button.disabled = true)); // after the form was read
});

/* Back from the next page: the button is itself again. */
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("[data-idle]")) {
    button.textContent = button.dataset.idle;
    button.removeAttribute("aria-busy");
    button.disabled = false;
  }
});
