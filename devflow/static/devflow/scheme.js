/* Light or dark: as the system has it, or as somebody chose here. Runs before the first paint. */
(() => {
  const KEY = "devflow-scheme";
  const ORDER = ["", "light", "dark"];
  const WORDS = { "": "system", light: "light", dark: "dark" };
  const chosen = () => localStorage.getItem(KEY) ?? "";

  function use(scheme) {
    document.documentElement.dataset.scheme = scheme;
    document.querySelector('meta[name="color-scheme"]').content = scheme || "light dark";
    const words = document.querySelector("#scheme .words");
    if (words) words.textContent = WORDS[scheme];
    dispatchEvent(new Event("scheme"));
  }

  use(chosen());
  addEventListener("DOMContentLoaded", () => {
    use(chosen());
    document.getElementById("scheme")?.addEventListener("click", () => {
      const next = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
      if (next) localStorage.setItem(KEY, next);
      else localStorage.removeItem(KEY);
      use(next);
    });
  });
})();
