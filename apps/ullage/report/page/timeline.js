/*
 * timeline.js: memory over time. One column of the plot is one sweep's piece (model.js); where many changes fall into
 * a column it shows the highest, so no peak is lost however far out the view is.
 */
"use strict";

const MODES = [
  ["class", "held, by class", "held"], ["held-process", "held, by process", "held"], ["tag", "live, by tag", "live"],
  ["function", "live, by function", "live"], ["process", "live, by process", "live"], ["layer", "live, as one", "live"],
];
const MOST_GROUPS = 8;
const MARGIN = { left: 66, top: 22, right: 14, bottom: 28 };

let peaks = { peakHeld: 0, peakLive: 0, peakHeldAt: 0, peakLiveAt: 0 };
let drawn = null; /* the last sweep, with where it is on the canvas */
let dragging = null;

function innermostFunction(kind) {
  if (!kind.node) return kind.tag ? data.texts[kind.tag] : "no stack";
  return frameText(kind.node);
}

function groupName(kind) {
  switch (view.mode) {
    case "class": return data.classes[kind.class];
    case "tag": return kind.tag ? data.texts[kind.tag] : "no tag";
    case "function": return innermostFunction(kind);
    case "layer": return "live";
    default: return processName(kind.process);
  }
}

/* The groups that weigh most at the peak or else in all get a colour, the others share one. */
function makeGroups(measure) {
  const weights = new Map(), names = kinds.map(groupName), filter = kindFilter(), flag = measure === "held" ? HELD : LIVE;
  const value = measure === "held" ? model.held : model.size, at = measure === "held" ? peaks.peakHeldAt : peaks.peakLiveAt;
  const add = (name, weight) => weights.set(name, (weights.get(name) || 0) + weight);
  const byKind = new Float64Array(kinds.length);
  for (let i = 0; i < model.kind.length; i++) byKind[model.kind[i]] += value[i] * (model.from[i] <= at && model.to[i] > at ? 1 : 1e-6);
  byKind.forEach((weight, kind) => { if (filter[kind] & flag && weight > 0) add(names[kind], weight); });
  for (const adjust of model.adjusts)
    if (measure === "held" && chosen(adjust.process, adjust.device) && adjust.held > 0)
      add(view.mode === "class" ? data.classes[adjust.class] : processName(adjust.process), adjust.held);
  const sorted = [...weights].sort((a, b) => b[1] - a[1]).map((pair) => pair[0]);
  const list = view.mode === "class" ? data.classes.filter((name) => weights.has(name)) : sorted.slice(0, sorted.length > MOST_GROUPS ? MOST_GROUPS - 1 : MOST_GROUPS);
  const more = view.mode !== "class" && sorted.length > list.length, numbers = new Map(list.map((name, i) => [name, i]));
  if (list.length === 0) list.push(measure);
  const rest = more ? list.length : 0;
  if (more) list.push("others");
  const of = (name) => numbers.has(name) ? numbers.get(name) : rest;
  return {
    names: list, rest: more ? rest : -1,
    ofKind: Int32Array.from(names, of),
    ofAdjust: (adjust) => of(view.mode === "class" ? data.classes[adjust.class] : /process/.test(view.mode) ? processName(adjust.process) : ""),
  };
}

const measureOf = (mode) => MODES.find((row) => row[0] === mode)[2];

/* Of the device that is looked at, or the only one: [time, bytes] steps; empty without a budget. */
function budgetSteps() {
  const device = view.device >= 0 ? view.device : figures.devices.length === 1 ? 0 : -1, steps = [];
  if (device < 0) return steps;
  if (data.budget_begin[device]) steps.push([0, data.budget_begin[device]]);
  for (let i = 0; i < data.budgets.length; i += 3)
    if (data.budgets[i + 1] === device) steps.push([data.budgets[i], data.budgets[i + 2]]);
  return steps;
}

