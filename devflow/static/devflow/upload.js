/* Forms with data-upload: what is too large is said before it is sent, a bar shows how far sending is, and a refusal
   stands beside its field while everything typed and chosen stays. Without this module the form just posts. */

const MEGABYTE = 1024 * 1024;

const amount = (bytes) =>
  bytes < MEGABYTE ? `${Math.max(1, Math.round(bytes / 1024))} KB` : `${(bytes / MEGABYTE).toFixed(1)} MB`;

function say(form, errors) {
  for (const place of form.querySelectorAll("[data-errors]")) {
    const words = (errors[place.dataset.errors] ?? []).flat();
    const list = document.createElement("ul");
    list.className = "errorlist";
    list.append(
      ...words.map((word) => {
        const item = document.createElement("li");
        item.textContent = word;
        return item;
      }),
    );
    place.replaceChildren(...(words.length ? [list] : []));
  }
  const first = form.querySelector("[data-errors] .errorlist");
  first?.closest("details")?.setAttribute("open", "");
  first?.scrollIntoView({ block: "center" });
  first?.closest("[data-errors]").nextElementSibling?.focus?.();
}

function faultsOf(form, files) {
  const limits = form.dataset;
  const faults = files
    .filter((file) => file.size > Number(limits.mostBytes))
    .map((file) => `${file.name} has ${amount(file.size)}; a file may have ${amount(Number(limits.mostBytes))} at most.`);
  const empty = files.filter((file) => file.size === 0).map((file) => `${file.name} is empty.`);
  const sum = files.reduce((total, file) => total + file.size, 0);
  if (files.length > Number(limits.mostFiles)) {
    faults.push(`${files.length} files are too many at once; send ${limits.mostFiles}, then the others.`);
  } else if (!faults.length && sum > Number(limits.mostBody) - MEGABYTE) {
    faults.push(`Together they have ${amount(sum)}; send at most ${amount(Number(limits.mostBody) - MEGABYTE)} at once.`);
  }
  return [...faults, ...empty];
}

function list(form, files) {
  const place = form.querySelector("[data-picked]");
  const items = files.slice(0, 20).map((file) => {
    const item = document.createElement("li");
    const size = document.createElement("span");
    size.className = "muted num";
    size.textContent = ` ${amount(file.size)}`;
    item.append(file.name, size);
    return item;
  });
  if (files.length > 20) {
    const more = document.createElement("li");
    more.textContent = `and ${files.length - 20} more`;
    items.push(more);
  }
  place.replaceChildren(...items);
}

function busy(form, is) {
  form.querySelector("[data-sending]").hidden = !is;
  for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = is;
}

function send(form, files) {
  const bar = form.querySelector("[data-sending] progress");
  const words = form.querySelector("[data-sending] [role=status]");
  const request = new XMLHttpRequest();
  request.open("POST", form.action);
  request.setRequestHeader("Accept", "application/json");
  request.upload.onprogress = ({ loaded, total }) => {
    bar.value = Math.floor((100 * loaded) / total);
    words.textContent = loaded < total ? `Sending, ${bar.value} %` : "Sent; it is being kept…";
  };
  request.onloadend = () => {
    let answer = {};
    try {
      answer = JSON.parse(request.responseText);
    } catch {
      // a page of the server or of something before it
    }
    if (answer.location) {
      location.assign(answer.location);
      return;
    }
    busy(form, false);
    if (answer.errors && request.status === 422) say(form, answer.errors);
    else if (request.status === 413) say(form, { __all__: ["That is more than the server takes at once. Send fewer files."] });
    else if (request.status === 403) say(form, { __all__: ["You may not do that, or the page has expired: reload it and try again."] });
    else say(form, { __all__: ["The server did not take it; nothing was added. Try again in a moment."] });
  };
  say(form, {});
  bar.value = 0;
  words.textContent = "Sending…";
  busy(form, true);
  const body = new FormData(form);
  if (!files.length) body.delete("upload");
  request.send(body);
}

for (const form of document.querySelectorAll("form[data-upload]")) {
  const input = form.querySelector("input[type=file]");
  const chosen = () => (input.offsetParent ? [...input.files] : []); // not those of a type that is not shown
  input.addEventListener("change", () => {
    list(form, [...input.files]);
    const faults = faultsOf(form, [...input.files]);
    say(form, faults.length ? { upload: faults } : {});
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const files = chosen();
    const faults = faultsOf(form, files);
    if (faults.length) say(form, { upload: faults });
    else send(form, files);
  });
  addEventListener("pageshow", () => list(form, [...input.files])); // the browser may have kept what was chosen
}
