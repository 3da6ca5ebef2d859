// The curves of one setting: accuracy against four measures of effort, seeds as a mean with a band or one by one.

const EFFORTS = [
  { key: "round", name: "Rounds", label: "round" },
  { key: "participations", name: "Visits", label: "client visits" },
  { key: "megabytes", name: "Traffic", label: "traffic, MB" },
  { key: "seconds", name: "Time", label: "seconds" },
];
const SEEDS = [
  { key: "mean", name: "Mean ± std" },
  { key: "each", name: "One by one" },
];

/** Radio buttons side by side. */
function choices(name, title, options, value, choose) {
  const buttons = options.map(({ key, name: text }) =>
    el("label", {}, el("input", { type: "radio", name, value: key, checked: key === value, onchange: () => choose(key) }), text));
  return el("fieldset", {}, el("legend", {}, title), el("div", { class: "choices" }, buttons));
}

/** A run's accuracy in percent against an effort; null where its curve lacks that. Of equal efforts the last test counts. */
function accuracyOf(run, effort) {
  const [x, y, visits] = [run.curve?.[effort], run.curve?.accuracy, run.curve?.participations].map(unpack);
  if (!x || !y) return null;
  const kept = x.map((_, at) => at).filter((at) => x[at] !== null && y[at] !== null && !(x[at + 1] <= x[at]));
  return { x: kept.map((at) => x[at]), y: kept.map((at) => 100 * y[at]), visits: kept.map((at) => visits[at]) };
}

/** The mean over seeds at the tests that all of them have, told apart by visits, and the sample standard deviation. */
function meanOf(curves) {
  if (curves.length === 1) return curves[0];
  const tables = curves.map((curve) => new Map(curve.visits.map((visit, at) => [visit, at])));
  const shared = curves[0].visits.filter((visit) => tables.every((table) => table.has(visit)));
  const found = { x: [], y: [], low: [], high: [] };
  for (const visit of shared) {
    const at = tables.map((table) => table.get(visit));
    const values = curves.map((curve, place) => curve.y[at[place]]);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
    found.x.push(curves.reduce((sum, curve, place) => sum + curve.x[at[place]], 0) / curves.length);
    found.y.push(mean);
    found.low.push(mean - std);
    found.high.push(mean + std);
  }
  return found;
}

function linesOf(cell, effort, seeds) {
  const done = cell.runs.filter((run) => run.status === "done");
  const shown = seeds === "each" || !done.length ? cell.runs : done; // a mean is over what ended; failing that, what there is
  const curves = shown.map((run) => accuracyOf(run, effort)).filter(Boolean).filter((curve) => curve.x.length);
  if (!curves.length) return [];
  const ended = Object.keys(cell.status).filter((status) => status !== "done");
  const label = done.length ? cell.label : `${cell.label} (${ended.join(", ")})`;
  const common = { id: cell.id, label, place: placeOf(cell.label), value: decimals(curves[0].y.at(-1), 1) };
  if (seeds === "each") return curves.map((curve, at) => ({ ...common, ...curve, thin: at > 0 }));
  const mean = meanOf(curves);
  return [{ ...common, ...mean, value: decimals(mean.y.at(-1) ?? null, 1) }];
}

function renderCurves() {
  const groups = chosen();
  const form = document.getElementById("axes");
  const host = document.getElementById("plot");
  if (!groups.length) {
    form.replaceChildren();
    host.chart?.destroy();
    host.chart = null;
    host.replaceChildren(el("p", { class: "empty" }, "Nothing to draw."));
    return;
  }
  const { setting, cells } = groups.find(({ setting: other }) => other.id === state.setting) ?? groups[0];
  const select = el("select", { name: "setting", onchange: (event) => change({ setting: event.target.value }) },
    groups.map(({ setting: other }) => el("option", { value: other.id, selected: other === setting }, `${describe(other)} · ${describeRest(other)}`)));
  refill(form,
    el("label", { class: "field" }, "Setting", select),
    choices("x", "Accuracy against", EFFORTS, state.x, (x) => change({ x })),
    choices("seeds", "Seeds", SEEDS, state.seeds, (seeds) => change({ seeds })),
  );
  const effort = EFFORTS.find(({ key }) => key === state.x) ?? EFFORTS[1];
  const ordered = [...cells].sort((one, two) => (two.best?.mean ?? -1) - (one.best?.mean ?? -1));
  const lines = ordered.flatMap((cell) => linesOf(cell, effort.key, state.seeds));
  chart(host, lines, {
    title: `Test accuracy against ${effort.label}, ${describe(setting)}`,
    xLabel: effort.label,
    yLabel: "test accuracy, %",
    height: innerWidth < 700 ? 300 : 460,
    hidden: state.hide.split(",").filter(Boolean),
    onToggle: (hidden) => change({ hide: hidden.join(",") }),
  });
  const missing = cells.length - new Set(lines.map((line) => line.id)).size;
  const words = lines.length ? "Drag to zoom, double-click to go back." : "No run of this setting has a curve yet.";
  host.append(el("p", { class: "hint" }, words, missing && lines.length ? ` Without a curve: ${missing}.` : ""));
}
