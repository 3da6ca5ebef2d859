// The filters and the leaderboard: a body of rows per setting, so that only what shares a world stands side by side.

const FILTERS = [
  { key: "data", name: "Data set", of: (setting) => setting.dataset },
  { key: "noise", name: "Noise", of: (setting) => setting.noise },
  { key: "partition", name: "Partition", of: (setting) => setting.partition },
  { key: "model", name: "Network", of: (setting) => setting.model },
  { key: "scale", name: "Scale", of: (setting) => setting.scale },
];

const COLUMNS = [
  { key: "label", name: "Method", value: (cell) => cell.label, rising: true },
  { key: "best", name: "Best", group: "Accuracy, %", value: (cell) => cell.best?.mean, show: (cell, top) => spread(cell, "best", top), title: "Highest test accuracy of a run" },
  { key: "last10", name: "Last 10", group: "Accuracy, %", value: (cell) => cell.last10?.mean, show: (cell, top) => spread(cell, "last10", top), title: "Mean of a run's last ten tests" },
  { key: "final", name: "Final", group: "Accuracy, %", value: (cell) => cell.final?.mean, show: (cell, top) => spread(cell, "final", top), title: "The last test" },
  { key: "versus", name: "vs FedAvg", group: "Accuracy, %", value: (cell) => cell.versus?.mean, show: versus, title: "Best accuracy minus FedAvg's, seed by seed in the same scene" },
  { key: "clients_f1", name: "Clients F1", group: "Detection, %", value: (cell) => cell.clients_f1, title: "Noisy clients found" },
  { key: "samples_f1", name: "Labels F1", group: "Detection, %", value: (cell) => cell.samples_f1, title: "Wrong labels found" },
  { key: "labels_after", name: "Before → after", group: "Labels right, %", value: (cell) => cell.labels_after, show: corrected, title: "Right training labels as given, and as the method left them" },
  { key: "participations", name: "Visits", group: "Cost", value: (cell) => cell.participations, show: (cell) => amount(cell.participations), rising: true, title: "Client visits that train a model" },
  { key: "megabytes", name: "MB", group: "Cost", value: (cell) => cell.megabytes, show: (cell) => amount(cell.megabytes), rising: true, title: "Traffic up and down, in megabytes" },
  { key: "seconds", name: "Seconds", group: "Cost", value: (cell) => cell.seconds, show: (cell) => amount(cell.seconds), rising: true, title: "Time in the method, tests aside" },
  { key: "status", name: "Status", group: "", value: (cell) => -(cell.status.done ?? 0), show: statuses, rising: true },
];

function spread(cell, name, top) {
  const found = cell[name];
  if (!found) return DASH;
  const value = decimals(found.mean);
  const rest = (found.std === null ? "" : ` ± ${decimals(found.std)}`) + ` (${found.n})`;
  return [found.mean === top[name] ? el("b", {}, value) : value, el("span", { class: "small" }, rest)];
}

function versus(cell) {
  if (cell.method === DATA.baseline) return el("span", { class: "small" }, "baseline");
  if (!cell.versus || cell.versus.mean === null) return el("span", { title: cell.versus?.words }, DASH);
  const value = cell.versus.mean;
  return el("span", { class: value > 0 ? "up" : value < 0 ? "down" : "", title: cell.versus.words }, signed(value), el("span", { class: "small" }, ` (${cell.versus.n})`));
}

function corrected(cell) {
  if (cell.labels_after === null) return DASH;
  return `${decimals(cell.labels_before, 1)} → ${decimals(cell.labels_after, 1)}`;
}

function statuses(cell) {
  return ["done", "running", "stopped", "diverged", "failed"].filter((status) => cell.status[status]).flatMap((status) => {
    const count = cell.status[status];
    if (status === "done") return [el("span", { class: "small" }, `${count} done `)];
    const much = status === "running" || status === "stopped" ? ` ${progress(cell, status)} %` : count > 1 ? ` ${count}` : "";
    return [el("span", { class: `status ${status}` }, status + much), " "];
  });
}

/** How far the slowest unfinished run of a cell is, by its visits. */
function progress(cell, status) {
  const shares = cell.runs.filter((run) => run.status === status).map((run) => (unpack(run.curve?.participations)?.at(-1) ?? 0) / cell.setting.budget);
  return Math.min(100, Math.floor(100 * Math.min(...shares)));
}

/** Settings and cells that pass the filters. */
function chosen() {
  return DATA.settings
    .filter((setting) => FILTERS.every(({ key, of }) => !state[key] || of(setting) === state[key]))
    .map((setting) => ({ setting, cells: setting.cells.filter((cell) => !state.method || cell.method === state.method) }))
    .filter(({ cells }) => cells.length);
}

