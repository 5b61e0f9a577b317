;
"use strict";
const colors = { parameters: "#3b6fb6", gradients: "#d98032", master_weights: "#7b9fd0", optimizer_state: "#4b8f6b",
  state: "#8e6bb0", inputs: "#b9a13c", activations: "#5fb0c9", workspace: "#b05f7a", control: "#888", constants: "#999" };
const left = 70, right = 990, top_ = 12, bottom = 380;
const svg = document.getElementById("plot");
const count = data.seconds.length;
const total = data.seconds.map((_, i) => data.roles.reduce((sum, role) => sum + role.bytes[i], 0));
const most = Math.max(...total, data.budget - data.outside) * 1.04;
const end = data.ends[count - 1] || 1;
const x = t => left + (right - left) * t / end;
const y = bytes => bottom - (bottom - top_) * bytes / most;

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; bytes >= 1024 && i < 4; i += 1) bytes /= 1024;
  return bytes.toFixed(i > 0 ? 1 : 0) + " " + units[i];
}
function add(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  svg.append(made);
  return made;
}
function line(parent, tag, ...cells) {
  const row = document.createElement("tr");
  for (const cell of cells) {
    const made = document.createElement(tag);
    made.textContent = cell;
    if (/^[0-9.]+ ([KMGT]i)?B$/.test(cell)) made.className = "n";
    row.append(made);
  }
  parent.append(row);
}

document.getElementById("title").textContent = data.title;
document.getElementById("about").textContent = data.about;
for (let i = 0; i <= 4; i += 1) {
  const bytes = most * i / 4.16;
  add("line", { class: "axis", x1: left, x2: right, y1: y(bytes), y2: y(bytes) });
  add("text", { x: left - 6, y: y(bytes) + 4, "text-anchor": "end" }, size(bytes));
}
for (let i = 0; i <= 5; i += 1) {
  const t = end * i / 5;
  add("text", { x: x(t), y: bottom + 18, "text-anchor": i === 0 ? "start" : i === 5 ? "end" : "middle" },
    (t * 1000).toPrecision(3) + " ms");
}
const below = new Array(count).fill(0);
const legend = document.getElementById("legend");
for (const role of data.roles) {
  let up = "", down = "";
  for (let i = 0; i < count; i += 1) {
    const high = below[i] + role.bytes[i];
    up += `L${x(data.seconds[i]).toFixed(1)},${y(high).toFixed(1)}L${x(data.ends[i]).toFixed(1)},${y(high).toFixed(1)}`;
    down = `L${x(data.ends[i]).toFixed(1)},${y(below[i]).toFixed(1)}L${x(data.seconds[i]).toFixed(1)},${y(below[i]).toFixed(1)}` + down;
    below[i] = high;
  }
  add("path", { d: "M" + up.slice(1) + down + "Z", fill: colors[role.name] || "#777" });
  const item = document.createElement("li");
  const mark = document.createElement("i");
  mark.style.background = colors[role.name] || "#777";
  item.append(mark, role.name.replace(/_/g, " "));
  legend.append(item);
}
const room = data.budget - data.outside;
add("line", { class: "budget", x1: left, x2: right, y1: y(room), y2: y(room) });
add("text", { x: right, y: y(room) - 5, "text-anchor": "end" },
  "budget " + size(data.budget) + ", less " + size(data.outside) + " outside");
const now = add("line", { class: "now", x1: -9, x2: -9, y1: top_, y2: bottom });

let at = -1;
function show(place) {
  at = Math.max(0, Math.min(count - 1, place));
  const middle = (x(data.seconds[at]) + x(data.ends[at])) / 2;
  now.setAttribute("x1", middle);
  now.setAttribute("x2", middle);
  document.getElementById("where").textContent =
    `${at + 1} of ${count}: ${data.names[at]}, ${(data.seconds[at] * 1000).toFixed(2)} ms, ${size(total[at])}`;
  const table = document.getElementById("live");
  table.replaceChildren();
  line(table, "th", "size", "tensor", "for");
  const live = data.stays.filter(stay => stay[2] <= at && stay[3] >= at).sort((a, b) => b[0] - a[0]);
  for (const stay of live.slice(0, 25)) line(table, "td", size(stay[0]), stay[1], data.roles[stay[4]].name.replace(/_/g, " "));
  if (live.length > 25) line(table, "td", "", `and ${live.length - 25} more`, "");
}
svg.addEventListener("pointermove", event => {
  const box = svg.getBoundingClientRect();
  const t = ((event.clientX - box.left) / box.width * 1000 - left) / (right - left) * end;
  let low = 0, high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (data.seconds[middle] <= t) low = middle; else high = middle - 1;
  }
  show(low);
});
document.addEventListener("keydown", event => {
  if (event.key === "ArrowRight") show(at + 1);
  if (event.key === "ArrowLeft") show(at - 1);
});
show(data.peak);
</script>
</html>
