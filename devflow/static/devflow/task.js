/* Keeps the parts of a page ([data-part]) as the server has them: when something changes, the page is asked for again
   and each part that differs is exchanged, except one somebody writes in. Also draws a task's dependencies. */

import { inTurns, part } from "./ask.js";

const QUIET_MS = 80;
const SVG = "http://www.w3.org/2000/svg";
const NODE = { width: 164, height: 44 };

const root = document.querySelector("[data-page]");
const meanwhile = document.getElementById("meanwhile");
const drawn = new Map(); // part -> its HTML as the server gave it

/* A form's token is another one in every answer. */
function told(part) {
  const copy = part.cloneNode(true);
  for (const token of copy.querySelectorAll("[name=csrfmiddlewaretoken]")) token.remove();
  for (const details of copy.querySelectorAll("details")) details.open = false;
  for (const graph of copy.querySelectorAll("[data-graph]")) graph.replaceChildren();
  return copy.outerHTML;
}

/* Fields begin empty; what one holds was typed now, or before it was refused. */
function touched(field) {
  if (field.type === "hidden") return false;
  if (!field.matches("select")) return field.value.trim() !== "";
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
}

function isBusy(part) {
  return [...part.querySelectorAll("input, select, textarea")].some((field) => field === document.activeElement || touched(field));
}

/* What scrolls sideways can be scrolled with the keys. */
function reach(within) {
  for (const box of within.querySelectorAll(".scroll, .prose pre")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}

function exchange(part, fresh) {
  const open = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
  const focused = part.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : null;
  part.replaceWith(fresh);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  for (const graph of fresh.querySelectorAll("[data-graph]")) draw(graph);
  reach(fresh);
}

function put(html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  let kept = false;
  for (const fresh of answer.querySelectorAll("[data-part]")) {
    const part = document.getElementById(fresh.id);
    const says = told(fresh);
    if (!part || drawn.get(fresh.id) === says) continue;
    if (isBusy(part)) {
      kept = true;
    } else {
      drawn.set(fresh.id, says);
      exchange(part, document.importNode(fresh, true));
    }
  }
  if (meanwhile) meanwhile.hidden = !kept;
}

const soon = inTurns(async () => {
  try {
    const answer = await part(root.dataset.page);
    const busy = [...document.querySelectorAll("[data-part], form")].some(isBusy);
    if (answer.type === "opaqueredirect") busy || location.assign(root.dataset.page); // logged out meanwhile
    else if (answer.ok) put(await answer.text());
  } catch {
    // the light beside the pages says that the line is down; the next message or tick asks again
  }
}, QUIET_MS);

function concerns(changes) {
  const near = document.querySelector("[data-near]")?.dataset.near.split(" ");
  return changes.some(([, id]) => !near || near.includes(id) || !id.startsWith("task-"));
}

/* The dependencies, from what is waited for on the left to what waits on the right; top to bottom where it is narrow. */

function made(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/* Cuts a drawn text, at whole letters, to the width of its box. */
function fit(label) {
  const letters = [...new Intl.Segmenter().segment(label.textContent)].slice(0, 60).map((one) => one.segment);
  while (letters.length && label.getComputedTextLength() > NODE.width - 24) {
    letters.pop();
    label.textContent = `${letters.join("")}…`;
  }
}

function laid(nodes, edges, direction) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: 14, ranksep: 34, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(String(node.id), { ...NODE });
  for (const [from, to] of edges) graph.setEdge(String(from), String(to));
  dagre.layout(graph);
  return graph;
}

function line(points) {
  const [first, ...rest] = points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`);
  return `M${first}L${rest.join("L")}`;
}

function draw(box) {
  if (!globalThis.dagre) return;
  const { nodes, edges } = JSON.parse(box.dataset.graph);
  let graph = laid(nodes, edges, "LR");
  if (graph.graph().width > box.clientWidth) graph = laid(nodes, edges, "TB");
  const { width, height } = graph.graph();
  const svg = made("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Dependencies, drawn" });
  const tip = made("path", { d: "M0,0L8,4L0,8z" });
  svg.append(made("defs", {}, made("marker", { id: "tip", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, tip)));
  for (const edge of graph.edges()) svg.append(made("path", { class: "edge", d: line(graph.edge(edge).points), "marker-end": "url(#tip)" }));
  for (const node of nodes) {
    const { x, y } = graph.node(String(node.id));
    const label = made("text", { x: 12, y: 18, class: "name" }, node.subject);
    const state = made("text", { x: 12, y: 35, class: "state" }, `#${node.ref} ${node.status}`);
    const rect = made("rect", { ...NODE, rx: 8 });
    const title = made("title", {}, `#${node.ref} ${node.subject}: ${node.status}`);
    const place = { class: `node ${node.kind}${node.steps ? "" : " here"}`, transform: `translate(${x - NODE.width / 2} ${y - NODE.height / 2})` };
    const inside = [title, rect, label, state];
    svg.append(node.steps ? made("a", { ...place, href: node.url }, ...inside) : made("g", place, ...inside));
  }
  box.replaceChildren(svg);
  for (const label of svg.querySelectorAll(".name")) fit(label);
}

if (root) {
  for (const part of root.querySelectorAll("[data-part]")) drawn.set(part.id, told(part));
  for (const graph of root.querySelectorAll("[data-graph]")) draw(graph);
  reach(root);
  root.addEventListener("live", ({ detail: { message } }) => {
    if (message.reload || (message.changes && concerns(message.changes))) soon();
  });
  root.addEventListener("focusout", () => meanwhile && !meanwhile.hidden && soon());
  setInterval(() => document.hidden || soon(), Number(root.dataset.again) * 1000);
}
