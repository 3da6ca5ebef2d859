// Filters and leaderboard. Rows are grouped by setting: only methods of one setting are compared.

const FILTERS = [
  { key: "data", name: "Dataset", of: (setting) => setting.dataset },
  { key: "noise", name: "Noise", of: (setting) => setting.noise },
  { key: "partition", name: "Partition", of: (setting) => setting.partition },
  { key: "model", name: "Model", of: (setting) => setting.model },
  { key: "scale", name: "Scale", of: (setting) => setting.scale },
];
const FILTER_KEYS = [...FILTERS.map(({ key }) => key), "method"];
const ACCURACY_NAMES = { best: "Best (oracle)", selected: "Selected", last10: "Last 10", final: "Final" };
const ACCURACY_GROUP = "Accuracy on the test split, %";
const REPAIR_FORMULA = "(method − FedAvg) / (FedAvg on clean labels − FedAvg), and 95 % interval";
const OPTIONAL_COLUMNS = ["selected", "repaired"]; // left out if no entry has a value
const STATUSES = ["done", "running", "stopped", "diverged", "failed"];

function accuracyColumn(key) {
  const title = `Accuracy of the ${DATA.tested}: ${DATA.accuracies[key]}`;
  return { key, name: ACCURACY_NAMES[key], title, group: ACCURACY_GROUP, value: (entry) => entry[key]?.mean,
    show: (entry) => accuracyCell(entry[key], entry.bold.includes(key)) };
}

function detectionColumn(key, name, title) {
  return { key, name, title, group: "Detection, %", value: (entry) => entry[key],
    show: (entry) => formatDecimal(entry[key], 1) };
}

function costColumn(key, name, title) {
  return { key, name, title, group: "Cost", value: (entry) => entry[key], ascending: true,
    show: (entry) => formatCount(entry[key]) };
}

// `value` is sorted by, `show` gives the content of the table cell; `ascending` is the first direction of sorting.
const COLUMNS = [
  { key: "label", name: "Method", value: (entry) => entry.label, ascending: true },
  ...Object.keys(ACCURACY_NAMES).map(accuracyColumn),
  { key: "forgetting", name: "Forgetting", group: ACCURACY_GROUP, value: (entry) => entry.forgetting, ascending: true,
    show: (entry) => formatDecimal(entry.forgetting, 1), title: "Best minus last 10" },
  { key: "versus", name: "vs. FedAvg", group: ACCURACY_GROUP, value: (entry) => entry.versus?.mean, show: versusCell,
    title: `${ACCURACY_NAMES[DATA.accuracy]} minus that of FedAvg, paired by seed and scenario` },
  { key: "repaired", name: "Damage repaired, %", group: ACCURACY_GROUP, value: (entry) => entry.repaired?.share,
    show: repairedCell, title: `${ACCURACY_NAMES[DATA.accuracy]}: ${REPAIR_FORMULA}` },
  detectionColumn("clients_f1", "Clients F1", "F1 of detected noisy clients"),
  detectionColumn("samples_f1", "Samples F1", "F1 of detected mislabeled samples"),
  { key: "labels_after", name: "Given → corrected", group: "Label accuracy, %", value: (entry) => entry.labels_after,
    show: labelAccuracyCell, title: "Training labels equal to the clean labels, before and after correction" },
  costColumn("participations", "Participations", "Local updates of clients"),
  costColumn("megabytes", "MB", "Traffic in both directions, in megabytes"),
  costColumn("seconds", "Seconds", "Training time without evaluation"),
  { key: "status", name: "Status", group: "", value: (entry) => -(entry.status.done ?? 0), show: statusCell,
    ascending: true },
].filter(({ key }) => !OPTIONAL_COLUMNS.includes(key) || [...ENTRIES.values()].some((entry) => entry[key]));

/** Bold: significantly better than all other methods of the setting, by paired sign-flip tests. */
function accuracyCell(result, isBold) {
  if (!result) return DASH;
  const mean = formatDecimal(result.mean);
  const std = result.std === null ? "" : ` ± ${formatDecimal(result.std)}`;
  return [isBold ? el("b", {}, mean) : mean, el("span", { class: "small" }, `${std} (${result.n})`)];
}

function versusCell(entry) {
  if (entry.reference) return DASH;
  if (entry.method === DATA.baseline) return el("span", { class: "small" }, "baseline");
  const { mean = null, n, verdict } = entry.versus ?? {};
  if (mean === null) return el("span", { title: verdict }, DASH);
  const direction = mean > 0 ? "higher" : mean < 0 ? "lower" : "";
  const count = el("span", { class: "small" }, ` (${n})`);
  return el("span", { class: direction, title: verdict }, formatSigned(mean), count);
}

function repairedCell(entry) {
  if (!entry.repaired) return DASH;
  const { share, interval } = entry.repaired;
  const ends = interval ? ` (${interval.map((end) => formatDecimal(end, 1)).join(" to ")})` : "";
  return el("span", { title: ends.trim() }, formatDecimal(share, 1), el("span", { class: "small interval" }, ends));
}

function labelAccuracyCell(entry) {
  if (entry.labels_after === null) return DASH;
  return `${formatDecimal(entry.labels_before, 1)} → ${formatDecimal(entry.labels_after, 1)}`;
}

function statusCell(entry) {
  return STATUSES.filter((status) => entry.status[status]).flatMap((status) => {
    const count = entry.status[status];
    if (status === "done") return [el("span", { class: "small" }, `${count} done `)];
    const isUnfinished = status === "running" || status === "stopped";
    const suffix = isUnfinished ? ` ${progressPercent(entry, status)} %` : count > 1 ? ` ${count}` : "";
    return [el("span", { class: `status ${status}` }, status + suffix), " "];
  });
}