function rowsOf(list, width, wanted) {
  const rows = [];
  for (let i = 0; i < list.length; i += width) {
    const row = list.slice(i, i + width);
    if (wanted(row)) rows.push(row);
  }
  return rows;
}
const inView = (time) => time >= view.from && time <= view.to;
const refusalsInView = () => rowsOf(data.refusals, 7, (row) => inView(row[0]) && chosen(row[1], row[2]));
const waitsInView = () => rowsOf(data.waits, 6, (row) => inView(row[0]) && chosen(row[1], row[2]));
const marksInView = () => rowsOf(data.marks, 3, (row) => inView(row[0]) && (view.process < 0 || row[1] === view.process));

/* --- drawing -------------------------------------------------------------------------------------------- */

function scale(drawing) {
  const { box, most } = drawing, width = box.right - box.left, height = box.bottom - box.top;
  return {
    x: (time) => box.left + (time - view.from) / (view.to - view.from) * width,
    y: (value) => box.bottom - Math.min(1.1, value / most) * height,
  };
}

function drawStack(g, drawing, colours) {
  const { sweep: s, groups, box } = drawing, { y } = scale(drawing), columns = s.at.length, floor = new Float64Array(columns);
  const step = (box.right - box.left) / columns, n = groups.names.length;
  for (let group = 0; group < n; group++) {
    g.fillStyle = group === groups.rest ? colours.rest : colours.groups[group % 8];
    g.beginPath();
    for (let c = 0; c < columns; c++) {
      const top = y(floor[c] + Math.max(0, s.parts[c * n + group]));
      g.lineTo(box.left + c * step, top);
      g.lineTo(box.left + (c + 1) * step, top);
    }
    for (let c = columns - 1; c >= 0; c--) {
      const bottom = y(floor[c]);
      g.lineTo(box.left + (c + 1) * step, bottom);
      g.lineTo(box.left + c * step, bottom);
      floor[c] += Math.max(0, s.parts[c * n + group]);
    }
    g.fill();
  }
}

/* A line through the highest values, and where a column has lower ones too, down to these. */
function drawLine(g, drawing, low, high, colour, fill) {
  const { box } = drawing, { y } = scale(drawing), columns = high.length, step = (box.right - box.left) / columns;
  if (fill) {
    g.fillStyle = fill;
    g.beginPath();
    g.moveTo(box.left, box.bottom);
    for (let c = 0; c < columns; c++) {
      g.lineTo(box.left + c * step, y(high[c]));
      g.lineTo(box.left + (c + 1) * step, y(high[c]));
    }
    g.lineTo(box.right, box.bottom);
    g.fill();
  }
  if (!colour) return;
  g.strokeStyle = colour;
  g.lineWidth = 1.4;
  g.lineJoin = "round";
  g.beginPath();
  for (let c = 0; c < columns; c++) {
    g.lineTo(box.left + c * step, y(high[c]));
    g.lineTo(box.left + (c + 1) * step, y(high[c]));
  }
  g.stroke();
}

function drawBudget(g, drawing, colours) {
  const { box } = drawing, { x, y } = scale(drawing), steps = budgetSteps();
  if (!steps.length) return;
  g.strokeStyle = g.fillStyle = colours.bad;
  g.lineWidth = 1.4;
  g.setLineDash([6, 4]);
  g.beginPath();
  steps.forEach(([time, value], i) => {
    const left = Math.max(box.left, x(time)), right = i + 1 < steps.length ? Math.min(box.right, x(steps[i + 1][0])) : box.right;
    if (right <= left || !value) return;
    const at = value > drawing.most ? box.top : y(value);
    g.lineTo(left, at);
    g.lineTo(right, at);
  });
  g.stroke();
  g.setLineDash([]);
  const now = steps.filter(([time]) => time <= view.from).pop() || steps[0], above = now[1] > drawing.most;
  const at = above ? box.top : y(now[1]), label = "budget " + bytes(now[1]) + (above ? " (far above)" : "");
  g.textAlign = "left";
  g.textBaseline = "bottom";
  const width = g.measureText(label).width;
  g.globalAlpha = 0.85;
  g.fillStyle = colours.panel;
  g.fillRect(box.left + 6, at - 17, width + 6, 14);
  g.globalAlpha = 1;
  g.fillStyle = colours.bad;
  g.fillText(label, box.left + 9, at - 3);
}