function renderFilters() {
  const methods = [...new Set([...CELLS.values()].map((cell) => cell.method))];
  const fields = [...FILTERS.map(({ key, name, of }) => [key, name, [...new Set(DATA.settings.map(of))]]), ["method", "Method", methods]];
  const selects = fields.map(([key, name, options]) => {
    const choices = [["", "all"], ...options.sort().map((option) => [option, option])];
    const select = el("select", { name: key, onchange: (event) => change({ [key]: event.target.value }) },
      choices.map(([value, text]) => el("option", { value, selected: value === state[key] }, text)));
    return el("label", { class: "field" }, name, select);
  });
  const reset = () => change(Object.fromEntries(fields.map(([key]) => [key, ""])));
  refill(document.getElementById("filters"), ...selects, el("button", { type: "button", name: "reset", onclick: reset }, "Reset"));
}

function renderBoard() {
  const column = COLUMNS.find(({ key }) => key === state.sort) ?? COLUMNS[1];
  const factor = state.direction === "ascending" ? 1 : -1;
  const order = (one, two) => {
    const [a, b] = [column.value(one) ?? null, column.value(two) ?? null];
    if (a === null || b === null) return (a === null) - (b === null); // nothing comes last either way
    return factor * (typeof a === "string" ? a.localeCompare(b) : a - b) || one.label.localeCompare(two.label);
  };
  const groups = chosen();
  const board = document.getElementById("board");
  if (!groups.length) {
    const why = CELLS.size ? "No cell passes these filters." : "No run yet.";
    board.replaceChildren(el("p", { class: "empty" }, why));
    return;
  }
  board.replaceChildren(el("table", {}, head(column), groups.map(({ setting, cells }) => body(setting, [...cells].sort(order)))));
}

function head(sorted) {
  const groups = [];
  for (const { group } of COLUMNS) {
    if (groups.length && groups.at(-1).group === group) groups.at(-1).span += 1;
    else groups.push({ group, span: 1 });
  }
  const above = groups.map(({ group, span }) => el("th", { colspan: span, scope: "colgroup", class: group ? "starts" : "" }, group ?? ""));
  const names = COLUMNS.map((column, place) => {
    const here = column === sorted;
    const turned = here ? (state.direction === "ascending" ? "descending" : "ascending") : column.rising ? "ascending" : "descending";
    const button = el("button", { type: "button", "data-sort": column.key, title: column.title, onclick: () => sortBy(column.key, turned) }, column.name);
    return el("th", { scope: "col", "aria-sort": here ? state.direction : null, class: starts(place) }, button);
  });
  return el("thead", {}, el("tr", {}, above), el("tr", {}, names));
}

function sortBy(sort, direction) {
  change({ sort, direction });
  document.querySelector(`[data-sort="${sort}"]`).focus();
}

function starts(place) {
  return place > 0 && COLUMNS[place].group !== COLUMNS[place - 1].group ? "starts" : "";
}

function body(setting, cells) {
  const top = {};
  for (const name of ["best", "last10", "final"]) top[name] = Math.max(...setting.cells.map((cell) => cell[name]?.mean ?? -Infinity));
  const show = () => {
    change({ setting: setting.id });
    document.getElementById("curves").scrollIntoView();
  };
  const bar = el("span", { class: "bar" }, el("span", { class: "name" }, describe(setting)), el("span", { class: "small" }, describeRest(setting)),
    el("button", { type: "button", onclick: show }, "curves"));
  const title = el("tr", { class: "setting" }, el("th", { colspan: COLUMNS.length, scope: "rowgroup" }, bar));
  return el("tbody", { class: "setting", "data-setting": setting.id }, title, cells.map((cell) => row(cell, top)));
}

function row(cell, top) {
  const open = () => change({ cell: cell.id, run: "" });
  const unfinished = statuses(cell).filter((node) => node.classList?.contains("status"));
  const oracle = cell.oracle ? el("sup", { title: `Oracle: ${cell.oracle}` }, "oracle") : "";
  const label = el("span", {}, cell.label, oracle, el("span", { class: "narrow", "aria-hidden": "true" }, unfinished));
  const name = el("th", { scope: "row" }, el("span", { class: "method" }, swatch(placeOf(cell.label)), label));
  const cells = COLUMNS.slice(1).map(({ show, value }, place) => el("td", { class: starts(place + 1) }, show ? show(cell, top) : decimals(value(cell), 1)));
  const keys = (event) => {
    if (event.key === "Enter" || event.key === " ") open();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") neighbour(event.currentTarget, event.key === "ArrowDown" ? 1 : -1)?.focus();
    else return;
    event.preventDefault();
  };
  return el("tr", { class: "cell", tabindex: 0, "data-cell": cell.id, "aria-haspopup": "dialog", onclick: open, onkeydown: keys }, name, cells);
}

function neighbour(row, step) {
  const rows = [...document.querySelectorAll("#board tr.cell")];
  return rows[rows.indexOf(row) + step];
}
