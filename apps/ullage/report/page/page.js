/* page.js: the headline and tables from the figures, and what happens when something else is to be shown. */
"use strict";

/* --- the headline --------------------------------------------------------------------------------------- */

function card(id, name, value, more, mood) {
  const made = element("div", null, "card" + (mood ? " " + mood : "")), shown = element("div", value, "value");
  shown.id = "figure-" + id;
  made.append(element("div", name, "name"), shown);
  if (more) made.append(element("div", more, "more"));
  return made;
}

function sizeCard(id, name, value, more, mood) {
  const made = card(id, name, bytes(value), more, mood);
  if (value !== null) { made.lastElementChild.title = made.children[1].title = count(value) + " bytes"; made.children[1].dataset.bytes = value; }
  return made;
}

/* The device whose figures are the job's: the one that came to hold most. */
function mainDevice() {
  let main = 0;
  figures.devices.forEach((device, i) => { if (device.peak_bytes > figures.devices[main].peak_bytes) main = i; });
  return figures.devices.length ? main : -1;
}

const MOODS = { leak: "bad", cache: "", steady: "good", unknown: "warn" };

function verdictCard(id, name, kind, confidence) {
  return card(id, name, kind, kind === "unknown" ? "" : percent(confidence) + " sure", MOODS[kind]);
}

function drawSummary() {
  const device = figures.devices[mainDevice()], budget = device ? device.budget_bytes : null, several = figures.devices.length > 1;
  const cards = [
    sizeCard("peak", several ? "Peak held, " + deviceName(mainDevice()) : "Peak held", figures.peak_bytes,
      budget ? percent(figures.peak_bytes / budget) + " of the budget" : "at " + duration(figures.peak_seconds)),
    sizeCard("live", "Peak live", figures.live_peak_bytes, figures.peak_bytes ? percent(figures.live_peak_bytes / figures.peak_bytes) + " of the peak held" : ""),
  ];
  const average = figures.average_bytes;
  cards.push(sizeCard("average", "Average held", average, figures.peak_to_average === null ? "" : "peak ÷ average " + figures.peak_to_average.toFixed(2)));
  cards.push(budget ? sizeCard("budget", "Budget", budget, device.total_bytes ? "of a card of " + bytes(device.total_bytes) : "")
    : card("budget", "Budget", "none", device && device.total_bytes ? "a card of " + bytes(device.total_bytes) : ""));
  if (figures.suggested_bytes !== null)
    cards.push(sizeCard("suggested", device && device.stopped_short ? "Limit to set, or more" : "Limit to set", figures.suggested_bytes,
      (device && device.stopped_short ? "it would have got further with " : "the smallest that would have run: ") + bytesUp(figures.smallest_bytes) +
      (figures.alone ? "; alone on the card, it needs none" : "")));
  cards.push(verdictCard("verdict", "Device memory", figures.verdict, figures.confidence));
  if (figures.processes.some((process) => process.host_peak_bytes !== null))
    cards.push(verdictCard("host-verdict", "Host memory", figures.host_verdict, figures.host_confidence));
  if (figures.fragmentation !== null)
    cards.push(card("fragmentation", "Fragmentation", percent(figures.fragmentation), "15 % and more is high", figures.fragmentation > 0.15 ? "warn" : ""));
  if (figures.latency_seconds.p50 !== null)
    cards.push(card("latency", "Allocation takes", duration(figures.latency_seconds.p50), "99 % within " + duration(figures.latency_seconds.p99) + ", longest " +
      duration(figures.latency_seconds.max), figures.latency_seconds.p99 > 0.05 ? "warn" : ""));
  byId("summary").append(...cards);
}

