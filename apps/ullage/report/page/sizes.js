/*
 * sizes.js: allocations by size (octaves) and by how long they lived (a third of a decade), the darker the more;
 * beside them how many of each size, above them how many of each age. What was never freed is a column of its own.
 */
"use strict";

const AGES_A_DECADE = 3, FIRST_AGE = 1e3; /* ns */
let sizesDrawn = null;

function countSizes() {
  const filter = kindFilter(), byBytes = byId("sizes-what").value === "bytes", cells = new Map();
  const counts = new Float64Array(64 * 256), sums = new Float64Array(64 * 256); /* size * 256 + age + 1 */
  const grid = { cells, number: 0, lowSize: 99, highSize: 0, lowAge: 99, highAge: 0, never: false };
  for (let i = 0; i < model.from.length; i++) {
    if (model.from[i] < view.from || model.from[i] > view.to || !(filter[model.kind[i]] & LIVE)) continue;
    const size = model.size[i] > 0 ? Math.min(63, Math.floor(Math.log2(model.size[i]))) : 0, life = model.to[i] - model.from[i];
    const age = !model.freed[i] ? -1 : Math.min(254, Math.max(0, Math.floor(Math.log10(Math.max(1, life) / FIRST_AGE) * AGES_A_DECADE)));
    counts[size * 256 + age + 1]++;
    sums[size * 256 + age + 1] += model.size[i];
  }
  counts.forEach((number, at) => {
    if (!number) return;
    const size = at >> 8, age = (at & 255) - 1, value = byBytes ? sums[at] : number;
    cells.set(at, { size, age, count: number, bytes: sums[at], value });
    grid.lowSize = Math.min(grid.lowSize, size);
    grid.highSize = Math.max(grid.highSize, size);
    if (age < 0) grid.never = true;
    else { grid.lowAge = Math.min(grid.lowAge, age); grid.highAge = Math.max(grid.highAge, age); }
    grid.number += number;
  });
  if (!grid.number) { grid.lowSize = 8; grid.highSize = 28; }
  if (grid.lowAge > grid.highAge) { grid.lowAge = 0; grid.highAge = -1; }
  /* A few cells at least, so that one kind of allocation is not a wall. */
  while (grid.highSize - grid.lowSize < 5) { grid.highSize++; if (grid.lowSize > 0) grid.lowSize--; }
  while (grid.highAge - grid.lowAge < 8) { grid.highAge++; if (grid.lowAge > 0) grid.lowAge--; }
  return grid;
}

const ageFrom = (age) => FIRST_AGE * 10 ** (age / AGES_A_DECADE) / 1e9;

