// One cell in a drawer: its seeds, what it detected and corrected, its world, its cost, its configuration, its command.

const DETECTION = { "clients/f1": "noisy clients, F1", "clients/precision": "noisy clients, precision", "clients/recall": "noisy clients, recall", "samples/f1": "wrong labels, F1", "samples/precision": "wrong labels, precision", "samples/recall": "wrong labels, recall" };
const CORRECTION = { "labels/accuracy_after": "labels right, now", "labels/accuracy_before": "labels right, as given", "memorised/wrong": "wrong labels memorised", "memorised/true": "their true classes predicted" };
const COSTS = { participations: "client visits", contacts: "visits that train nothing", models_down: "models sent", models_up: "models received", bytes_down: "sent, MB", bytes_up: "received, MB", samples_trained: "samples trained on", samples_scored: "samples scored", dropped_models: "models dropped as not finite" };
const TIMES = { seconds_method: "seconds in the method", seconds_evaluation: "seconds in tests", peak_memory_mb: "peak memory, MB", executor: "executor", workers: "workers" };

function renderDetail() {
  const dialog = document.getElementById("detail");
  const cell = CELLS.get(state.cell);
  for (const host of dialog.querySelectorAll(".lines")) host.chart?.destroy();
  if (!cell) {
    if (dialog.open) dialog.close();
    dialog.replaceChildren();
    return;
  }
  const run = cell.runs.find(({ id }) => id === state.run) ?? cell.runs[0];
  const close = el("button", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const head = el("div", { class: "head" },
    el("div", { class: "line" }, el("h2", { id: "detail-title" }, cell.label), el("span", { class: "grow" }), close),
    el("p", { class: "soft" }, describe(cell.setting)), el("p", { class: "hint" }, describeRest(cell.setting)));
  const body = el("div", { class: "body" });
  dialog.replaceChildren(head, body);
  if (!dialog.open) dialog.showModal();
  body.append(...seeds(cell, run), el("div", { class: "lines", id: "detail-accuracy" }));
  drawAccuracy(run, body.lastElementChild);
  for (const [title, names, none] of [
    ["Detection", DETECTION, "This method names no noisy clients or labels."],
    ["Correction and memorisation", CORRECTION, "No such scores in this record."],
  ]) body.append(scores(title, names, none, run));
  body.append(world(run));
  const confusion = run.confusion ? el("section", {}, el("h3", {}, "Test confusion at the end"), confusionTable(run.confusion)) : "";
  body.append(el("div", { class: "two" }, confusion, cost(run)), again(cell, run), configuration(cell));
}

function seeds(cell, run) {
  const rows = cell.runs.map((other) => {
    const pick = () => change({ run: other.id });
    const choice = el("input", { type: "radio", name: "run", checked: other === run, onchange: pick, "aria-label": `seed ${other.seed}` });
    return el("tr", { "aria-selected": other === run ? "true" : null, onclick: pick },
      el("th", { scope: "row" }, cell.runs.length > 1 ? choice : "", ` seed ${other.seed}`), el("td", {}, percent(other.best)), el("td", {}, amount(other.best_round)),
      el("td", {}, percent(other.last10)), el("td", {}, percent(other.final)), el("td", {}, other.status), el("td", { class: "small" }, other.id));
  });
  const head = ["", "best, %", "in round", "last 10, %", "final, %", "status", "run"].map((name) => el("th", { scope: "col" }, name));
  const parts = [el("section", {}, el("h3", {}, "Runs"), el("div", { class: "scroll", tabindex: 0 }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))))];
  if (run.reason) parts.push(el("p", { class: "why" }, `${run.status}: ${run.reason}`));
  if (cell.oracle) parts.push(el("p", { class: "why" }, `Oracle: ${cell.oracle}.`));
  if (cell.versus) parts.push(el("p", { class: "hint" }, `Best against FedAvg: ${signed(cell.versus.mean)} (${cell.versus.n} paired); ${cell.versus.words}.`));
  return parts;
}

/** Where a run's stages begin, for the vertical lines; none for a single stage. */
function stagesOf(run) {
  const visits = unpack(run.curve?.participations) ?? [];
  const found = [];
  const stages = run.curve?.stages ?? [];
  let at = 0;
  for (let place = 0; place < stages.length; place += 2) {
    found.push({ from: at ? visits[at - 1] : 0, name: stages[place] });
    at += stages[place + 1];
  }
  return found.length > 1 ? found : null;
}

