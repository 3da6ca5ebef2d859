// Published tables with reproduced results. The markup is rendered and escaped in Python.

function renderTables() {
  const host = document.getElementById("published-tables");
  if (!DATA.tables.length) {
    host.append(el("p", { class: "soft" }, "None of these runs belongs to a published table."));
  }
  DATA.tables.forEach((entry, index) => {
    const content = el("div");
    content.innerHTML = entry.html; // The only markup that is inserted.
    const table = content.querySelector("table");
    const onchange = (event) => showOnlyReproduced(table, event.target.checked);
    showOnlyReproduced(table, true);
    host.append(el("details", { open: index === 0 },
      el("summary", {}, el("b", {}, entry.title), el("span", { class: "small" }, `${entry.filled} reproduced`)),
      el("label", { class: "only" }, el("input", { type: "checkbox", checked: true, onchange }),
        "only rows and columns with reproduced results"),
      content));
  });
}

/** Hide the rows and columns without reproduced results, or show all. */
function showOnlyReproduced(table, isOn) {
  // A note on an empty cell reports an unsuccessful run.
  const hasResult = (cell) => !cell.classList.contains("none") || cell.querySelector("sup") !== null;
  const cellsOf = (row) => [...row.querySelectorAll("td")];
  const rows = [...table.querySelectorAll("tbody tr:not(.group)")];
  const reproduced = rows.filter((row) => row.classList.contains("reproduced"));
  const headings = [...[...table.tHead.rows].at(-1).querySelectorAll("th")];
  const isShown = headings.map((_, column) => !isOn || reproduced.some((row) => hasResult(cellsOf(row)[column])));
  const hideColumns = (cells) => cells.forEach((cell, column) => { cell.hidden = !isShown[column]; });
  hideColumns(headings);
  let isRowShown = true;
  for (const row of rows) {
    if (row.classList.contains("first")) isRowShown = !isOn || cellsOf(row).some(hasResult);
    row.hidden = !isRowShown;
    hideColumns(cellsOf(row));
  }
  for (const body of table.tBodies) {
    body.hidden = [...body.rows].every((row) => row.hidden || row.classList.contains("group"));
  }
  if (table.tHead.rows.length > 1) updateColumnGroups(table.tHead.rows[0], isShown);
}

/** Adjust the spans of the column groups to the shown columns. */
function updateColumnGroups(row, isShown) {
  let column = 0;
  for (const group of row.querySelectorAll("th")) {
    group.dataset.span ??= group.colSpan;
    const end = column + Number(group.dataset.span);
    const count = isShown.slice(column, end).filter(Boolean).length;
    group.hidden = !count;
    group.colSpan = count || 1;
    column = end;
  }
}