function drawMarks(g, drawing, colours) {
  const { box } = drawing, { x } = scale(drawing), marks = marksInView(), refusals = refusalsInView();
  if (marks.length <= 60) {
    g.strokeStyle = g.fillStyle = colours.quiet;
    g.setLineDash([2, 3]);
    g.lineWidth = 1;
    let free = 0;
    g.textAlign = "left";
    g.textBaseline = "top";
    for (const [time, , text] of marks) {
      const at = Math.round(x(time)) + 0.5, label = data.texts[text].slice(0, 24);
      g.beginPath();
      g.moveTo(at, box.top);
      g.lineTo(at, box.bottom);
      g.stroke();
      if (at < free || at + g.measureText(label).width > box.right) continue;
      g.fillText(label, at + 3, 3);
      free = at + g.measureText(label).width + 10;
    }
    g.setLineDash([]);
  }
  g.strokeStyle = colours.warn;
  g.lineWidth = 1;
  g.beginPath();
  for (const [time] of waitsInView()) {
    g.moveTo(x(time), box.bottom - 8);
    g.lineTo(x(time), box.bottom);
  }
  g.stroke();
  g.fillStyle = colours.bad;
  g.strokeStyle = colours.panel;
  for (const [time] of refusals) {
    g.beginPath();
    g.moveTo(x(time) - 5, box.top - 8);
    g.lineTo(x(time) + 5, box.top - 8);
    g.lineTo(x(time), box.top + 1);
    g.closePath();
    g.fill();
    g.stroke();
  }
}

function drawMoment(g, drawing, colours) {
  const { box } = drawing, { x, y } = scale(drawing);
  if (inView(peaks.peakLiveAt) && peaks.peakLive > 0) {
    g.fillStyle = colours.live;
    g.strokeStyle = colours.panel;
    g.lineWidth = 2;
    g.beginPath();
    g.arc(x(peaks.peakLiveAt), y(peaks.peakLive), 4.5, 0, 7);
    g.stroke();
    g.fill();
  }
  if (!inView(view.moment) || model.time.length === 0) return;
  const at = Math.round(x(view.moment)) + 0.5;
  g.strokeStyle = colours.accent;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(at, box.top);
  g.lineTo(at, box.bottom);
  g.stroke();
}

function drawTimeline() {
  const { g, width, height } = prepare(byId("timeline").firstElementChild), colours = palette();
  const left = width < 480 ? 58 : MARGIN.left, box = { left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom };
  const measure = measureOf(view.mode), columns = Math.max(50, Math.round((box.right - box.left) * Math.min(2, window.devicePixelRatio || 1)));
  const groups = makeGroups(measure);
  const s = sweep(view.from, view.to, columns, groups.names.length, groups.ofKind, groups.ofAdjust, measure);
  const budget = Math.max(0, ...budgetSteps().map((step) => step[1])), fit = measure === "live" && byId("fit").checked;
  const top = fit ? s.peakLive : Math.max(s.peakHeld, s.peakLive);
  byId("fit").parentElement.hidden = measure !== "live" || s.peakHeld <= s.peakLive;
  const most = (budget > 0 && (top === 0 || budget < top * 3) ? Math.max(budget, top) : top || 2 ** 30) * 1.06;
  drawn = { sweep: s, groups, box, most, measure };
  axes(g, box, colours, view.from, view.to, most);
  g.save();
  g.beginPath();
  g.rect(box.left, 0, box.right - box.left, height);
  g.clip();
  if (measure === "live") drawLine(g, drawn, s.heldLow, s.heldHigh, null, colours.gap);
  drawStack(g, drawn, colours);
  if (measure === "live") drawLine(g, drawn, s.heldLow, s.heldHigh, colours.quiet);
  else drawLine(g, drawn, s.liveLow, s.liveHigh, colours.live);
  drawBudget(g, drawn, colours);
  drawMarks(g, drawn, colours);
  g.restore();
  drawMoment(g, drawn, colours);
  if (top === 0) {
    g.fillStyle = colours.quiet;
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillText("Nothing was held in this time.", (box.left + box.right) / 2, (box.top + box.bottom) / 2);
  }
  drawLegend(colours);
  drawHost(colours);
}