function drawHead() {
  const name = figures.command || figures.job || figures.file.replace(/^.*\/(?=.)/, "");
  byId("title").textContent = name.replace(/^\/\S*\/(?=\S)/, "");
  byId("title").title = name;
  document.title = name + " – ullage report";
  const parts = [figures.file];
  if (figures.job && figures.job !== name) parts.unshift("job " + figures.job);
  if (figures.started_unix_seconds !== null) parts.push(new Date(figures.started_unix_seconds * 1000).toLocaleString());
  parts.push("lasted " + duration(figures.seconds), count(figures.events) + (figures.events === 1 ? " event" : " events"));
  if (figures.origin === "torch") parts.push("a snapshot of PyTorch's");
  byId("meta").textContent = parts.join(" · ");
  byId("footer").textContent = "Made by ullage " + figures.ullage + " as one file: nothing is loaded from elsewhere.";
}

function note(text, mood) {
  byId("notes").append(element("li", text, "note " + (mood || "")));
}

function drawNotes() {
  const pressure = figures.pressure, lost = pressure.refusals - pressure.refusals_survived;
  if (figures.truncated) note("The file is cut short at byte " + count(figures.truncated_offset) + ": this is what there is.", "warn");
  if (figures.torn_blocks) note(count(figures.torn_blocks) + " parts of the file were being written when their writer was killed, and are missing.", "warn");
  if (figures.dropped) note(count(figures.dropped) + " events were lost because they came too fast to be written: figures are a little too low or too high.", "warn");
  if (lost > 0) note(count(lost) + (lost === 1 ? " request was" : " requests were") + " refused and the program did not go on after it.", "bad");
  if (pressure.refusals_survived) note(count(pressure.refusals_survived) + (pressure.refusals_survived === 1 ? " request was" : " requests were") +
    " refused and the program went on, likely with slower algorithms." + (pressure.more_bytes ? " " + bytesUp(pressure.more_bytes) + " more would have granted " + (pressure.refusals_survived === 1 ? "it." : "them.") : ""), "warn");
  if (pressure.waited_requests) note(count(pressure.waited_requests) + (pressure.waited_requests === 1 ? " request" : " requests") + " had to wait for memory, " +
    duration(pressure.waited_seconds) + " in all.", "");
  if (data.folded) note("The " + count(data.folded) + " smallest and shortest blocks are in the curves, but not one by one.", "");
}

function drawEvidence() {
  const about = [["Device memory: " + figures.verdict, figures.evidence], ["Host memory: " + figures.host_verdict, figures.host_evidence]];
  for (const [heading, evidence] of about) {
    if (!evidence.length) continue;
    const made = element("div"), list = element("ul");
    for (const sentence of evidence) list.append(element("li", sentence));
    made.append(element("h3", heading), list);
    byId("evidence").append(made);
  }
  byId("verdict").hidden = !byId("evidence").children.length;
}

/* --- tables --------------------------------------------------------------------------------------------- */

function drawDevices() {
  const rows = figures.devices.map((device, i) => [deviceName(i), device.name, bytes(device.total_bytes), device.budget_bytes ? bytes(device.budget_bytes) : "none",
    bytes(device.peak_bytes), bytes(device.live_peak_bytes), bytes(device.average_bytes), bytes(device.suggested_bytes), percent(device.fragmentation)]);
  byId("devices").lastElementChild.append(rows.length ? table([["Device", ""], ["Name", "text"], ["Memory", "number"], ["Budget", "number"], ["Peak held", "number"],
    ["Peak live", "number"], ["Average", "number"], ["Limit to set", "number"], ["Fragmentation", "number"]], rows) : element("p", "The record names no device.", "empty"));
}

