// Lines by uPlot, with a legend of buttons, the values at the pointer, and arrow keys that move it.

const MARKED = 10; // markers along a line

/**
 * Draw lines into a host. A line has id, label, place (its looks), x, y, and where there are several seeds low and high;
 * lines of one id share an entry of the legend.
 */
function chart(host, lines, options) {
  host.chart?.destroy();
  const canvas = el("div", { class: "canvas", tabindex: 0, role: "group", "aria-label": `${options.title}. Arrow keys move the cursor.` });
  const tip = el("div", { class: "tip", hidden: true, "aria-live": "polite" });
  const key = el("div", { class: "key" });
  host.replaceChildren(el("div", { class: "chart" }, canvas, key));
  const hidden = new Set(options.hidden ?? []);
  const owners = [null]; // series -> line, null for the edges of bands
  const series = [{}];
  const bands = [];
  for (const line of lines) {
    const shown = !hidden.has(line.id);
    series.push(seriesOf(line, shown));
    owners.push(line);
    if (line.low) {
      for (let edge = 0; edge < 2; edge += 1) series.push({ show: shown, stroke: "transparent", points: { show: false } });
      owners.push(null, null);
      bands.push({ series: [series.length - 1, series.length - 2], fill: faint(colourOf(line.place)) });
    }
  }
  const data = lines.length ? uPlot.join(lines.map((line) => [line.x, line.y, ...(line.low ? [line.low, line.high] : [])])) : [[]];
  let near = null;
  const plot = new uPlot(
    {
      width: Math.max(canvas.clientWidth, 200),
      height: options.height,
      legend: { show: false },
      padding: [options.stages ? 22 : 10, 22, 0, 0],
      scales: { x: { time: false }, y: options.range ? { range: options.range } : {} },
      axes: axesOf(options),
      series,
      bands,
      focus: { alpha: 0.25 },
      cursor: { dataIdx: nearest, focus: { prox: 20 }, drag: { x: true, y: false }, points: { show: (u, place) => owners[place] !== null && point(u, place) } },
      hooks: {
        setCursor: [(u) => showTip(u, tip, owners, near, options)],
        setSeries: [(u, place, change) => { if ("focus" in change) near = owners[place] ?? null; }],
        draw: options.stages ? [(u) => drawStages(u, options.stages)] : [],
      },
    },
    data,
    canvas,
  );
  canvas.querySelector(".u-over").append(tip);
  canvas.addEventListener("keydown", (event) => moveCursor(plot, event));
  canvas.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
  const toggle = (ids, visible) => {
    for (const id of ids) {
      if (visible) hidden.delete(id);
      else hidden.add(id);
    }
    let current = null;
    plot.batch(() => {
      owners.forEach((line, place) => {
        current = line ?? current;
        if (place > 0 && ids.includes(current.id)) plot.setSeries(place, { show: visible });
      });
    });
    options.onToggle?.([...hidden]);
  };
  key.append(...legend(lines, hidden, toggle, (id) => plot.setSeries(id === null ? null : owners.findIndex((line) => line?.id === id), { focus: true })));
  const observer = new ResizeObserver(() => plot.setSize({ width: Math.max(canvas.clientWidth, 200), height: options.height }));
  observer.observe(canvas);
  host.chart = {
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
    plot,
  };
}

function seriesOf(line, shown) {
  const colour = colourOf(line.place);
  return {
    show: shown,
    label: line.label,
    stroke: colour,
    width: line.thin ? 1 : 2,
    dash: dashOf(line.place),
    points: line.thin ? { show: false } : { show: true, size: 8, stroke: colour, fill: colour, width: 0, filter: marked(line.place), paths: markers(line.place) },
  };
}