function key(className, colour, text) {
  const item = element("span"), sign = element("i", null, className);
  if (className) sign.style.color = colour;
  else sign.style.background = colour;
  item.append(sign, text);
  return item;
}

function drawLegend(colours) {
  const items = drawn.groups.names.map((name, i) => key("", i === drawn.groups.rest ? colours.rest : colours.groups[i % 8], name || "no name"));
  items.push(drawn.measure === "held" ? key("line", colours.live, "live") : key("line", colours.quiet, "held"));
  if (drawn.measure === "live" && peaks.peakHeld > peaks.peakLive) items.push(key("", colours.gap, "held, not live"));
  if (budgetSteps().length) items.push(key("dash", colours.bad, "budget"));
  if (refusalsInView().length) items.push(key("mark", colours.bad, "refused request"));
  if (waitsInView().length) items.push(key("line", colours.warn, "request that had to wait"));
  byId("legend").replaceChildren(...items);
}

/* --- host memory ---------------------------------------------------------------------------------------- */

function drawHost(colours) {
  const lines = new Map();
  let most = 0;
  for (let i = 0; i < data.host.length; i += 3) {
    const process = data.host[i + 1];
    if (view.process >= 0 && process !== view.process) continue;
    if (!lines.has(process)) lines.set(process, []);
    lines.get(process).push([data.host[i], data.host[i + 2]]);
    most = Math.max(most, data.host[i + 2]);
  }
  const any = [...lines.values()].some((line) => line.length > 1); /* one sample makes no line */
  byId("host").hidden = byId("host-legend").hidden = !any;
  if (!any) return;
  const { g, width, height } = prepare(byId("host").firstElementChild), left = width < 480 ? 58 : MARGIN.left;
  const drawing = { box: { left, top: 8, right: width - MARGIN.right, bottom: height - MARGIN.bottom }, most: most * 1.06 };
  const { x, y } = scale(drawing), shown = [...lines].sort((a, b) => b[1].length - a[1].length).slice(0, 8), items = [];
  axes(g, drawing.box, colours, view.from, view.to, drawing.most);
  g.save();
  g.beginPath();
  g.rect(left, 0, drawing.box.right - left, height);
  g.clip();
  shown.forEach(([process, points], i) => {
    g.strokeStyle = colours.groups[i];
    g.lineWidth = 1.6;
    g.beginPath();
    if (points.length === 1) points.push([points[0][0] + (view.to - view.from) / 200, points[0][1]]);
    for (const [time, value] of points) g.lineTo(x(time), y(value));
    g.stroke();
    items.push(key("line", colours.groups[i], "host memory of " + processName(process)));
  });
  g.restore();
  byId("host-legend").replaceChildren(...items);
}

/* --- looking -------------------------------------------------------------------------------------------- */

function timeAt(x) {
  const { box } = drawn, share = Math.min(1, Math.max(0, (x - box.left) / (box.right - box.left)));
  return view.from + share * (view.to - view.from);
}

/* Over a column its highest moment is meant, since that is what is drawn; near the peak, the peak. */
function momentAt(x) {
  const { box, sweep: s } = drawn, { x: place } = scale(drawn);
  if (inView(peaks.peakLiveAt) && Math.abs(place(peaks.peakLiveAt) - x) <= 5) return peaks.peakLiveAt;
  const column = Math.floor((x - box.left) / (box.right - box.left) * s.at.length);
  return s.at[Math.min(s.at.length - 1, Math.max(0, column))];
}

