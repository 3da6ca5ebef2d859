// Figure of a scenario (samples by client and class, noise rates) and heat maps of matrices.

const LEFT = 34; // width of the labels of classes, in pixels
const GAP = 12; // between bubbles and bars
const BAR_HEIGHT = 60;
const FOOTER = 18; // height of the labels of clients

/** From blue (noise rate 0) to vermilion (1), a color-blind-safe pair. */
function noiseColor(fraction) {
  const mix = (from, to) => Math.round(from + (to - from) * fraction);
  return `rgb(${mix(0, 213)} ${mix(114, 94)} ${mix(178, 0)})`;
}

/** Canvas and caption: bubbles by client and class above bars of the noise rates. */
function scenarioFigure(scenario) {
  const clients = scenario.counts.length;
  const sizes = scenario.counts.map(sum);
  const [smallest, largest] = [Math.min, Math.max].map((pick) => formatCount(pick(...sizes)));
  const summary = `${clients} clients, ${scenario.num_noisy} noisy, ${smallest} to ${largest} samples per client. `
    + `x: client, y: true class; bubble area: samples (at most ${formatCount(largestCount(scenario))}), `
    + "color: noise rate (also shown as bars, in percent).";
  const canvas = el("canvas", { role: "img", "aria-label": `Samples by client and class. ${summary}` });
  const caption = el("p", { class: "caption" }, summary);
  const clientAt = (x) => Math.floor((x - LEFT) / ((canvas.clientWidth - LEFT) / clients));
  canvas.addEventListener("pointermove", (event) => {
    const client = clientAt(event.offsetX);
    if (client < 0 || client >= clients) caption.textContent = summary;
    else {
      const rate = formatDecimal(scenario.noise_rates[client], 1);
      caption.textContent = `Client ${client}: ${formatCount(sizes[client])} samples, noise rate ${rate} %.`;
    }
  });
  canvas.addEventListener("pointerleave", () => { caption.textContent = summary; });
  new ResizeObserver(() => drawScenario(canvas, scenario)).observe(canvas);
  return [canvas, caption];
}

function largestCount(scenario) {
  return Math.max(1, ...scenario.counts.flat());
}

function drawScenario(canvas, scenario) {
  const width = canvas.clientWidth;
  if (!width) return;
  const [clients, classes] = [scenario.counts.length, scenario.counts[0].length];
  const largest = largestCount(scenario);
  const bottom = Math.max(110, Math.min(260, 18 * classes)); // of the bubbles
  const height = bottom + GAP + BAR_HEIGHT + FOOTER;
  canvas.style.height = `${height}px`;
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  const context = canvas.getContext("2d");
  context.scale(devicePixelRatio, devicePixelRatio);
  const [columnWidth, rowHeight] = [(width - LEFT) / clients, bottom / classes];
  for (let client = 0; client < clients; client += 1) {
    const rate = scenario.noise_rates[client] / 100;
    context.fillStyle = noiseColor(rate);
    for (let label = 0; label < classes; label += 1) {
      const fraction = scenario.counts[client][label] / largest;
      const center = [LEFT + columnWidth * (client + 0.5), bottom - rowHeight * (label + 0.5)];
      if (fraction) drawBubble(context, ...center, columnWidth, rowHeight, fraction);
    }
    const barHeight = BAR_HEIGHT * rate;
    const barTop = bottom + GAP + BAR_HEIGHT - barHeight;
    context.fillRect(LEFT + columnWidth * (client + 0.1), barTop, Math.max(0.8 * columnWidth, 0.7), barHeight);
  }
  drawAxes(context, scenario, { width, bottom, columnWidth, rowHeight });
}

/** Draw a bubble, or a rectangle of that opacity if there is no space for bubbles. */
function drawBubble(context, x, y, columnWidth, rowHeight, fraction) {
  if (Math.min(columnWidth, rowHeight) >= 4) {
    const radius = 0.5 * Math.min(columnWidth, rowHeight, 16) * Math.sqrt(fraction);
    context.beginPath();
    context.arc(x, y, Math.max(0.7, radius), 0, 2 * Math.PI);
    context.fill();
    return;
  }
  context.globalAlpha = 0.15 + 0.85 * fraction;
  const corner = [x - columnWidth / 2, y - rowHeight / 2];
  context.fillRect(...corner, Math.max(columnWidth, 0.7), Math.max(rowHeight, 0.7));
  context.globalAlpha = 1;
}

function drawAxes(context, scenario, { width, bottom, columnWidth, rowHeight }) {
  const barBottom = bottom + GAP + BAR_HEIGHT;
  context.fillStyle = themeColor("soft");
  context.font = `11px ${FONT}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const classStep = Math.ceil(14 / rowHeight);
  for (let label = 0; label < scenario.counts[0].length; label += classStep) {
    context.fillText(label, LEFT - 6, bottom - rowHeight * (label + 0.5));
  }
  context.fillText("100", LEFT - 6, bottom + GAP + 5);
  context.fillText("0", LEFT - 6, barBottom - 3);
  context.textAlign = "center";
  context.textBaseline = "top";
  const clientStep = [1, 2, 5, 10, 20, 50, 100, 200].find((count) => count * columnWidth >= 28) ?? 500;
  for (let client = 0; client < scenario.counts.length; client += clientStep) {
    context.fillText(client, LEFT + columnWidth * (client + 0.5), barBottom + 4);
  }
  context.globalAlpha = 0.5;
  context.fillRect(LEFT, barBottom, width - LEFT, 1);
  context.globalAlpha = 1;
}

/** A table of row percentages with shaded cells. `titles` are the tooltips. */
function heatMap(percentages, caption, titles) {
  const cell = (value, title) => {
    const attributes = { style: `--percentage: ${Math.round(value)}`, class: value > 55 ? "dark" : "", title };
    return el("td", attributes, value >= 0.5 ? Math.round(value).toString() : "");
  };
  const rows = percentages.map((values, row) => el("tr", {},
    el("th", { scope: "row" }, String(row)), values.map((value, column) => cell(value, titles?.[row][column]))));
  const names = percentages.map((_, column) => el("th", { scope: "col" }, String(column)));
  const table = el("table", { class: "heat-map" }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("td", { class: "corner" }), names)), el("tbody", {}, rows));
  return el("div", { class: "scroll plain", tabindex: 0 }, table);
}

/** Confusion matrix; for many classes only those with the lowest and highest recall. */
function confusionTable({ counts, recall }) {
  if (recall) {
    const ranked = recall.map((value, label) => [value, label]).sort(([one], [two]) => one - two);
    const list = (pairs) => pairs.map(([value, label]) => `${label} (${formatDecimal(value, 0)} %)`).join(", ");
    const highest = list(ranked.slice(-5).reverse());
    return el("p", {}, `Classes with the lowest recall: ${list(ranked.slice(0, 10))}. Highest: ${highest}.`);
  }
  const percentages = counts.map((row) => {
    const total = sum(row) || 1;
    return row.map((count) => (100 * count) / total);
  });
  const titles = counts.map((row, truth) =>
    row.map((count, predicted) => `true class ${truth}, predicted ${predicted}: ${count}`));
  return heatMap(percentages, "Percentage of the true class (row) predicted as each class (column)", titles);
}