/** Progress of the slowest run with this status, by participations. */
function progressPercent(entry, status) {
  const runs = entry.runs.filter((run) => run.status === status);
  const fractions = runs.map((run) => (run.curve?.participations.at(-1) ?? 0) / entry.setting.budget);
  return Math.min(100, Math.floor(100 * Math.min(...fractions)));
}

/** Settings and their entries that match the filters. */
function filteredSettings() {
  return DATA.settings
    .filter((setting) => FILTERS.every(({ key, of }) => !state[key] || of(setting) === state[key]))
    .map((setting) => ({
      setting, entries: setting.entries.filter(({ method }) => !state.method || method === state.method),
    }))
    .filter(({ entries }) => entries.length);
}

function renderFilters() {
  const methods = [...ENTRIES.values()].map((entry) => entry.method);
  const fields = [...FILTERS.map(({ key, name, of }) => [key, name, DATA.settings.map(of)]),
    ["method", "Method", methods]];
  const selects = fields.map(([key, name, values]) => {
    const options = ["", ...[...new Set(values)].sort()].map((value) =>
      el("option", { value, selected: value === state[key] }, value || "all"));
    const onchange = (event) => setState({ [key]: event.target.value });
    return el("label", { class: "field" }, name, el("select", { name: key, onchange }, options));
  });
  const reset = () => setState(Object.fromEntries(FILTER_KEYS.map((key) => [key, ""])));
  replaceChildrenKeepFocus(document.getElementById("filters"), ...selects,
    el("button", { type: "button", name: "reset", onclick: reset }, "Reset"));
}

function renderLeaderboard() {
  const column = COLUMNS.find(({ key }) => key === state.sort) ?? COLUMNS[1];
  const sign = state.direction === "ascending" ? 1 : -1;
  const compare = (one, two) => {
    if (one.reference !== two.reference) return one.reference - two.reference; // references are last
    const [a, b] = [column.value(one), column.value(two)];
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b); // missing values are last in both directions
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b) || one.label.localeCompare(two.label);
  };
  const groups = filteredSettings();
  const message = ENTRIES.size ? "No results match these filters." : "No runs found.";
  const bodies = groups.map(({ setting, entries }) => tableBody(setting, entries.sort(compare)));
  document.getElementById("leaderboard-table").replaceChildren(
    bodies.length ? el("table", {}, tableHead(column), bodies) : el("p", { class: "empty" }, message));
}

function tableHead(sorted) {
  const groups = [];
  for (const { group } of COLUMNS) {
    if (groups.length && groups.at(-1).group === group) groups.at(-1).span += 1;
    else groups.push({ group, span: 1 });
  }
  const groupRow = groups.map(({ group, span }) =>
    el("th", { colspan: span, scope: "colgroup", class: group ? "group-start" : "" }, group));
  const names = COLUMNS.map((column, index) => {
    const isSorted = column === sorted;
    const ascending = isSorted ? state.direction !== "ascending" : column.ascending;
    const onclick = () => sortBy(column.key, ascending ? "ascending" : "descending");
    const attributes = { type: "button", "data-sort": column.key, title: column.title, onclick };
    return el("th", { scope: "col", "aria-sort": isSorted ? state.direction : null, class: groupStart(index) },
      el("button", attributes, column.name));
  });
  return el("thead", {}, el("tr", {}, groupRow), el("tr", {}, names));
}

function sortBy(sort, direction) {
  setState({ sort, direction });
  document.querySelector(`[data-sort="${sort}"]`).focus();
}

function groupStart(index) {
  return index > 0 && COLUMNS[index].group !== COLUMNS[index - 1].group ? "group-start" : "";
}

function tableBody(setting, entries) {
  const showCurves = () => {
    setState({ setting: setting.id });
    document.getElementById("curves").scrollIntoView();
  };
  const bar = el("span", { class: "bar" },
    el("span", { class: "name" }, describeSetting(setting)),
    el("span", { class: "small" }, describeBudget(setting)),
    el("button", { type: "button", onclick: showCurves }, "curves"));
  const title = el("tr", { class: "setting" }, el("th", { colspan: COLUMNS.length, scope: "rowgroup" }, bar));
  const rows = entries.map((entry) => tableRow(entry));
  return el("tbody", { class: "setting", "data-setting": setting.id }, title, rows);
}

function tableRow(entry) {
  const open = () => setState({ cell: entry.id, run: "" });
  const onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) adjacentRow(event.currentTarget, step)?.focus();
    else if (event.key === "Enter" || event.key === " ") open();
    else return;
    event.preventDefault();
  };
  // Narrow screens show the status below the label: its column is far to the right.
  const badges = statusCell(entry).filter((node) => node.classList?.contains("status"));
  const oracle = entry.oracle ? el("sup", { title: `Oracle: ${entry.oracle}` }, "oracle") : "";
  const reference = entry.reference ? el("sup", { title: "Trained on clean labels; no competitor" }, "reference") : "";
  const label = el("span", {}, entry.label, oracle, reference, el("span", { class: "narrow", "aria-hidden": "true" }, badges));
  const name = el("span", { class: "method" }, legendSample(styleIndex(entry.label)), label);
  const cells = COLUMNS.slice(1).map(({ show }, index) => el("td", { class: groupStart(index + 1) }, show(entry)));
  const attributes = { class: "entry", tabindex: 0, "data-entry": entry.id, "aria-haspopup": "dialog" };
  return el("tr", { ...attributes, onclick: open, onkeydown }, el("th", { scope: "row" }, name), cells);
}

function adjacentRow(row, step) {
  const rows = [...document.querySelectorAll("#leaderboard-table tr.entry")];
  return rows[rows.indexOf(row) + step];
}
