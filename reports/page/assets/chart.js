// Line charts by uPlot with a legend of toggle buttons, a tooltip, and a cursor that arrow keys move.

const MARKERS_PER_LINE = 10;
const MIN_WIDTH = 200;
const FONT = "system-ui, sans-serif";

/**
 * Draw lines into `host`.
 *
 * A line has id, label, style (index), x, y and value (text in the legend), optionally low and high (band), and thin.
 * Lines of one id share a legend entry.
 * Options: title, xLabel, yLabel, height; optionally range, stages, hidden (ids) and onToggle.
 */
function drawChart(host, lines, options) {
  host.chart?.destroy();
  const label = `${options.title}. Arrow keys move the cursor.`;
  const canvas = el("div", { class: "canvas", tabindex: 0, role: "group", "aria-label": label });
  const legend = el("div", { class: "legend" });
  host.replaceChildren(el("div", { class: "chart" }, canvas, legend));
  const hidden = new Set(options.hidden ?? []);
  const columns = buildSeries(lines, hidden);
  const plot = createPlot(canvas, lines, columns, options);
  const observer = new ResizeObserver(() => plot.setSize(plotSize(canvas, options)));
  observer.observe(canvas);
  legend.append(...buildLegend(lines, hidden, {
    toggle: (ids, visible) => {
      for (const id of ids) hidden[visible ? "delete" : "add"](id);
      plot.batch(() => columns.ids.forEach((id, index) => {
        if (ids.includes(id)) plot.setSeries(index, { show: visible });
      }));
      options.onToggle?.([...hidden]);
    },
    focus: (id) => plot.setSeries(id === null ? null : columns.ids.indexOf(id), { focus: true }),
  }));
  host.chart = {
    plot,
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
  };
}

/** Series of uPlot: one per line, followed by the edges of its band. `lines` has null for x and for edges. */
function buildSeries(lines, hidden) {
  const columns = { series: [{}], bands: [], ids: [null], lines: [null] };
  for (const line of lines) {
    const show = !hidden.has(line.id);
    columns.series.push(lineSeries(line, show));
    columns.ids.push(line.id);
    columns.lines.push(line);
    if (!line.low) continue;
    const edge = { show, stroke: "transparent", points: { show: false } };
    columns.series.push({ ...edge }, { ...edge });
    columns.ids.push(line.id, line.id);
    columns.lines.push(null, null);
    const last = columns.series.length - 1;
    columns.bands.push({ series: [last, last - 1], fill: bandColor(line.style) });
  }
  return columns;
}

function createPlot(canvas, lines, columns, options) {
  const tooltip = el("div", { class: "tooltip", hidden: true, "aria-live": "polite" });
  const tables = lines.map((line) => [line.x, line.y, ...(line.low ? [line.low, line.high] : [])]);
  let focused = null;
  const plot = new uPlot(
    {
      ...plotSize(canvas, options),
      legend: { show: false },
      padding: [options.stages ? 22 : 10, 22, 0, 0],
      scales: { x: { time: false }, y: options.range ? { range: options.range } : {} },
      axes: chartAxes(options),
      series: columns.series,
      bands: columns.bands,
      focus: { alpha: 0.25 },
      cursor: {
        dataIdx: nearestIndex,
        focus: { prox: 20 },
        drag: { x: true, y: false },
        points: { show: (u, index) => columns.lines[index] !== null && cursorPoint(u, index) },
      },
      hooks: {
        setCursor: [(u) => updateTooltip(u, tooltip, columns.lines, focused, options)],
        setSeries: [(u, index, change) => { if ("focus" in change) focused = columns.lines[index] ?? null; }],
        draw: options.stages ? [(u) => drawStages(u, options.stages)] : [],
      },
    },
    tables.length ? uPlot.join(tables) : [[]],
    canvas,
  );
  canvas.querySelector(".u-over").append(tooltip);
  canvas.addEventListener("keydown", (event) => moveCursor(plot, event));
  canvas.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
  return plot;
}

function plotSize(canvas, options) {
  return { width: Math.max(canvas.clientWidth, MIN_WIDTH), height: options.height };
}

function lineSeries(line, show) {
  const color = lineColor(line.style);
  const markers = { size: 8, stroke: color, fill: color, width: 0 };
  return {
    show,
    label: line.label,
    stroke: color,
    width: line.thin ? 1 : 2,
    dash: lineDash(line.style),
    points: line.thin ? { show: false }
      : { show: true, ...markers, filter: markerFilter(line.style), paths: markerPaths(line.style) },
  };
}

function chartAxes(options) {
  const grid = { stroke: themeColor("line"), width: 1 };
  const font = `12px ${FONT}`;
  const values = (u, ticks) => ticks.map((tick) => (tick === null ? "" : groupThousands(tick)));
  const common = { stroke: themeColor("soft"), grid, ticks: { ...grid, size: 5 }, font, labelFont: font, values };
  return [
    { ...common, label: options.xLabel, labelSize: 22, size: 34 },
    { ...common, label: options.yLabel, labelSize: 20, size: 44 },
  ];
}

/** Choose the points of a line that get markers. The offset depends on the style, so that lines differ. */
function markerFilter(style) {
  return (u, column) => {
    const { min, max } = u.scales.x;
    const visible = [];
    u.data[column].forEach((value, index) => {
      if (!isMissing(value) && u.data[0][index] >= min && u.data[0][index] <= max) visible.push(index);
    });
    const step = Math.max(1, Math.ceil(visible.length / MARKERS_PER_LINE));
    return visible.filter((_, position) => position % step === (3 * style) % step);
  };
}

