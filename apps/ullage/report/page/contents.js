/* contents.js: what was live at the moment that is held. */
"use strict";

const SHOWN = 40;
const DRIVER = 1;

function stackCell(node) {
  const frames = stackOf(node);
  if (frames.length === 0) return null;
  if (frames.length === 1) return element("span", frames[0]);
  const details = element("details"), list = element("ol");
  details.append(element("summary", frames[0]));
  for (const frame of frames) list.append(element("li", frame));
  details.append(list);
  return details;
}

function sizeCell(value, most) {
  const cell = element("span", bytes(value)), share = element("span", null, "share");
  cell.title = count(value) + " bytes";
  share.style.width = Math.max(1, value / most * 100) + "%";
  cell.append(share);
  return cell;
}

function singleBlocks(at) {
  const spans = [];
  for (const row of at.rows) for (const span of row.spans) spans.push(span);
  spans.sort((a, b) => model.size[b] - model.size[a] || a - b);
  return spans.slice(0, SHOWN).map((span) => ({ kind: kinds[model.kind[span]], bytes: model.size[span], count: 1, largest: model.size[span], since: model.from[span] }));
}

function contentsRows(at, single) {
  const rows = single ? singleBlocks(at) : at.rows.slice(0, SHOWN), most = rows.length ? rows[0].bytes : 1;
  const processes = figures.processes.length > 1, devices = figures.devices.length > 1 && view.device < 0;
  const columns = [["Size", "number"]];
  if (!single) columns.push(["Blocks", "number"], ["Largest", "number minor"]);
  columns.push([single ? "Age" : "Oldest", "number"]);
  columns.push(["Tag", "text"], ["Class", "minor"]);
  if (processes) columns.push(["Process", "text"]);
  if (devices) columns.push(["Device", ""]);
  columns.push(["Allocated by", "text stack"]);
  return table(columns, rows.map((row) => {
    const { kind } = row, cells = [sizeCell(row.bytes, most)];
    if (!single) cells.push(count(row.count), bytes(row.largest));
    cells.push(kind.flags & BEFORE ? "older than the record" : duration((view.moment - row.since) / 1e9));
    cells.push(kind.flags & SEVERAL ? "many kinds" : kind.tag ? data.texts[kind.tag] : null);
    cells.push(data.classes[kind.class]);
    if (processes) cells.push(processName(kind.process));
    if (devices) cells.push(deviceName(kind.device));
    cells.push(stackCell(kind.node));
    return cells;
  }));
}

/* Held without a block: contexts, code, reserves; and what was summed up for want of room. */
function looseText(at) {
  const parts = [];
  for (const [number, value] of at.loose) if (value > 0) parts.push(data.classes[number] + " " + bytes(value));
  let text = parts.length ? "Held besides, without a block: " + parts.join(", ") + "." : "";
  if (at.looseLive > 0) text += " Live besides, in blocks too small to be told apart in this page: " + bytes(at.looseLive) + ".";
  return text.trim();
}

function drawContents() {
  const at = contentsAt(view.moment), place = byId("contents"), single = byId("single").value !== "";
  const peak = view.moment === peaks.peakLiveAt ? ", the peak" : "";
  byId("moment").textContent = "at " + momentText(view.moment, (view.to - view.from) / 1000) + peak + ": " + bytes(at.live) + " in " +
    count(at.blocks) + (at.blocks === 1 ? " block" : " blocks") + ", " + bytes(at.held) + " held";
  const parts = at.rows.length ? [contentsRows(at, single)] : [element("p", "Nothing was live at this moment.", "empty")];
  const shown = single ? at.blocks : at.rows.length, loose = looseText(at);
  if (shown > SHOWN) parts.push(element("p", "The largest " + SHOWN + " of " + count(shown) + ".", "quiet hint"));
  if (loose) parts.push(element("p", loose, "quiet hint"));
  place.replaceChildren(...parts);
  return at;
}
