// Summary, warnings, automatic reload, and start of the page.

const RELOAD_PAUSE = 4000; // milliseconds without user activity before the page reloads

function renderSummary() {
  const runs = [...ENTRIES.values()].flatMap((entry) => entry.runs);
  const seeds = new Set(runs.map((run) => run.seed)).size;
  const counts = [[runs.length, "run"], [ENTRIES.size, "variant"], [DATA.settings.length, "setting"], [seeds, "seed"]];
  const nodes = [counts.map(([count, noun]) => formatNumberOf(count, noun)).join(" · ")];
  for (const status of STATUSES) {
    const count = runs.filter((run) => run.status === status).length;
    const text = `${count} ${status}`;
    if (count) nodes.push(" · ", status === "done" ? text : el("span", { class: `status ${status}` }, text));
  }
  document.getElementById("summary").replaceChildren(...nodes, ` · updated ${DATA.written}`);
}

function renderWarnings() {
  const host = document.getElementById("warning-list");
  if (!DATA.warnings.length) {
    host.append(el("p", { class: "soft" }, "None: all records are part of this page."));
    return;
  }
  const title = formatNumberOf(DATA.warnings.length, "warning");
  const lines = DATA.warnings.map((line) => el("li", {}, line));
  host.append(el("details", {}, el("summary", {}, `${title} about excluded or unreadable runs`), el("ul", {}, lines)));
}

/** Reload periodically, unless the user was active in the last seconds. */
function setUpReload() {
  if (!DATA.every) return;
  const button = document.getElementById("live");
  let isPaused = loadPreference("paused") === "yes";
  let lastActivity = 0;
  const update = () => {
    button.textContent = isPaused ? "Live: paused" : `Live: every ${DATA.every} s`;
    button.setAttribute("aria-pressed", String(!isPaused));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    savePreference("paused", isPaused ? "yes" : "no");
    update();
  });
  for (const event of ["pointermove", "keydown", "wheel", "touchstart"]) {
    addEventListener(event, () => { lastActivity = Date.now(); }, { passive: true });
  }
  setInterval(() => {
    if (!isPaused && !document.hidden && Date.now() - lastActivity > RELOAD_PAUSE) location.reload();
  }, 1000 * DATA.every);
  update();
}

function setUpDetail() {
  const dialog = document.getElementById("detail");
  dialog.addEventListener("close", () => setState({ cell: "", run: "" }));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

function setUpNavigation() {
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault(); // The fragment of the address holds the state of the page.
      document.querySelector(link.getAttribute("href")).scrollIntoView();
    });
  }
}

subscribe(FILTER_KEYS, renderFilters);
subscribe([...FILTER_KEYS, "sort", "direction"], renderLeaderboard);
subscribe([...FILTER_KEYS, "setting", "x", "seeds"], renderCurves);
subscribe(["cell", "run"], renderDetail);
setUpTheme(() => notify(STATE_KEYS));
setUpNavigation();
setUpDetail();
setUpReload();
renderSummary();
renderTables();
renderWarnings();
readState();
notify(STATE_KEYS);
