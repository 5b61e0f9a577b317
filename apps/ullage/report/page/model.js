/*
 * model.js: the data of the page, and what can be asked of it.
 *
 * A change of the books is a block that came, one that went, or an adjustment without a block. All are in order
 * of time, so the books of any moment, of any choice of processes and devices, are sums over what came before it.
 * How they are packed is told in html_pack.c. Texts of the record are only ever set as textContent.
 */
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const data = JSON.parse(document.getElementById("data").textContent);
const CAME = 0, WENT = 1, LEFT = 2, ADJUSTED = 3, NO_DEVICE = 255;
const LIVE = 1, HELD = 2, BEFORE = 4, SEVERAL = 8;

function unpack() {
  const binary = atob(data.changes), size = binary.length, bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = binary.charCodeAt(i);
  data.changes = null;
  let at = 0;
  const number = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    return value;
  };
  const signed = () => {
    const value = number();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
  const changes = data.change_count, spans = data.span_count;
  const m = {
    time: new Float64Array(changes), what: new Uint8Array(changes), ref: new Int32Array(changes),
    from: new Float64Array(spans), to: new Float64Array(spans).fill(Infinity), size: new Float64Array(spans),
    held: new Float64Array(spans), kind: new Int32Array(spans), freed: new Uint8Array(spans), adjusts: [],
  };
  let now = 0, last = -1;
  for (let i = 0; i < changes; i++) {
    now += number();
    const head = number(), what = head % 4, rest = (head - what) / 4;
    m.time[i] = now * data.tick;
    m.what[i] = what;
    if (what === CAME) {
      const size = number();
      m.ref[i] = ++last;
      m.from[last] = m.time[i];
      m.kind[last] = rest;
      m.size[last] = size % 2 ? (size - 1) / 2 * 512 : size / 2;
      if (data.kinds[rest * 7 + 4] & HELD) m.held[last] = m.size[last] + signed();
    } else if (what === WENT || what === LEFT) {
      m.ref[i] = last - rest;
      m.to[last - rest] = m.time[i];
      m.freed[last - rest] = what === WENT ? 1 : 0;
    } else {
      m.ref[i] = m.adjusts.length;
      m.adjusts.push({ time: m.time[i], process: number(), device: number(), class: number(), held: signed(), live: signed() });
    }
  }
  return m;
}

function unpackKinds() {
  const kinds = [];
  for (let i = 0; i < data.kinds.length; i += 7) {
    const [process, device, class_, layer, flags, tag, node] = data.kinds.slice(i, i + 7);
    kinds.push({ process, device, class: class_, layer, flags, tag, node });
  }
  return kinds;
}

const model = unpack();
const kinds = unpackKinds();
const END = Math.max(data.end, 1);

/* What is looked at; everything on the page follows it. */
const view = { device: -1, process: -1, from: 0, to: END, moment: 0, mode: "class" };

function chosen(process, device) {
  return (view.process < 0 || process === view.process) && (view.device < 0 || device === view.device);
}

/* --- names ---------------------------------------------------------------------------------------------- */

function frameText(node) {
  const frame = data.nodes[(node - 1) * 2 + 1] * 3;
  const name = data.texts[data.frames[frame]] || "?", line = data.frames[frame + 2];
  const file = data.texts[data.frames[frame + 1]].replace(/^.*\/(?=.)/, "");
  return file ? name + " (" + file + (line ? ":" + line : "") + ")" : name;
}

/* Innermost first. */
function stackOf(node) {
  const frames = [];
  for (; node > 0; node = data.nodes[(node - 1) * 2]) frames.push(frameText(node));
  return frames;
}

function processName(number) {
  const process = figures.processes[number];
  return process ? (process.command || "process") + (process.pid ? " " + process.pid : "") : "process ?";
}

function deviceName(number) {
  const device = figures.devices[number];
  if (!device) return "no device";
  return device.logical === null ? device.uuid || "device ?" : "device " + device.logical;
}

function kindName(kind) {
  if (kind.flags & SEVERAL) return "of many kinds";
  if (kind.tag) return data.texts[kind.tag];
  if (kind.node) return frameText(kind.node);
  return kind.flags & BEFORE ? "there before the record" : data.classes[kind.class];
}

/* --- questions ------------------------------------------------------------------------------------------ */