function momentTip(moment) {
  const at = contentsAt(moment), step = (view.to - view.from) / 1000, parts = [element("p")];
  const peak = moment === peaks.peakLiveAt ? " · the peak" : "";
  parts[0].append(element("b", momentText(moment, step) + peak));
  parts.push(tipRow(bytes(at.held), "held"), tipRow(bytes(at.live), "live in " + count(at.blocks) + (at.blocks === 1 ? " block" : " blocks")));
  at.rows.slice(0, 5).forEach((row, i) => {
    const line = tipRow(bytes(row.bytes), (row.count > 1 ? count(row.count) + " × " : "") + kindName(row.kind));
    if (i === 0) line.style.marginTop = "5px";
    parts.push(line);
  });
  const rest = at.rows.length - 5;
  if (rest > 0) parts.push(element("p", "and " + count(rest) + " more kinds", "quiet"));
  return parts;
}

function refusalTip(x) {
  const { x: place } = scale(drawn), near = refusalsInView().filter((row) => Math.abs(place(row[0]) - x) <= 6);
  if (!near.length) return null;
  const rows = near.slice(0, 4).map((row) => element("p", bytes(row[3]) + " refused to " + processName(row[1]) +
    (row[4] ? ", and it went on" : ", its last request")));
  if (near.length > 4) rows.push(element("p", "and " + count(near.length - 4) + " more"));
  return rows;
}

function drawDrag() {
  drawTimeline();
  if (!dragging || !dragging.moved) return;
  const g = byId("timeline").firstElementChild.getContext("2d"), { box } = drawn;
  const left = Math.max(box.left, Math.min(dragging.from, dragging.to)), right = Math.min(box.right, Math.max(dragging.from, dragging.to));
  g.fillStyle = palette().accent;
  g.globalAlpha = 0.2;
  g.fillRect(left, box.top, right - left, box.bottom - box.top);
  g.globalAlpha = 1;
}

let asked = 0;
function onFrame(work) {
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(work);
}

function watchTimeline() {
  const plot = byId("timeline"), place = (event) => event.clientX - plot.getBoundingClientRect().left;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    dragging = { from: place(event), to: place(event), moved: false };
    if (event.pointerType === "mouse") plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const x = place(event), y = event.clientY - plot.getBoundingClientRect().top;
    if (dragging) {
      dragging.to = x;
      dragging.moved = dragging.moved || Math.abs(x - dragging.from) > 4;
      if (dragging.moved) { hideTip(); onFrame(drawDrag); return; }
    }
    onFrame(() => {
      const refused = y < MARGIN.top + 4 ? refusalTip(x) : null;
      showTip(event.clientX, event.clientY, refused || momentTip(momentAt(x)));
    });
  });
  plot.addEventListener("pointerup", (event) => {
    const was = dragging;
    dragging = null;
    if (!was) return;
    if (was.moved) {
      const from = timeAt(Math.min(was.from, was.to)), to = timeAt(Math.max(was.from, was.to));
      zoomTo(from, to);
    } else {
      setMoment(momentAt(place(event)));
    }
  });
  plot.addEventListener("pointercancel", () => { dragging = null; drawTimeline(); });
  plot.addEventListener("pointerleave", () => { cancelAnimationFrame(asked); hideTip(); });
  plot.addEventListener("dblclick", () => zoomTo(0, END));
  plot.addEventListener("keydown", (event) => {
    const columns = drawn.sweep.at.length, { x } = scale(drawn), now = Math.max(view.from, Math.min(view.to, view.moment));
    const column = Math.floor((x(now) - drawn.box.left) / (drawn.box.right - drawn.box.left) * columns), by = event.shiftKey ? 40 : 4;
    const go = (to) => setMoment(drawn.sweep.at[Math.max(0, Math.min(columns - 1, to))]);
    const keys = {
      ArrowLeft: () => go(column - by), ArrowRight: () => go(column + by), Home: () => go(0), End: () => go(columns - 1),
      "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), Escape: () => zoomTo(0, END), p: goToPeak, P: goToPeak,
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}
