/* draw.js: units, small pieces of the page, and what plots share: canvas, axes, tooltip. */
"use strict";

const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/* --- units ---------------------------------------------------------------------------------------------- */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/* As the program writes sizes: "3.4 GiB", "512 B". */
function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0, size = Math.abs(value);
  while (unit < UNITS.length - 1 && (size >= 1024 || (unit > 0 && size >= 1023.95))) { size /= 1024; unit++; }
  return (value < 0 ? "−" : "") + (unit ? size.toFixed(1) : String(size)) + " " + UNITS[unit];
}

/* Rounded up: for what is needed, so that whoever types it as a limit has enough. */
function bytesUp(value) {
  if (value === null || value === undefined || value < 1024) return bytes(value);
  const one = Math.pow(1024, Math.min(UNITS.length - 1, Math.floor(Math.log2(value) / 10)));
  return bytes(Math.ceil(value * 10 / one) * one / 10);
}

const count = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
const percent = (ratio) => ratio === null || ratio === undefined ? "–" : (ratio * 100).toFixed(0) + " %";

/* Of seconds. */
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.abs(seconds);
  if (s === 0) return "0 s";
  if (s < 0.9995e-6) return (s * 1e9).toFixed(0) + " ns";
  if (s < 0.9995e-3) return Number((s * 1e6).toPrecision(3)) + " µs";
  if (s < 0.9995) return Number((s * 1e3).toPrecision(3)) + " ms";
  if (s < 120) return s.toFixed(1) + " s";
  if (s < 7200) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
}

/* A moment of the run, exact enough to tell neighbours apart when `step` nanoseconds are. */
function momentText(ns, step) {
  const unit = step >= 3.6e12 ? [3.6e12, "h"] : step >= 1.2e11 ? [6e10, "min"] : END >= 1e9 ? [1e9, "s"] : END >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9)));
  return (ns / unit[0]).toFixed(digits) + " " + unit[1];
}

/* --- canvas --------------------------------------------------------------------------------------------- */

/* Colours of the style sheet, by name without the dashes. */
function palette() {
  const style = getComputedStyle(document.documentElement), colours = {};
  for (const name of ["ink", "quiet", "line", "grid", "accent", "bad", "warn", "panel", "rest", "gap", "live", "heat",
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"])
    colours[name] = style.getPropertyValue("--" + name).trim();
  colours.groups = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => colours["c" + i]);
  return colours;
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif';

/* Sized to its place and the screen's pixels, or for paper, whatever the layout is just then; cleared; units are the page's. */
function prepare(canvas) {
  const paper = document.documentElement.dataset.print, ratio = paper ? 3 : window.devicePixelRatio || 1;
  const width = paper ? 720 : canvas.clientWidth, height = paper ? Number(canvas.dataset.paper) : canvas.clientHeight;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = FONT;
  return { g, width, height };
}

/* Steps of 1, 2, 4 ... 512 of a unit. */
function sizeTicks(most, room) {
  let step = 1;
  while (most / step > room) step *= 2;
  const ticks = [];
  for (let value = 0; value <= most; value += step) ticks.push(value);
  return ticks;
}

function timeStep(span, room) {
  const fine = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  for (let unit = 1; unit < 1e9; unit *= 1000)
    for (const step of fine) if (span / (step * unit) <= room) return step * unit;
  for (const step of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400])
    if (span / (step * 1e9) <= room) return step * 1e9;
  return Math.ceil(span / room / 8.64e13) * 8.64e13;
}

const tickBytes = (value) => {
  if (value === 0) return "0";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return Number(value.toFixed(2)) + " " + UNITS[unit];
};

/* Lines and labels of both axes; `box` has left, top, right, bottom. */
function axes(g, box, colours, from, to, most) {
  const height = box.bottom - box.top, width = box.right - box.left;
  g.lineWidth = 1;
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (const value of sizeTicks(most, Math.max(2, height / 46))) {
    const y = Math.round(box.bottom - value / most * height) + 0.5;
    g.strokeStyle = value ? colours.grid : colours.line;
    g.beginPath();
    g.moveTo(box.left, y);
    g.lineTo(box.right, y);
    g.stroke();
    g.fillStyle = colours.quiet;
    g.fillText(tickBytes(value), box.left - 8, y);
  }
  const step = timeStep(to - from, Math.max(2, width / 96));
  g.textBaseline = "top";
  g.textAlign = "center";
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const x = box.left + (time - from) / (to - from) * width, label = time === 0 ? "0" : momentText(time, step);
    const half = g.measureText(label).width / 2;
    g.strokeStyle = colours.line;
    g.beginPath();
    g.moveTo(Math.round(x) + 0.5, box.bottom);
    g.lineTo(Math.round(x) + 0.5, box.bottom + 4);
    g.stroke();
    if (x + half <= box.right + 10) g.fillText(label, Math.max(x, box.left + half - 10), box.bottom + 7);
  }
}

/* --- tooltip -------------------------------------------------------------------------------------------- */

function showTip(x, y, parts) {
  const tip = byId("tip");
  tip.replaceChildren(...parts);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), margin = 14;
  const left = x + margin + box.width > innerWidth - 4 ? x - margin - box.width : x + margin;
  const top = y + margin + box.height > innerHeight - 4 ? y - margin - box.height : y + margin;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

function hideTip() {
  byId("tip").hidden = true;
}

function tipRow(left, right) {
  const row = element("div", null, "row");
  row.append(element("span", left), element("span", right));
  return row;
}

/*
 * Rows of cells, text or elements; a column is [heading, kinds], of "number", "text", and "minor" for what a small screen
 * leaves out. A column of which nothing is known is not there.
 */
function table(allColumns, allRows) {
  const known = allColumns.map((_, i) => allRows.some((row) => row[i] !== null && row[i] !== undefined && row[i] !== "–"));
  const columns = allColumns.filter((_, i) => known[i]), rows = allRows.map((row) => row.filter((_, i) => known[i]));
  const made = element("table"), head = element("tr"), body = element("tbody"), top = element("thead");
  for (const [heading, kind] of columns) {
    const cell = element("th", heading, kind);
    cell.scope = "col";
    head.append(cell);
  }
  for (const row of rows) {
    const line = element("tr");
    row.forEach((value, i) => {
      const cell = element("td", null, columns[i][1]);
      cell.append(value instanceof Node ? value : value === null || value === undefined ? "–" : String(value));
      line.append(cell);
    });
    body.append(line);
  }
  top.append(head);
  made.append(top, body);
  return made;
}
