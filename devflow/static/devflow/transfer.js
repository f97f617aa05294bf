/* Forms with data-transfer: a chosen file is sent to be looked at, what would come of it is shown, and only what can be
   brought in can be sent to stay. Without this module the two buttons post, and the file is chosen twice. */

const MEGABYTE = 1024 * 1024;

for (const form of document.querySelectorAll("form[data-transfer]")) ready(form);

function ready(form) {
  const input = form.querySelector("input[type=file]");
  const preview = form.querySelector("[data-preview]");
  const sending = form.querySelector("[data-sending]");
  const go = form.querySelector("[data-go]");
  const check = form.querySelector("[data-check]");
  const most = Number(form.dataset.mostBytes);
  let asked = null;

  function complain(words) {
    const note = document.createElement("p");
    note.className = "note error";
    note.setAttribute("role", "alert");
    note.textContent = `${words} Nothing was imported.`;
    preview.replaceChildren(note);
  }

  function put(html) {
    const chosen = preview.contains(document.activeElement) ? document.activeElement.name : "";
    preview.innerHTML = html;
    if (chosen) preview.querySelector(`[name="${chosen}"]`)?.focus();
  }

  function answered(request) {
    const place = request.getResponseHeader("HX-Redirect");
    if (place) return location.assign(place);
    sending.hidden = true;
    if (request.status === 200) put(request.responseText);
    else if (!request.status) complain("It could not be sent. If the file changed meanwhile, choose it again.");
    else if (request.status === 413) complain("The file is larger than the server takes.");
    else if (request.status === 403) complain("You may not do that, or the page has expired: reload it and try again.");
    else complain("The server did not take it. Try again in a moment.");
    go.disabled = !preview.querySelector("[data-good]");
  }

  function send(only) {
    asked?.abort();
    const body = new FormData(form);
    body.delete("only");
    if (only) body.set("only", only);
    const bar = sending.querySelector("progress");
    const words = sending.querySelector("[role=status]");
    const request = new XMLHttpRequest();
    asked = request;
    request.open("POST", form.action);
    request.setRequestHeader("HX-Request", "true");
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = Math.floor((100 * loaded) / total);
      words.textContent = `Sending, ${bar.value} %`;
    };
    request.upload.onload = () => {
      bar.removeAttribute("value");
      words.textContent = only ? "Looking at it…" : "Importing…";
    };
    request.onload = () => answered(request);
    request.onerror = () => answered(request);
    go.disabled = true;
    bar.value = 0;
    words.textContent = "Sending…";
    sending.hidden = false;
    request.send(body);
  }

  function look() {
    const file = input.files[0];
    if (!file) return;
    if (file.size > most) complain(`The file has ${(file.size / MEGABYTE).toFixed(1)} MB; it may have ${most / MEGABYTE} MB at most.`);
    else if (!file.size) complain("The file is empty.");
    else send("check");
  }

  function forget() {
    asked?.abort();
    sending.hidden = true;
    go.disabled = true;
    preview.replaceChildren(); // what was said of another file
  }

  check.hidden = true;
  go.disabled = !preview.querySelector("[data-good]");
  form.addEventListener("change", (event) => {
    if (event.target === input) forget();
    look();
  });
  input.addEventListener("click", () => (input.value = "")); // choosing the same file again is a choice, too
  input.addEventListener("cancel", forget);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (go.disabled) look();
    else send();
  });
  addEventListener("pageshow", look); // the browser may have kept what was chosen
}