/* How many spans had come at a moment. */
function spansBefore(moment) {
  let low = 0, high = model.from.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.from[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

function kindFilter() {
  const filter = new Uint8Array(kinds.length);
  kinds.forEach((kind, i) => { filter[i] = chosen(kind.process, kind.device) ? kind.flags & (LIVE | HELD) : 0; });
  return filter;
}

/* What was live at a moment, by kind, largest first; and what there is without a block. */
function contentsAt(moment) {
  const filter = kindFilter(), count = spansBefore(moment), rows = new Map();
  const all = { live: 0, held: 0, blocks: 0, rows: [], loose: new Map(), looseLive: 0 };
  for (let i = 0; i < count; i++) {
    const kind = model.kind[i], is = filter[kind];
    if (is === 0 || model.to[i] <= moment) continue;
    if (is & HELD) all.held += model.held[i];
    if (!(is & LIVE)) continue;
    const size = model.size[i];
    let row = rows.get(kind);
    if (!row) rows.set(kind, row = { kind: kinds[kind], bytes: 0, count: 0, largest: 0, since: model.from[i], spans: [] });
    row.bytes += size;
    row.count++;
    row.spans.push(i);
    if (size > row.largest) row.largest = size;
    all.live += size;
    all.blocks++;
  }
  for (const adjust of model.adjusts) {
    if (adjust.time > moment) break;
    if (!chosen(adjust.process, adjust.device)) continue;
    all.held += adjust.held;
    all.live += adjust.live;
    all.looseLive += adjust.live;
    all.loose.set(adjust.class, (all.loose.get(adjust.class) || 0) + adjust.held);
  }
  all.rows = [...rows.values()].sort((a, b) => b.bytes - a.bytes);
  return all;
}

/*
 * The books in `columns` equal pieces of [from, to): of each piece the lowest and highest of held and live, and,
 * when the sum over all groups was highest, its parts. `groupOf` is by kind (-1: not counted), `measure` what is summed.
 */
function sweep(from, to, columns, groups, groupOf, groupOfAdjust, measure) {
  const result = {
    heldLow: new Float64Array(columns), heldHigh: new Float64Array(columns), liveLow: new Float64Array(columns),
    liveHigh: new Float64Array(columns), parts: new Float64Array(columns * groups), at: new Float64Array(columns),
    peakHeld: 0, peakHeldAt: from, peakLive: 0, peakLiveAt: from,
  };
  const filter = kindFilter(), now = new Float64Array(groups), width = (to - from) / columns, sum = measure === "held" ? HELD : LIVE;
  let held = 0, live = 0, total = 0, best = 0, column = -1;
  const begin = (until) => {
    while (column < until) {
      column++;
      result.heldLow[column] = result.heldHigh[column] = held;
      result.liveLow[column] = result.liveHigh[column] = live;
      result.parts.set(now, column * groups);
      result.at[column] = from + column * width;
      best = total;
    }
  };
  const peaks = (time) => {
    if (held > result.peakHeld) { result.peakHeld = held; result.peakHeldAt = time; }
    if (live > result.peakLive) { result.peakLive = live; result.peakLiveAt = time; }
  };
  const { time, what, ref, kind, size, held: heldOf } = model;
  for (let i = 0; i < time.length && time[i] < to; i++) {
    let group, dHeld, dLive;
    if (what[i] === ADJUSTED) {
      const adjust = model.adjusts[ref[i]];
      if (!chosen(adjust.process, adjust.device)) continue;
      dHeld = adjust.held;
      dLive = adjust.live;
      group = groupOfAdjust(adjust);
    } else {
      const span = ref[i], is = filter[kind[span]], sign = what[i] === CAME ? 1 : -1;
      if (is === 0) continue;
      dHeld = is & HELD ? sign * heldOf[span] : 0;
      dLive = is & LIVE ? sign * size[span] : 0;
      group = groupOf[kind[span]];
    }
    const d = sum === HELD ? dHeld : dLive;
    if (time[i] > from) {
      if (column < 0) peaks(from);
      begin(Math.min(columns - 1, Math.floor((time[i] - from) / width)));
    }
    held += dHeld;
    live += dLive;
    total += d;
    if (group >= 0) now[group] += d;
    if (time[i] <= from) continue;
    peaks(time[i]);
    if (held < result.heldLow[column]) result.heldLow[column] = held;
    if (held > result.heldHigh[column]) result.heldHigh[column] = held;
    if (live < result.liveLow[column]) result.liveLow[column] = live;
    if (live > result.liveHigh[column]) result.liveHigh[column] = live;
    if (total > best) {
      best = total;
      result.parts.set(now, column * groups);
      result.at[column] = time[i];
    }
  }
  if (column < 0) peaks(from);
  begin(columns - 1);
  return result;
}

/* When the most was live, of what is chosen, and when the most was held. */
function findPeaks() {
  const none = new Int32Array(kinds.length).fill(-1);
  return sweep(-1, END + 1, 1, 1, none, () => -1, "live");
}
