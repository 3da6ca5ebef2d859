// Detail view of a leaderboard entry: runs, noise detection, label correction, scenario, cost and configuration.

const DETECTION_SCORES = {
  "clients/f1": "noisy clients, F1",
  "clients/precision": "noisy clients, precision",
  "clients/recall": "noisy clients, recall",
  "samples/f1": "mislabeled samples, F1",
  "samples/precision": "mislabeled samples, precision",
  "samples/recall": "mislabeled samples, recall",
};
const CORRECTION_SCORES = {
  "labels/accuracy_after": "accuracy of current labels",
  "labels/accuracy_before": "accuracy of given labels",
  "memorization/wrong": "mislabeled: given label predicted",
  "memorization/true": "mislabeled: true class predicted",
};
const COST_LABELS = {
  participations: "participations",
  queries: "client queries (no training)",
  models_down: "models sent to clients",
  models_up: "models received from clients",
  bytes_down: "sent to clients, MB",
  bytes_up: "received from clients, MB",
  samples_trained: "samples trained",
  samples_scored: "samples scored (with second views)",
  dropped_models: "non-finite models dropped",
};
const TIME_LABELS = {
  seconds_method: "training time, s",
  seconds_evaluation: "evaluation time, s",
  peak_memory_mb: "peak memory, MB",
  executor: "executor",
  workers: "workers",
};
const RUN_COLUMNS = ["", "best (oracle), %", "best round", "selected, %", "last 10, %", "final, %", "status", "run"];
const PARTICIPATIONS = "client participations";

function section(title, ...children) {
  return el("section", {}, el("h3", {}, title), ...children);
}

function renderDetail() {
  const dialog = document.getElementById("detail");
  const entry = ENTRIES.get(state.cell);
  for (const host of dialog.querySelectorAll(".lines")) host.chart?.destroy();
  if (!entry) {
    if (dialog.open) dialog.close();
    dialog.replaceChildren();
    return;
  }
  const run = entry.runs.find(({ id }) => id === state.run) ?? entry.runs[0];
  const body = el("div", { class: "body" });
  dialog.replaceChildren(detailHead(entry, () => dialog.close()), body);
  if (!dialog.open) dialog.showModal(); // Charts need the width of an open dialog.
  const accuracy = el("div", { class: "lines" });
  body.append(
    runsSection(entry, run),
    section("Test accuracy", accuracy),
    scoreSection("Noise detection", DETECTION_SCORES, "Not estimated by this method.", run),
    scoreSection("Label correction and memorization", CORRECTION_SCORES, "Not recorded.", run),
    scenarioSection(run),
    el("div", { class: "two" }, confusionSection(run), costSection(run)),
    rerunSection(entry, run),
    configurationSection(entry),
  );
  drawAccuracy(run, accuracy);
}

function detailHead(entry, close) {
  return el("div", { class: "head" },
    el("div", { class: "line" },
      el("h2", { id: "detail-title" }, entry.label), el("span", { class: "grow" }),
      el("button", { type: "button", "aria-label": "Close", onclick: close }, "✕")),
    el("p", { class: "soft" }, describeSetting(entry.setting)),
    el("p", { class: "hint" }, describeBudget(entry.setting)));
}

function runsSection(entry, selected) {
  const head = RUN_COLUMNS.map((name) => el("th", { scope: "col" }, name));
  const rows = entry.runs.map((run) => runRow(run, run === selected, entry.runs.length > 1));
  const parts = [scrollTable(el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))];
  if (selected.reason) parts.push(el("p", { class: "problem" }, `${selected.status}: ${selected.reason}`));
  if (entry.oracle) parts.push(el("p", { class: "problem" }, `Oracle: ${entry.oracle}.`));
  if (entry.reference) parts.push(el("p", { class: "hint" }, "Reference: trained on the clean labels of the scenario."));
  if (entry.versus) {
    const { mean, n, verdict } = entry.versus;
    const text = `${ACCURACY_NAMES[DATA.accuracy]} minus that of FedAvg: ${formatSigned(mean)} (${formatNumberOf(n, "pair")}); ${verdict}.`;
    parts.push(el("p", { class: "hint" }, text));
  }
  return section("Runs", ...parts);
}

function runRow(run, isSelected, isSelectable) {
  const select = () => setState({ run: run.id });
  const attributes = { type: "radio", name: "run", checked: isSelected, "aria-label": `seed ${run.seed}` };
  const button = isSelectable ? el("input", { ...attributes, onchange: select }) : "";
  const values = [formatPercent(run.best), formatCount(run.best_round), formatPercent(run.selected),
    formatPercent(run.last10), formatPercent(run.final), run.status];
  return el("tr", { "aria-selected": isSelected ? "true" : null, onclick: select },
    el("th", { scope: "row" }, button, ` seed ${run.seed}`),
    values.map((value) => el("td", {}, value)), el("td", { class: "small" }, run.id));
}

