/*
 * flame.js: bytes by call stack, outermost frame on top. What is without a stack is told by process and tag. Only what
 * is wide enough to see becomes an element; a click or Enter widens a part.
 */
"use strict";

const ROW = 22, DEEPEST = 120;
let flameTop = null; /* the part that is shown wide; null: all */
let flameRoot = null;

/* Bytes, or allocations, by kind. */
function flameWeights(at) {
  const weights = new Map(), what = byId("flame-what").value;
  if (what === "moment") {
    for (const row of at.rows) weights.set(row.kind, row.bytes);
    return weights;
  }
  const filter = kindFilter(), byKind = new Float64Array(kinds.length);
  for (let i = 0; i < model.from.length; i++)
    if (model.from[i] >= view.from && model.from[i] <= view.to) byKind[model.kind[i]] += what === "bytes" ? model.size[i] : 1;
  byKind.forEach((weight, kind) => { if (weight > 0 && filter[kind] & LIVE) weights.set(kinds[kind], weight); });
  return weights;
}

const newPart = (name, above) => ({ name, above, value: 0, parts: new Map() });

function child(part, name) {
  let found = part.parts.get(name);
  if (!found) part.parts.set(name, found = newPart(name, part));
  return found;
}

function buildFlame(at) {
  const root = newPart("all", null), byProcess = figures.processes.length > 1;
  for (const [kind, weight] of flameWeights(at)) {
    let part = root;
    part.value += weight;
    const names = byProcess ? [processName(kind.process)] : [];
    if (kind.node) names.push(...stackOf(kind.node).reverse());
    else names.push(kindName(kind) + (kind.tag || kind.flags & (SEVERAL | BEFORE) ? "" : ", no stack"));
    for (const name of names) (part = child(part, name)).value += weight;
  }
  return root;
}

function flameColour(name) {
  let hash = 7;
  for (let i = 0; i < name.length && name[i] !== "("; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return "f" + Math.abs(hash) % 6;
}

const flameValue = (value) => byId("flame-what").value === "count" ? count(value) + (value === 1 ? " allocation" : " allocations") : bytes(value);

function flameNode(part, left, width, row, above) {
  const node = element("button", part.name, "node " + flameColour(part.name) + (above ? " above" : ""));
  const share = flameRoot.value ? part.value / flameRoot.value : 0;
  node.type = "button";
  node.tabIndex = -1;
  node.setAttribute("role", "treeitem");
  node.setAttribute("aria-label", part.name + ", " + flameValue(part.value));
  node.style.left = left * 100 + "%";
  node.style.width = width * 100 + "%";
  node.style.top = row * ROW + "px";
  if (width * byId("flame").clientWidth < 26) { node.textContent = ""; node.style.padding = "0"; }
  node.addEventListener("click", () => widen(part === flameTop ? part.above : part));
  node.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, [element("b", part.name),
    element("p", flameValue(part.value) + ", " + (share * 100).toFixed(share < 0.1 ? 1 : 0) + " % of all")]));
  node.addEventListener("pointerleave", hideTip);
  node.flamePart = part;
  return node;
}

function placeFlame(part, left, width, row, nodes) {
  nodes.push(flameNode(part, left, width, row, false));
  if (row >= DEEPEST) return row;
  let deepest = row, at = left;
  for (const below of [...part.parts.values()].sort((a, b) => b.value - a.value)) {
    const share = width * below.value / part.value;
    if (share >= 0.0015) deepest = Math.max(deepest, placeFlame(below, at, share, row + 1, nodes));
    at += share;
  }
  return deepest;
}

function widen(part) {
  flameTop = part && part.above ? part : null;
  showFlame();
  const again = [...byId("flame").querySelectorAll(".node")].find((node) => node.flamePart === (part || flameRoot));
  if (again) again.focus();
}

function showFlame() {
  const rows = element("div", null, "rows"), nodes = [], line = [];
  const top = flameTop || flameRoot;
  byId("flame-all").hidden = !flameTop;
  if (!flameRoot.value) {
    byId("flame").replaceChildren(element("p", "Nothing to show for this choice.", "empty"));
    return;
  }
  for (let part = top.above; part; part = part.above) line.unshift(part);
  line.forEach((part, i) => nodes.push(flameNode(part, 0, 1, i, true)));
  const deepest = placeFlame(top, 0, 1, line.length, nodes);
  nodes[line.length].tabIndex = 0;
  rows.style.height = (deepest + 1) * ROW + "px";
  rows.append(...nodes);
  byId("flame").replaceChildren(rows);
}

function drawFlame(at) {
  flameTop = null;
  flameRoot = buildFlame(at);
  flameRoot.name = flameValue(flameRoot.value);
  byId("flame-note").textContent = data.nodes.length || !kinds.length ? "" : figures.origin === "torch"
    ? "The snapshot has no call stacks: record them with torch.cuda.memory._record_memory_history(stacks=\"all\")."
    : "The record has no call stacks, so this is by process and tag. With ullage run --record FILE --stacks there are some.";
  showFlame();
}

function watchFlame() {
  byId("flame-all").addEventListener("click", () => widen(null));
  byId("flame").addEventListener("keydown", (event) => {
    const part = event.target.flamePart;
    if (!part) return;
    const beside = part.above ? [...part.above.parts.values()].sort((a, b) => b.value - a.value) : [part], i = beside.indexOf(part);
    const below = [...part.parts.values()].sort((a, b) => b.value - a.value)[0];
    const to = { ArrowUp: part.above, ArrowDown: below, ArrowLeft: beside[i - 1], ArrowRight: beside[i + 1] }[event.key];
    if (event.key === "Escape") widen(null);
    if (!to) return;
    event.preventDefault();
    const node = [...byId("flame").querySelectorAll(".node")].find((one) => one.flamePart === to);
    if (node) node.focus();
  });
}