const ageText = (seconds) => {
  const units = [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"]];
  const unit = units.filter((one) => seconds >= one[0] * 0.999).pop() || units[0];
  return Number((seconds / unit[0]).toPrecision(2)) + " " + unit[1];
};

function drawSizes() {
  const { g, width, height } = prepare(byId("sizes").firstElementChild), colours = palette(), grid = countSizes();
  const narrow = width < 520, side = narrow ? 50 : 120, top = 54, never = grid.never ? (narrow ? 44 : 64) : 0;
  const box = { left: 66, top, right: width - side - 10 - (never ? never + 8 : 0), bottom: height - 40 };
  const ages = grid.highAge - grid.lowAge + 1, sizes = grid.highSize - grid.lowSize + 1;
  const cellWidth = (box.right - box.left) / ages, cellHeight = (box.bottom - box.top) / sizes;
  const bySize = new Map(), byAge = new Map();
  let most = 0;
  for (const cell of grid.cells.values()) {
    most = Math.max(most, cell.value);
    bySize.set(cell.size, (bySize.get(cell.size) || 0) + cell.value);
    byAge.set(cell.age, (byAge.get(cell.age) || 0) + cell.value);
  }
  const columnOf = (age) => age < 0 ? [box.right + 8, never] : [box.left + (age - grid.lowAge) * cellWidth, cellWidth];
  const rowOf = (size) => box.bottom - (size - grid.lowSize + 1) * cellHeight;
  sizesDrawn = { grid, box, cellWidth, cellHeight, never };
  g.fillStyle = colours.grid;
  g.globalAlpha = 0.35;
  g.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  if (never) g.fillRect(box.right + 8, box.top, never, box.bottom - box.top);
  g.globalAlpha = 1;
  for (const cell of grid.cells.values()) {
    const [x, w] = columnOf(cell.age);
    g.fillStyle = "rgba(" + colours.heat + ", " + (0.12 + 0.88 * Math.log1p(cell.value) / Math.log1p(most)) + ")";
    g.fillRect(x + 0.5, rowOf(cell.size) + 0.5, Math.max(1, w - 1), Math.max(1, cellHeight - 1));
  }
  g.fillStyle = colours.c0;
  const mostSize = Math.max(1, ...bySize.values()), mostAge = Math.max(1, ...byAge.values());
  for (const [size, value] of bySize) g.fillRect(width - side, rowOf(size) + 1, Math.max(1, (side - 4) * value / mostSize), Math.max(1, cellHeight - 2));
  for (const [age, value] of byAge) {
    const [x, w] = columnOf(age), tall = Math.max(1, (top - 8) * value / mostAge);
    g.fillRect(x + 1, box.top - 5 - tall, Math.max(1, w - 2), tall);
  }
  labelSizes(g, colours, grid, box, cellWidth, cellHeight, never);
  if (!grid.number) {
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillText("No allocations in this time.", (box.left + box.right) / 2, (box.top + box.bottom) / 2);
  }
  byId("sizes-note").textContent = count(grid.number) + (grid.number === 1 ? " allocation" : " allocations") + " in the time shown. Bars: of each size (right), of each age (above)." +
    (data.folded ? " " + count(data.folded) + " more, the smallest and shortest, are not among them." : "");
}

function labelSizes(g, colours, grid, box, cellWidth, cellHeight, never) {
  g.fillStyle = colours.quiet;
  g.textAlign = "right";
  g.textBaseline = "middle";
  const every = Math.ceil(20 / cellHeight);
  for (let size = grid.lowSize; size <= grid.highSize; size += every)
    g.fillText(tickBytes(2 ** size), box.left - 8, box.bottom - (size - grid.lowSize) * cellHeight - (every > 1 ? 0 : cellHeight / 2));
  g.textAlign = "center";
  g.textBaseline = "top";
  const stride = Math.max(1, Math.ceil(58 / (cellWidth * AGES_A_DECADE)));
  for (let age = grid.lowAge; age <= grid.highAge + 1; age++) {
    if (age % (AGES_A_DECADE * stride)) continue;
    const x = box.left + (age - grid.lowAge) * cellWidth;
    if (x <= box.right - 12) g.fillText(ageText(ageFrom(age)), x, box.bottom + 6);
  }
  g.fillText("lived for", (box.left + box.right) / 2, box.bottom + 22);
  if (never) g.fillText("never", box.right + 8 + never / 2, box.bottom + 6);
  if (never) g.fillText("freed", box.right + 8 + never / 2, box.bottom + 20);
}

function watchSizes() {
  const plot = byId("sizes");
  plot.addEventListener("pointermove", (event) => {
    const { grid, box, cellWidth, cellHeight, never } = sizesDrawn, place = plot.getBoundingClientRect();
    const x = event.clientX - place.left, y = event.clientY - place.top, size = grid.lowSize + Math.floor((box.bottom - y) / cellHeight);
    const freed = x >= box.left && x < box.right, age = freed ? grid.lowAge + Math.floor((x - box.left) / cellWidth) : -1;
    const cell = freed || (never && x >= box.right + 8 && x < box.right + 8 + never) ? grid.cells.get(size * 256 + age + 1) : null;
    if (!cell) { hideTip(); return; }
    showTip(event.clientX, event.clientY, [element("b", tickBytes(2 ** size) + " to " + tickBytes(2 ** (size + 1))),
      element("p", age < 0 ? "never freed" : "lived " + (age ? ageText(ageFrom(age)) : "0") + " to " + ageText(ageFrom(age + 1))),
      element("p", count(cell.count) + (cell.count === 1 ? " allocation, " : " allocations, ") + bytes(cell.bytes))]);
  });
  plot.addEventListener("pointerleave", hideTip);
}