function markerPaths(style) {
  return (u, column, first, last, indices) => {
    const path = new Path2D();
    for (const index of indices ?? []) {
      const x = u.valToPos(u.data[0][index], "x", true);
      const y = u.valToPos(u.data[column][index], "y", true);
      path.addPath(new Path2D(markerPath(style, x, y, 4.5 * devicePixelRatio)));
    }
    return { fill: path, stroke: null, clip: null, flags: 3 };
  };
}

/** Lines have different x values: use the nearest point of each line, and none beyond its ends. */
function nearestIndex(u, column, index) {
  const values = u.data[column];
  if (!isMissing(values[index])) return index;
  let [left, right] = [index, index];
  while (left >= 0 && isMissing(values[left])) left -= 1;
  while (right < values.length && isMissing(values[right])) right += 1;
  if (left < 0 || right >= values.length) return null;
  const x = u.data[0];
  return x[index] - x[left] <= x[right] - x[index] ? left : right;
}

function cursorPoint(u, column) {
  const point = el("div", { class: "u-cursor-pt" });
  point.style.cssText = `width:7px;height:7px;margin:-3.5px 0 0 -3.5px;background:${u.series[column].stroke()}`;
  return point;
}

/** Show the values of all visible lines at the cursor, largest first. */
function updateTooltip(u, tooltip, lines, focused, options) {
  const { left, top, idx, idxs } = u.cursor;
  const found = [];
  lines.forEach((line, column) => {
    if (!line || !u.series[column].show || isMissing(idxs?.[column])) return;
    const value = u.data[column][idxs[column]];
    if (isMissing(value)) return;
    const std = line.low ? ` ± ${formatDecimal(u.data[column + 2][idxs[column]] - value)}` : "";
    found.push({ line, value, text: formatDecimal(value) + std });
  });
  tooltip.hidden = left < 0 || idx === null || !found.length;
  if (tooltip.hidden) return;
  found.sort((one, two) => two.value - one.value);
  const rows = found.map(({ line, text }) => el("div", { class: line === focused ? "focused" : "" },
    legendSample(line.style), el("span", {}, line.label), text));
  const title = el("div", { class: "small" }, `${options.xLabel} ${formatCount(u.data[0][idx])}`);
  tooltip.replaceChildren(title, ...rows);
  const { clientWidth: width, clientHeight: height } = u.over;
  const isRight = left > width / 2;
  tooltip.style.left = isRight ? "auto" : `${left + 14}px`;
  tooltip.style.right = isRight ? `${width - left + 14}px` : "auto";
  tooltip.style.top = `${Math.max(-8, Math.min(top - 20, height - tooltip.offsetHeight))}px`;
}

function moveCursor(plot, event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  const x = plot.data[0];
  if (!(event.key in steps) || !x.length) return;
  event.preventDefault();
  const stride = Math.max(1, Math.round(x.length / 60));
  const target = (plot.cursor.idx ?? 0) + steps[event.key] * stride;
  const index = Math.max(0, Math.min(x.length - 1, target));
  plot.setCursor({ left: plot.valToPos(x[index], "x"), top: plot.over.clientHeight / 2 });
}

/** Mark the start of each stage by a vertical line, with its name above if there is space. */
function drawStages(u, stages) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = themeColor("soft");
  ctx.font = `${11 * devicePixelRatio}px ${FONT}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let textEnd = -Infinity;
  for (const { start, name } of stages) {
    const x = u.valToPos(start, "x", true);
    if (x > bbox.left + bbox.width) continue;
    if (x > bbox.left + 1) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    if (x < textEnd) continue;
    const textStart = Math.max(x, bbox.left) + 3;
    ctx.fillText(name, textStart, bbox.top - 8);
    textEnd = textStart + ctx.measureText(name).width + 7 * devicePixelRatio;
  }
  ctx.restore();
}

/** Buttons that show or hide lines, and two for all lines if there are more than four. */
function buildLegend(lines, hidden, { toggle, focus }) {
  const buttons = new Map();
  const press = (ids, visible) => {
    toggle(ids, visible);
    for (const id of ids) buttons.get(id).setAttribute("aria-pressed", visible);
  };
  for (const { id, style, label, value } of lines) {
    if (buttons.has(id)) continue;
    const attributes = { type: "button", "aria-pressed": String(!hidden.has(id)), "data-id": id };
    const button = el("button", attributes,
      legendSample(style), el("span", {}, label), el("span", { class: "small" }, value));
    button.addEventListener("click", () => press([id], button.getAttribute("aria-pressed") === "false"));
    button.addEventListener("mouseenter", () => focus(id));
    button.addEventListener("mouseleave", () => focus(null));
    buttons.set(id, button);
  }
  if (!buttons.size) return [];
  const all = [...buttons.keys()];
  const tools = el("div", { class: "tools" },
    el("button", { type: "button", onclick: () => press(all, true) }, "Show all"),
    el("button", { type: "button", onclick: () => press(all, false) }, "Hide all"),
    el("span", { class: "grow" }), el("span", { class: "small" }, "last value"));
  return [...(all.length > 4 ? [tools] : []), el("ul", {}, [...buttons.values()].map((node) => el("li", {}, node)))];
}
