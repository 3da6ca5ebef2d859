// Learning curves of the methods of one setting.

const X_AXES = [
  { key: "round", name: "Rounds", label: "round" },
  { key: "participations", name: "Participations", label: "client participations" },
  { key: "megabytes", name: "Traffic", label: "traffic, MB" },
  { key: "seconds", name: "Time", label: "time, s" },
];
const SEED_MODES = [
  { key: "mean", name: "Mean ± std" },
  { key: "each", name: "Individual" },
];

/** A row of radio buttons. */
function radioButtons(name, title, options, selected, choose) {
  const buttons = options.map(({ key, name: text }) => el("label", {},
    el("input", { type: "radio", name, value: key, checked: key === selected, onchange: () => choose(key) }), text));
  return el("fieldset", {}, el("legend", {}, title), el("div", { class: "choices" }, buttons));
}

/** Accuracy of a run in percent against a cost, or null. Of evaluations at the same cost the last is used. */
function accuracyCurve(run, cost) {
  const { [cost]: x, accuracy: y, participations } = run.curve ?? {};
  if (!x || !y) return null;
  const kept = [...x.keys()].filter((index) =>
    x[index] !== null && y[index] !== null && !(x[index + 1] <= x[index]));
  return {
    x: kept.map((index) => x[index]),
    y: kept.map((index) => 100 * y[index]),
    participations: kept.map((index) => participations[index]),
  };
}

/** Limits of the vertical axis: the accuracies with a margin, within 0 to 100 percent. */
function accuracyRange(plot, lowest, highest) {
  if (lowest === null) return [0, 100];
  const [low, high] = uPlot.rangeNum(lowest, highest, 0.1, true);
  return [Math.max(low, 0), Math.min(high, 100)];
}

/** Point of a curve at a number of participations, by linear interpolation. */
function pointAt({ x, y, participations }, count) {
  const next = participations.findIndex((value) => value >= count);
  const last = Math.max(next - 1, 0);
  const width = participations[next] - participations[last];
  const part = width ? (count - participations[last]) / width : 0;
  return { x: x[last] + part * (x[next] - x[last]), y: y[last] + part * (y[next] - y[last]) };
}

/** Mean and sample standard deviation over seeds, where all runs have evaluations before and after. */
function meanCurve(curves) {
  if (curves.length === 1) return curves[0];
  const counts = curves.map(({ participations }) => participations);
  const first = Math.max(...counts.map((list) => list[0]));
  const last = Math.min(...counts.map((list) => list.at(-1)));
  const shared = [...new Set(counts.flat())].filter((count) => count >= first && count <= last);
  const found = { x: [], y: [], low: [], high: [] };
  for (const count of shared.sort((one, two) => one - two)) {
    const points = curves.map((curve) => pointAt(curve, count));
    const mean = sum(points.map(({ y }) => y)) / points.length;
    const std = Math.sqrt(sum(points.map(({ y }) => (y - mean) ** 2)) / (points.length - 1));
    found.x.push(sum(points.map(({ x }) => x)) / points.length);
    found.y.push(mean);
    found.low.push(mean - std);
    found.high.push(mean + std);
  }
  return found;
}

/** Lines of a leaderboard entry. The mean is over done runs, or over all if none is done. */
function entryLines(entry, cost, seedMode) {
  const done = entry.runs.filter((run) => run.status === "done");
  const runs = seedMode === "each" || !done.length ? entry.runs : done;
  const curves = runs.map((run) => accuracyCurve(run, cost)).filter((curve) => curve?.x.length);
  if (!curves.length) return [];
  const statuses = Object.keys(entry.status).filter((status) => status !== "done");
  const label = done.length ? entry.label : `${entry.label} (${statuses.join(", ")})`;
  const shown = seedMode === "each" ? curves : [meanCurve(curves)];
  const value = formatDecimal(shown[0].y.at(-1), 1);
  const style = styleIndex(entry.label);
  return shown.map((curve, index) => ({ ...curve, id: entry.id, label, style, value, thin: index > 0 }));
}

function renderCurves() {
  const groups = filteredSettings();
  const form = document.getElementById("curve-options");
  const host = document.getElementById("curve-chart");
  if (!groups.length) {
    host.chart?.destroy();
    host.chart = null;
    form.replaceChildren();
    host.replaceChildren(el("p", { class: "empty" }, "No learning curves."));
    return;
  }
  const { setting, entries } = groups.find((group) => group.setting.id === state.setting) ?? groups[0];
  replaceChildrenKeepFocus(form, settingSelect(groups, setting),
    radioButtons("x", "Horizontal axis", X_AXES, state.x, (x) => setState({ x })),
    radioButtons("seeds", "Seeds", SEED_MODES, state.seeds, (seeds) => setState({ seeds })));
  const axis = X_AXES.find(({ key }) => key === state.x) ?? X_AXES[1];
  const ranked = entries.sort((one, two) => (two[DATA.accuracy]?.mean ?? -1) - (one[DATA.accuracy]?.mean ?? -1));
  const lines = ranked.flatMap((entry) => entryLines(entry, axis.key, state.seeds));
  drawChart(host, lines, {
    title: `Test accuracy against ${axis.label}, ${describeSetting(setting)}`,
    xLabel: axis.label,
    yLabel: "test accuracy, %",
    height: innerWidth < 700 ? 300 : 460,
    range: accuracyRange,
    hidden: state.hide.split(",").filter(Boolean),
    onToggle: (hidden) => setState({ hide: hidden.join(",") }),
  });
  const missing = entries.length - new Set(lines.map((line) => line.id)).size;
  const note = missing ? ` ${formatNumberOf(missing, "method")} without a curve.` : "";
  const hint = lines.length ? `Drag to zoom, double-click to reset.${note}` : "No evaluations yet.";
  host.append(el("p", { class: "hint" }, hint));
}

function settingSelect(groups, selected) {
  const options = groups.map(({ setting }) => el("option", { value: setting.id, selected: setting === selected },
    `${describeSetting(setting)} · ${describeBudget(setting)}`));
  const onchange = (event) => setState({ setting: event.target.value });
  return el("label", { class: "field" }, "Setting", el("select", { name: "setting", onchange }, options));
}