function drawProcesses() {
  const processes = figures.processes.map((process, i) => [process, i]).sort((a, b) => b[0].peak_bytes - a[0].peak_bytes), most = 200;
  const rows = processes.slice(0, most).map(([process]) => [process.command || "–", process.pid || null, bytes(process.peak_bytes), bytes(process.live_peak_bytes),
    count(process.allocations), count(process.frees), count(process.refusals), bytes(process.host_peak_bytes), process.exit_code]);
  const place = byId("processes").lastElementChild;
  place.append(rows.length ? table([["Command", "text"], ["Pid", "number"], ["Peak held", "number"], ["Peak live", "number"], ["Allocations", "number"],
    ["Frees", "number"], ["Refused", "number"], ["Host peak", "number"], ["Exit code", "number"]], rows) : element("p", "The record names no process.", "empty"));
  if (processes.length > most) place.append(element("p", "The largest " + most + " of " + count(processes.length) + ".", "quiet hint"));
}

function drawRefusals() {
  const rows = rowsOf(data.refusals, 7, () => true), place = byId("refusals");
  place.hidden = rows.length === 0;
  place.lastElementChild.append(table([["When", "number"], ["Size", "number"], ["Process", "text"], ["Device", ""], ["Tag", "text"], ["After it", ""], ["Requested by", "text stack"]],
    rows.slice(0, 100).map(([time, process, device, size, survived, tag, node]) => [momentText(time, END / 1000), bytes(size), processName(process), deviceName(device),
      tag ? data.texts[tag] : null, survived ? "went on" : "no more requests", stackCell(node)])));
  if (data.refusals_count > 100) place.lastElementChild.append(element("p", count(data.refusals_count) + " in all.", "quiet hint"));
}

const DIFF_WAYS = [["tag", "tag"], ["stack", "call stack"], ["size", "size"], ["process", "process"], ["class", "class"]];

function drawDiff() {
  const diff = figures.diff, by = byId("diff-by").value, rows = diff[by] || [];
  const grown = rows.map((row) => row.after_bytes - row.before_bytes), most = Math.max(1, ...grown.map(Math.abs));
  byId("diff-table").replaceChildren(rows.length ? table([["Change", "number"], ["Before", "number"], ["Now", "number"], ["Blocks before", "number"], ["Blocks now", "number"], ["What", "text"]],
    rows.slice(0, SHOWN).map((row, i) => {
      const cell = element("span", (grown[i] > 0 ? "+" : "") + bytes(grown[i])), share = element("span", null, "share");
      share.style.width = Math.abs(grown[i]) / most * 100 + "%";
      if (grown[i] < 0) share.style.background = "var(--rest)";
      cell.append(share);
      return [cell, bytes(row.before_bytes), bytes(row.after_bytes), count(row.before_count), count(row.after_count), row.name || "–"];
    })) : element("p", "Nothing changed.", "empty"));
}

/* --- choosing ------------------------------------------------------------------------------------------- */

function fillSelect(select, options, value) {
  for (const [key, text] of options) {
    const option = element("option", text);
    option.value = key;
    select.append(option);
  }
  select.value = value;
}

/* The way of stacking that says most: classes if there are several, else tags, else who allocated. */
function usualMode() {
  const held = new Set(), tags = new Set(), functions = new Set();
  for (const kind of kinds) {
    if (kind.flags & HELD) held.add(kind.class);
    if (kind.flags & LIVE && kind.tag) tags.add(kind.tag);
    if (kind.flags & LIVE && kind.node) functions.add(kind.node);
  }
  for (const adjust of model.adjusts) held.add(adjust.class);
  const layered = kinds.some((kind) => kind.flags & LIVE && !(kind.flags & HELD));
  if (!layered && held.size > 1) return "class";
  return tags.size > 1 ? "tag" : functions.size > 1 ? "function" : figures.processes.length > 1 ? "process" : layered ? "layer" : "class";
}

function setMoment(moment) {
  view.moment = moment;
  drawTimeline();
  const at = drawContents();
  if (byId("flame-what").value === "moment") drawFlame(at);
}

function goToPeak() {
  if (!inView(peaks.peakLiveAt)) zoomTo(0, END);
  setMoment(peaks.peakLiveAt);
}

