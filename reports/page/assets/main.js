// Puts the parts together.

function renderSummary() {
  const runs = [...CELLS.values()].flatMap((cell) => cell.runs);
  const count = (status) => runs.filter((run) => run.status === status).length;
  const many = (number, word) => `${amount(number)} ${word}${number === 1 ? "" : "s"}`;
  const seeds = new Set(runs.map((run) => run.seed)).size;
  const parts = [many(runs.length, "run"), many(CELLS.size, "cell"), many(DATA.settings.length, "setting"), many(seeds, "seed")];
  const ends = ["done", "running", "stopped", "diverged", "failed"].filter(count).map((status) =>
    status === "done" ? `${count(status)} done` : el("span", { class: `status ${status}` }, `${count(status)} ${status}`));
  const nodes = [parts.join(" · ")];
  for (const end of ends) nodes.push(" · ", end);
  document.getElementById("summary").replaceChildren(...nodes, ` · written ${DATA.written}`);
}

function renderWarnings() {
  const host = document.getElementById("warnings");
  const lines = DATA.warnings;
  if (!lines.length) host.append(el("p", { class: "soft" }, "Nothing: every record found is on this page."));
  else host.append(el("details", {}, el("summary", {}, `${lines.length} ${lines.length === 1 ? "line" : "lines"} about what does not count or could not be read`), el("ul", {}, lines.map((line) => el("li", {}, line)))));
}

/** While a grid runs the file is written anew: load it again, unless somebody is at it just now. */
function setUpLive() {
  if (!DATA.every) return;
  const button = document.getElementById("live");
  let paused = remembered("paused") === "yes";
  let touched = 0;
  const show = () => {
    button.textContent = paused ? "Live: paused" : `Live: every ${DATA.every} s`;
    button.setAttribute("aria-pressed", String(!paused));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    remember("paused", paused ? "yes" : "no");
    show();
  });
  for (const event of ["pointermove", "keydown", "wheel", "touchstart"]) addEventListener(event, () => { touched = Date.now(); }, { passive: true });
  setInterval(() => {
    if (!paused && !document.hidden && Date.now() - touched > 4000) location.reload();
  }, 1000 * DATA.every);
  show();
}

const FILTER_KEYS = [...FILTERS.map(({ key }) => key), "method"];
readState();
setUpTheme(() => tell(Object.keys(START)));
follow(FILTER_KEYS, renderFilters);
follow([...FILTER_KEYS, "sort", "direction"], renderBoard);
follow([...FILTER_KEYS, "setting", "x", "seeds"], renderCurves);
follow(["cell", "run"], renderDetail);
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the view
    document.querySelector(link.getAttribute("href")).scrollIntoView();
  });
}
const drawer = document.getElementById("detail");
drawer.addEventListener("close", () => change({ cell: "", run: "" }));
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
renderSummary();
renderTables();
renderWarnings();
setUpLive();
tell(Object.keys(START));