function axesOf(options) {
  const look = { stroke: themed("soft"), grid: { stroke: themed("line"), width: 1 }, ticks: { stroke: themed("line"), width: 1, size: 5 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
  const values = (u, ticks) => ticks.map((tick) => (tick === null ? "" : tick.toLocaleString("en-US").replaceAll(",", "\u202f")));
  return [
    { ...look, label: options.xLabel, labelSize: 22, size: 34, values },
    { ...look, label: options.yLabel, labelSize: 20, size: 44, values },
  ];
}

/** Some points of a line in view, not the same ones as of its neighbours. */
function marked(place) {
  return (u, index) => {
    const { min, max } = u.scales.x;
    const found = [];
    u.data[index].forEach((value, at) => {
      if (value !== null && value !== undefined && u.data[0][at] >= min && u.data[0][at] <= max) found.push(at);
    });
    const step = Math.max(1, Math.ceil(found.length / MARKED));
    return found.filter((_, at) => at % step === (3 * place) % step);
  };
}

function markers(place) {
  return (u, index, first, last, chosen) => {
    const path = new Path2D();
    for (const at of chosen ?? []) {
      const x = u.valToPos(u.data[0][at], "x", true);
      const y = u.valToPos(u.data[index][at], "y", true);
      path.addPath(new Path2D(markerPath(place, x, y, 4.5 * devicePixelRatio)));
    }
    return { fill: path, stroke: null, clip: null, flags: 3 };
  };
}

/** Every line has its own x; the pointer takes each line's nearest, and none beyond its ends. */
function nearest(u, index, at) {
  const values = u.data[index];
  const there = (place) => values[place] !== null && values[place] !== undefined;
  if (there(at)) return at;
  let left = at;
  let right = at;
  while (left >= 0 && !there(left)) left -= 1;
  while (right < values.length && !there(right)) right += 1;
  if (left < 0 || right >= values.length) return null;
  const x = u.data[0];
  return x[at] - x[left] <= x[right] - x[at] ? left : right;
}

function point(u, place) {
  const size = 7;
  const dot = el("div", { class: "u-cursor-pt" });
  dot.style.cssText = `width:${size}px;height:${size}px;margin:${-size / 2}px 0 0 ${-size / 2}px;background:${u.series[place].stroke()}`;
  return dot;
}

function showTip(u, tip, owners, near, options) {
  const { left, idx, idxs } = u.cursor;
  const found = [];
  owners.forEach((line, place) => {
    if (!line || !u.series[place].show || idxs?.[place] === null || idxs?.[place] === undefined) return;
    const value = u.data[place][idxs[place]];
    if (value === null || value === undefined) return;
    const high = line.low ? u.data[place + 2][idxs[place]] : null;
    found.push({ line, value, text: decimals(value) + (high === null ? "" : ` ± ${decimals(high - value)}`) });
  });
  tip.hidden = left < 0 || idx === null || !found.length;
  if (tip.hidden) return;
  found.sort((one, two) => two.value - one.value);
  const rows = found.map(({ line, text }) => el("div", { class: line === near ? "near" : "" }, swatch(line.place), el("span", {}, line.label), text));
  tip.replaceChildren(el("div", { class: "small" }, `${options.xLabel} ${amount(u.data[0][idx])}`), ...rows);
  const over = u.over;
  const onRight = left > over.clientWidth / 2;
  tip.style.left = onRight ? "auto" : `${left + 14}px`;
  tip.style.right = onRight ? `${over.clientWidth - left + 14}px` : "auto";
  tip.style.top = `${Math.max(-8, Math.min(u.cursor.top - 20, over.clientHeight - tip.offsetHeight))}px`;
}

function moveCursor(plot, event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (!(event.key in steps) || !plot.data[0].length) return;
  event.preventDefault();
  const x = plot.data[0];
  const stride = Math.max(1, Math.round(x.length / 60));
  const from = plot.cursor.idx ?? 0;
  const at = Math.max(0, Math.min(x.length - 1, from + steps[event.key] * stride));
  plot.setCursor({ left: plot.valToPos(x[at], "x"), top: plot.over.clientHeight / 2 });
}

function drawStages(u, stages) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = themed("soft");
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let taken = -Infinity;
  for (const { from, name } of stages) {
    const x = u.valToPos(from, "x", true);
    if (x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    if (x > bbox.left + 1) ctx.stroke();
    if (x >= taken) {
      ctx.fillText(name, Math.max(x, bbox.left) + 3, bbox.top - 8);
      taken = Math.max(x, bbox.left) + ctx.measureText(name).width + 10 * devicePixelRatio;
    }
  }
  ctx.restore();
}

/** Buttons that switch lines on and off, and two for all of them. */
function legend(lines, hidden, toggle, focus) {
  const entries = new Map();
  for (const line of lines) if (!entries.has(line.id)) entries.set(line.id, line);
  const buttons = new Map();
  const press = (ids, visible) => {
    toggle(ids, visible);
    for (const id of ids) buttons.get(id).setAttribute("aria-pressed", visible);
  };
  for (const [id, line] of entries) {
    const button = el("button", { type: "button", "aria-pressed": String(!hidden.has(id)), "data-id": id },
      swatch(line.place), el("span", {}, line.label), el("span", { class: "small" }, line.value ?? ""));
    button.addEventListener("click", () => press([id], button.getAttribute("aria-pressed") === "false"));
    button.addEventListener("mouseenter", () => focus(id));
    button.addEventListener("mouseleave", () => focus(null));
    buttons.set(id, button);
  }
  if (!entries.size) return [];
  const every = [...entries.keys()];
  const tools = el("div", { class: "tools" },
    el("button", { type: "button", onclick: () => press(every, true) }, "Show all"),
    el("button", { type: "button", onclick: () => press(every, false) }, "Hide all"),
    el("span", { class: "grow" }), el("span", { class: "small" }, "last"));
  return [...(every.length > 4 ? [tools] : []), el("ul", {}, [...buttons.values()].map((button) => el("li", {}, button)))];
}
