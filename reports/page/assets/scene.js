// The world of a run: who holds how much of which class, how much of it is wrong, and matrices as shaded tables.

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

/** From blue (all right) to vermilion (all wrong), which colour-blind readers tell apart. */
function noiseColour(share) {
  const mix = (from, to) => Math.round(from + (to - from) * share);
  return `rgb(${mix(0, 213)} ${mix(114, 94)} ${mix(178, 0)})`;
}

/** Bubbles by client and true class, the area by samples, the colour by wrong labels; below them the wrong labels as bars. */
function scenePicture(scene) {
  const canvas = el("canvas", { role: "img" });
  const readout = el("p", { class: "readout" });
  const noisy = [...scene.noisy].filter((flag) => flag === "1").length;
  const words = `${scene.clients} clients, ${noisy} noisy; ${amount(Math.min(...scene.sizes))} to ${amount(Math.max(...scene.sizes))} samples each; the largest bubble stands for ${amount(scene.largest)}.`;
  canvas.setAttribute("aria-label", `Samples by client and class. ${words}`);
  readout.textContent = words;
  const draw = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    const rows = Math.max(110, Math.min(260, 18 * scene.classes));
    const bars = 60;
    const [left, bottom] = [34, 16];
    canvas.style.height = `${rows + bars + bottom + 14}px`;
    canvas.width = width * devicePixelRatio;
    canvas.height = (rows + bars + bottom + 14) * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    const [step, rise] = [(width - left) / scene.clients, rows / scene.classes];
    canvas.clientAt = (x) => Math.floor((x - left) / step);
    for (let client = 0; client < scene.clients; client += 1) {
      pen.fillStyle = noiseColour(scene.wrong[client] / 100);
      for (let label = 0; label < scene.classes; label += 1) {
        const level = LEVELS.indexOf(scene.counts[client * scene.classes + label]) / 63;
        if (level) mark(pen, left + step * (client + 0.5), rows - rise * (label + 0.5), step, rise, level);
      }
      const height = (bars * scene.wrong[client]) / 100;
      pen.fillRect(left + step * client + 0.1 * step, rows + 12 + bars - height, Math.max(0.8 * step, 0.7), height);
    }
    frame(pen, scene, { left, rows, bars, step, rise, width });
  };
  canvas.addEventListener("pointermove", (event) => {
    const client = canvas.clientAt?.(event.offsetX);
    const inside = client >= 0 && client < scene.clients;
    readout.textContent = inside ? `Client ${client}: ${amount(scene.sizes[client])} samples, ${decimals(scene.wrong[client], 1)} % of the labels wrong.` : words;
  });
  canvas.addEventListener("pointerleave", () => { readout.textContent = words; });
  new ResizeObserver(draw).observe(canvas);
  return [canvas, readout];
}

/** A bubble; where there is no room for one, a rectangle of that strength. */
function mark(pen, x, y, step, rise, level) {
  const room = Math.min(step, rise);
  if (room >= 4) {
    pen.beginPath();
    pen.arc(x, y, Math.max(0.7, 0.5 * Math.min(Math.max(step, 4), rise, 16) * Math.sqrt(level)), 0, 2 * Math.PI);
    pen.fill();
    return;
  }
  pen.globalAlpha = 0.15 + 0.85 * level;
  pen.fillRect(x - step / 2, y - rise / 2, Math.max(step, 0.7), Math.max(rise, 0.7));
  pen.globalAlpha = 1;
}

function frame(pen, scene, { left, rows, bars, step, rise, width }) {
  pen.fillStyle = pen.strokeStyle = themed("soft");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const every = Math.ceil(14 / rise);
  for (let label = 0; label < scene.classes; label += every) pen.fillText(label, left - 6, rows - rise * (label + 0.5));
  pen.fillText("100", left - 6, rows + 17);
  pen.fillText("0", left - 6, rows + 9 + bars);
  pen.textBaseline = "top";
  pen.textAlign = "center";
  const apart = [1, 2, 5, 10, 20, 50, 100, 200].find((count) => count * step >= 28) ?? 500;
  for (let client = 0; client < scene.clients; client += apart) pen.fillText(client, left + step * (client + 0.5), rows + bars + 15);
  pen.globalAlpha = 0.5;
  pen.fillRect(left, rows + 12 + bars, width - left, 1);
  pen.globalAlpha = 1;
}

/** Percentages by row as a shaded table. */
function heat(shares, caption, titles) {
  const rows = shares.map((line, truth) =>
    el("tr", {}, el("th", { scope: "row" }, String(truth)), line.map((share, label) =>
      el("td", { style: `--share: ${Math.round(share)}`, class: share > 55 ? "strong" : "", title: titles?.[truth][label] }, share >= 0.5 ? Math.round(share).toString() : ""))));
  const head = el("tr", {}, el("td", { style: "background: none" }), shares.map((_, label) => el("th", { scope: "col" }, String(label))));
  return el("div", { class: "scroll", tabindex: 0, style: "border: 0" }, el("table", { class: "heat", style: "width: auto" }, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, rows)));
}

function confusionTable(confusion) {
  if (confusion.recall) {
    const order = confusion.recall.map((share, label) => [share, label]).sort(([one], [two]) => one - two);
    const list = (pairs) => pairs.map(([share, label]) => `${label} (${decimals(share, 0)} %)`).join(", ");
    return el("p", {}, `Worst recognised classes: ${list(order.slice(0, 10))}. Best: ${list(order.slice(-5).reverse())}.`);
  }
  const shares = confusion.counts.map((line) => {
    const all = line.reduce((sum, count) => sum + count, 0) || 1;
    return line.map((count) => (100 * count) / all);
  });
  const titles = confusion.counts.map((line, truth) => line.map((count, label) => `true ${truth}, taken for ${label}: ${count}`));
  return heat(shares, "Share of the true class (row) taken for each class (column), %", titles);
}
