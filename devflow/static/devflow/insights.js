/* Draws each chart from the table beside it, in the colours of the scheme, again when the scheme changes. */

const MOST_RANKS = 12;
const SECONDS = [
  [0.001, "1 ms"], [0.01, "10 ms"], [0.1, "100 ms"], [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"],
  [3600, "1 h"], [6 * 3600, "6 h"], [86400, "1 d"], [7 * 86400, "7 d"], [30 * 86400, "30 d"], [180 * 86400, "180 d"],
];
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
let charts = [];

/** The value a colour token has now: `rgb(52, 80, 204)`, whatever light-dark() makes of it. */
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
function colour(token) {
  probe.style.color = `var(--${token})`;
  return getComputedStyle(probe).color;
}
const faint = (rgb, alpha) => rgb.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);

function read(table, most = Infinity) {
  const rows = [...table.tBodies[0].rows].slice(0, most);
  const heads = [...table.tHead.rows[0].cells];
  const series = heads.flatMap((head, at) =>
    head.dataset.hue
      ? {
          label: head.textContent,
          hue: head.dataset.hue,
          dashed: "dashed" in head.dataset,
          values: rows.map(({ cells }) => (cells[at].dataset.value === "" ? null : Number(cells[at].dataset.value))),
          texts: rows.map(({ cells }) => cells[at].textContent),
        }
      : [],
  );
  return { labels: rows.map(({ cells }) => cells[0].textContent), series };
}

function dataset(kind, one, at, unit, count) {
  const rgb = colour(one.hue);
  const line = kind === "area" || kind === "line";
  return {
    label: one.label,
    data: unit === "s" ? one.values.map((value) => value && Math.max(value, SECONDS[0][0])) : one.values,
    texts: one.texts,
    borderColor: line ? rgb : colour("surface"),
    backgroundColor: kind === "area" ? faint(rgb, 0.55) : one.dashed && line ? "transparent" : rgb,
    fill: kind === "area" && (at ? "-1" : "start"),
    borderWidth: kind === "line" ? 2 : line || count <= 40 ? 1 : 0,
    borderDash: one.dashed ? [5, 4] : [],
    pointRadius: kind === "line" && count <= 31 ? 2 : 0,
    pointStyle: one.dashed ? "rectRot" : "circle",
    pointHoverRadius: 4,
    pointHitRadius: 8,
    tension: 0,
    spanGaps: true,
    borderRadius: line ? 0 : 2,
    maxBarThickness: 28,
  };
}

function scales(kind, unit, shown) {
  const text = colour("ink-3");
  const ranks = kind === "ranks";
  const names = {
    stacked: kind !== "line",
    grid: { display: false },
    border: { color: colour("line-strong") },
    ticks: { color: text, maxRotation: 0, autoSkipPadding: 14, autoSkip: !ranks },
  };
  if (ranks) names.ticks.callback = function (at) {
    const label = this.getLabelForValue(at);
    return label.length > 24 ? `${label.slice(0, 23)}…` : label;
  };
  const numbers = {
    stacked: kind !== "line",
    beginAtZero: true,
    grid: { color: colour("line") },
    border: { display: false },
    ticks: { color: text, precision: 0, maxTicksLimit: 6 },
  };
  if (kind === "area") {
    const ground = Math.min(...shown[0].values);
    const top = Math.max(...shown[0].values.map((_, at) => shown.reduce((sum, one) => sum + one.values[at], 0)));
    if (ground > top / 2) numbers.min = ground; // long done work would press the bands above it flat
  }
  if (unit === "s") {
    numbers.type = "logarithmic"; // what agents do in minutes takes people days
    numbers.beginAtZero = false;
    numbers.ticks.callback = (value) => SECONDS.find(([seconds]) => seconds === value)?.[1] ?? "";
    numbers.afterDataLimits = (axis) => {
      axis.min = SECONDS.findLast(([seconds]) => seconds <= axis.min)?.[0] ?? SECONDS[0][0];
      axis.max = SECONDS.find(([seconds]) => seconds >= axis.max)?.[0] ?? axis.max;
    };
    numbers.afterBuildTicks = (axis) => {
      const within = SECONDS.filter(([seconds]) => seconds >= axis.min && seconds <= axis.max);
      axis.ticks = within.map(([value]) => ({ value }));
    };
  }
  return ranks ? { x: numbers, y: names } : { x: names, y: numbers };
}

function draw(canvas) {
  const { chart: kind, unit } = canvas.dataset;
  const ranks = kind === "ranks";
  const { labels, series } = read(canvas.closest(".figure").querySelector("table"), ranks ? MOST_RANKS : Infinity);
  const box = canvas.parentElement;
  box.hidden = false;
  if (ranks) box.style.height = `${Math.max(110, 62 + 24 * labels.length)}px`;
  const ink = colour("ink");
  const shown = kind === "area" ? series.toReversed() : series; // done is the ground the others stand on
  return new Chart(canvas, {
    type: kind === "bars" || ranks ? "bar" : "line",
    data: { labels, datasets: shown.map((one, at) => dataset(kind, one, at, unit, labels.length)) },
    options: {
      responsive: true,
      maintainAspectRatio: false,
      animation: still.matches ? false : { duration: 250 },
      indexAxis: ranks ? "y" : "x",
      interaction: { mode: "index", intersect: false, axis: ranks ? "y" : "x" },
      scales: scales(kind, unit, shown),
      plugins: {
        legend: {
          display: shown.length > 1,
          position: "bottom",
          reverse: kind === "area",
          labels: { color: colour("ink-2"), usePointStyle: true, boxHeight: 7, boxWidth: 7, padding: 12 },
        },
        tooltip: {
          backgroundColor: colour("raised"),
          titleColor: ink,
          bodyColor: ink,
          borderColor: colour("line-strong"),
          borderWidth: 1,
          padding: 10,
          usePointStyle: true,
          itemSort: kind === "area" ? (a, b) => b.datasetIndex - a.datasetIndex : undefined,
          callbacks: { label: ({ dataset: { label, texts }, dataIndex }) => ` ${label}: ${texts[dataIndex]}` },
        },
      },
    },
  });
}

function drawAll() {
  for (const chart of charts) chart.destroy();
  Chart.defaults.font = { ...Chart.defaults.font, family: getComputedStyle(document.body).fontFamily, size: 11.5 };
  charts = [...document.querySelectorAll("canvas[data-chart]")].map(draw);
}

if (document.querySelector("canvas[data-chart]")) {
  drawAll();
  addEventListener("figures", drawAll); // a page put its figures anew
  addEventListener("scheme", drawAll);
  dark.addEventListener("change", drawAll);
  still.addEventListener("change", drawAll);
}