function zoomTo(from, to) {
  const least = Math.min(END, 100);
  if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
  if (from < 0) { to = Math.min(END, to - from); from = 0; }
  if (to > END) { from = Math.max(0, from - (to - END)); to = END; }
  view.from = from;
  view.to = to;
  drawTimeline();
  drawSizes();
  if (byId("flame-what").value !== "moment") drawFlame(contentsAt(view.moment));
  byId("zoom-all").disabled = from === 0 && to === END;
}

function zoomBy(factor) {
  const middle = inView(view.moment) ? view.moment : (view.from + view.to) / 2, half = (view.to - view.from) * factor / 2;
  zoomTo(middle - half, middle + half);
}

/* After another device or process was chosen. */
function choose() {
  view.device = Number(byId("device").value);
  view.process = Number(byId("process").value);
  peaks = findPeaks();
  byId("fit").checked = peaks.peakHeld > peaks.peakLive * 4;
  view.moment = Math.max(0, peaks.peakLive > 0 ? peaks.peakLiveAt : peaks.peakHeldAt);
  drawTimeline();
  drawFlame(drawContents());
  drawSizes();
}

function fillControls() {
  const devices = figures.devices.map((_, i) => [i, deviceName(i)]), most = 500;
  const processes = figures.processes.map((process, i) => [i, processName(i), process.peak_bytes]).sort((a, b) => b[2] - a[2]).slice(0, most);
  fillSelect(byId("device"), [[-1, "all devices"], ...devices], devices.length > 1 ? mainDevice() : -1);
  fillSelect(byId("process"), [[-1, "all processes"], ...processes], -1);
  byId("device").parentElement.hidden = devices.length < 2;
  byId("process").parentElement.hidden = processes.length < 2;
  const tags = kinds.some((kind) => kind.tag), stacks = kinds.some((kind) => kind.node), several = processes.length > 1;
  const useful = { tag: tags, function: stacks, process: several, "held-process": several };
  fillSelect(byId("mode"), MODES.filter(([mode]) => useful[mode] !== false), view.mode = usualMode());
  byId("device").addEventListener("change", choose);
  byId("process").addEventListener("change", choose);
  byId("mode").addEventListener("change", () => { view.mode = byId("mode").value; drawTimeline(); });
  byId("fit").addEventListener("change", drawTimeline);
  byId("zoom-in").addEventListener("click", () => zoomBy(0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(2));
  byId("zoom-all").addEventListener("click", () => zoomTo(0, END));
  byId("zoom-all").disabled = true;
  byId("go-peak").addEventListener("click", goToPeak);
  byId("single").addEventListener("change", drawContents);
  byId("flame-what").addEventListener("change", () => drawFlame(contentsAt(view.moment)));
  byId("sizes-what").addEventListener("change", drawSizes);
}

function redraw() {
  drawTimeline();
  drawSizes();
}

function start() {
  drawHead();
  drawSummary();
  drawNotes();
  drawEvidence();
  if (figures.diff) {
    byId("diff").hidden = false;
    byId("diff").firstElementChild.textContent = "What grew since " + figures.diff.file;
    fillSelect(byId("diff-by"), DIFF_WAYS, DIFF_WAYS.find(([way]) => (figures.diff[way] || []).length) ? DIFF_WAYS.find(([way]) => (figures.diff[way] || []).length)[0] : "tag");
    byId("diff-by").addEventListener("change", drawDiff);
    drawDiff();
  }
  fillControls();
  choose();
  drawDevices();
  drawProcesses();
  drawRefusals();
  watchTimeline();
  watchFlame();
  watchSizes();
  let width = byId("timeline").clientWidth;
  new ResizeObserver(() => {
    if (byId("timeline").clientWidth !== width) onFrame(redraw);
    width = byId("timeline").clientWidth;
  }).observe(byId("timeline"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.dataset.print = "yes"; redraw(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.print; redraw(); });
  document.documentElement.dataset.ready = "yes";
}

start();