function drawAccuracy(run, host) {
  const curve = accuracyOf(run, "participations");
  if (!curve) {
    host.replaceChildren(el("p", { class: "empty" }, "No curve yet."));
    return;
  }
  const line = { id: "accuracy", label: "test accuracy", place: 0, ...curve, value: decimals(curve.y.at(-1), 1) };
  chart(host, [line], { title: "Test accuracy", xLabel: "client visits", yLabel: "%", height: 250, stages: stagesOf(run) });
}

function scores(title, names, none, run) {
  const part = el("section", {}, el("h3", {}, `${title} over the run`));
  const host = el("div", { class: "lines" });
  const visits = unpack(run.curve?.participations);
  const lines = Object.entries(names).flatMap(([name, label], place) => {
    const values = unpack(run.curve?.scores?.[name]);
    if (!values) return [];
    const percents = values.map((value) => (value === null ? null : 100 * value));
    return [{ id: name, label, place, x: visits, y: percents, value: decimals(percents.findLast((value) => value !== null), 1) }];
  });
  part.append(lines.length ? host : el("p", { class: "soft" }, none));
  if (lines.length) requestAnimationFrame(() => chart(host, lines, { title, xLabel: "client visits", yLabel: "%", height: 240, range: [0, 100], stages: stagesOf(run) }));
  return part;
}

function world(run) {
  const scene = DATA.scenes[run.scene.picture];
  const facts = [];
  if (run.scene.wrong !== null) facts.push(`${percent(run.scene.wrong, 1)} % of all training labels are wrong.`);
  if (run.scene.convention) facts.push(run.scene.convention);
  if (run.scene.hash) facts.push(`Scene ${run.scene.hash}.`);
  if (scene) facts.push("Across: clients. Up: true classes, a bubble's area by samples, its colour by the client's wrong labels; below: these in percent.");
  const part = el("section", {}, el("h3", {}, "Scene"), el("p", { class: "hint" }, facts.join(" ")));
  if (!scene) part.append(el("p", { class: "soft" }, "No picture: scene.npz is not there."));
  else part.append(...scenePicture(scene));
  if (scene?.transition) part.append(el("details", {}, el("summary", {}, "Which labels become which"), heat(scene.transition, "Share of the true class (row) that is given each label (column), %")));
  return part;
}

function cost(run) {
  const megabytes = (name, value) => (name.startsWith("bytes") ? value / 1e6 : value);
  const all = { participations: run.participations, ...run.cost };
  const entries = Object.entries(COSTS).filter(([name]) => all[name] !== undefined && all[name] !== null).map(([name, text]) => [text, amount(megabytes(name, all[name]))]);
  for (const [name, text] of Object.entries(TIMES)) {
    const value = run.time[name];
    if (value !== undefined) entries.push([text, typeof value === "number" ? amount(value) : value]);
  }
  const list = entries.length ? el("dl", {}, entries.flatMap(([text, value]) => [el("dt", {}, text), el("dd", {}, value)])) : el("p", { class: "soft" }, "Known when the run has ended.");
  return el("section", {}, el("h3", {}, "Cost"), list);
}

function again(cell, run) {
  const command = el("pre", { tabindex: 0, id: "command" }, `${cell.command} seed=${run.seed}`);
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command); // no right to the clipboard: selected, to be copied by hand
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return el("section", {}, el("h3", {}, "Run it again"), command, button);
}

function configuration(cell) {
  const rows = Object.entries(cell.config).map(([key, value]) => ({ key, value, preset: cell.differs[key] }));
  const table = el("tbody");
  const search = el("input", { type: "search", placeholder: "search keys and values", "aria-label": "Search the configuration" });
  const only = el("input", { type: "checkbox" });
  const fill = () => {
    const wanted = search.value.trim().toLowerCase();
    const kept = rows.filter(({ key, value, preset }) => (!only.checked || preset !== undefined) && `${key}=${value}`.toLowerCase().includes(wanted));
    table.replaceChildren(...kept.map(({ key, value, preset }) =>
      el("tr", { class: preset === undefined ? "" : "differs" }, el("td", {}, key), el("td", {}, value), el("td", { class: "small" }, preset === undefined ? "" : `default ${preset}`))));
    if (!kept.length) table.append(el("tr", {}, el("td", { colspan: 3, class: "soft" }, only.checked && !wanted ? "All as the defaults are." : "Nothing found.")));
  };
  search.addEventListener("input", fill);
  only.addEventListener("change", fill);
  fill();
  return el("section", {}, el("h3", {}, "Configuration"),
    el("div", { class: "config-tools" }, search, el("label", {}, only, `only what differs from the defaults (${Object.keys(cell.differs).length})`)),
    el("div", { class: "scroll config", tabindex: 0 }, el("table", {}, table)));
}
