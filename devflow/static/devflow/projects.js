/* A new project's slug follows its name until somebody types another. */

const name = document.getElementById("id_name");
const slug = document.getElementById("id_slug");

function told(words) {
  return words
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9\s_-]/g, "")
    .trim()
    .replace(/[\s-]+/g, "-")
    .slice(0, 44)
    .replace(/^[-_]+|[-_]+$/g, "");
}

let follows = slug.value === told(name.value);
slug.addEventListener("input", () => (follows = slug.value === ""));
name.addEventListener("input", () => {
  if (follows) slug.value = told(name.value);
});