/** Names and starts of the stages of a run, in participations; null for a single stage. */
function runStages(run) {
  const { participations = [], stages = [] } = run.curve ?? {};
  const found = [];
  let evaluations = 0;
  for (const [name, count] of stages) {
    found.push({ name, start: evaluations ? participations[evaluations - 1] : 0 });
    evaluations += count;
  }
  return found.length > 1 ? found : null;
}

function drawAccuracy(run, host) {
  const curve = accuracyCurve(run, "participations");
  if (!curve) {
    host.replaceChildren(el("p", { class: "empty" }, "No evaluations yet."));
    return;
  }
  const value = formatDecimal(curve.y.at(-1), 1);
  const line = { ...curve, id: "accuracy", label: "test accuracy", style: 0, value };
  const labels = { title: "Test accuracy", xLabel: PARTICIPATIONS, yLabel: "%" };
  drawChart(host, [line], { ...labels, height: 250, range: accuracyRange, stages: runStages(run) });
}

function scoreSection(title, labels, emptyText, run) {
  const x = run.curve?.participations;
  const lines = Object.entries(labels).flatMap(([id, label], style) => {
    const y = run.curve?.scores[id]?.map((value) => (value === null ? null : 100 * value));
    if (!y) return [];
    return [{ id, label, style, x, y, value: formatDecimal(y.findLast((value) => value !== null), 1) }];
  });
  if (!lines.length) return section(title, el("p", { class: "soft" }, emptyText));
  const host = el("div", { class: "lines" });
  const options = { title, xLabel: PARTICIPATIONS, yLabel: "%", height: 240, range: [0, 100], stages: runStages(run) };
  requestAnimationFrame(() => drawChart(host, lines, options));
  return section(title, host);
}

function scenarioSection(run) {
  const { noise_rate: rate, convention, hash, index } = run.scenario;
  const scenario = DATA.scenarios[index];
  const facts = [];
  if (rate !== null) facts.push(`Noise rate ${formatPercent(rate, 1)} %.`);
  if (convention) facts.push(convention);
  if (hash) facts.push(`Scenario ${hash}.`);
  const parts = [el("p", { class: "hint" }, facts.join(" "))];
  if (!scenario) parts.push(el("p", { class: "soft" }, "No figure: scenario.npz is missing."));
  else parts.push(...scenarioFigure(scenario));
  if (scenario?.transition) {
    const caption = "Percentage of the true class (row) with each given label (column)";
    parts.push(el("details", {}, el("summary", {}, "Label transition matrix"), heatMap(scenario.transition, caption)));
  }
  return section("Scenario", ...parts);
}

function confusionSection(run) {
  return run.confusion ? section("Confusion matrix of the last evaluation", confusionTable(run.confusion)) : "";
}

function costSection(run) {
  const rows = Object.entries(COST_LABELS).filter(([name]) => !isMissing(run.cost[name])).map(([name, label]) =>
    [label, formatCount(name.startsWith("bytes") ? run.cost[name] / 1e6 : run.cost[name])]);
  for (const [name, label] of Object.entries(TIME_LABELS)) {
    const value = run.time[name];
    if (value !== undefined) rows.push([label, typeof value === "number" ? formatCount(value) : value]);
  }
  if (!rows.length) return section("Cost", el("p", { class: "soft" }, "Available when the run has finished."));
  return section("Cost", el("dl", {}, rows.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)])));
}

function rerunSection(entry, run) {
  const command = el("pre", { tabindex: 0, id: "command" }, `${entry.command} seed=${run.seed}`);
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command); // No access to the clipboard: select the text instead.
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return section("Command", command, button);
}

function configurationSection(entry) {
  const rows = Object.entries(entry.config).map(([key, value]) => ({ key, value, preset: entry.defaults[key] }));
  const table = el("tbody");
  const search = el("input", {
    type: "search", placeholder: "search keys and values", "aria-label": "Search the configuration",
  });
  const onlyChanged = el("input", { type: "checkbox" });
  const fill = () => {
    const query = search.value.trim().toLowerCase();
    const found = rows.filter(({ key, value, preset }) =>
      (!onlyChanged.checked || preset !== undefined) && `${key}=${value}`.toLowerCase().includes(query));
    table.replaceChildren(...found.map(configurationRow));
    const message = onlyChanged.checked && !query ? "No differences from the defaults." : "No matches.";
    if (!found.length) table.append(el("tr", {}, el("td", { colspan: 3, class: "soft" }, message)));
  };
  search.addEventListener("input", fill);
  onlyChanged.addEventListener("change", fill);
  fill();
  const count = Object.keys(entry.defaults).length;
  return section("Configuration",
    el("div", { class: "config-tools" }, search, el("label", {}, onlyChanged, `only non-default values (${count})`)),
    el("div", { class: "scroll config", tabindex: 0 }, el("table", {}, table)));
}

function configurationRow({ key, value, preset }) {
  const isDefault = preset === undefined;
  return el("tr", { class: isDefault ? "" : "changed" },
    el("td", {}, key), el("td", {}, value), el("td", { class: "small" }, isDefault ? "" : `default ${preset}`));
}
