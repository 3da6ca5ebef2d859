// The papers' tables: markup that reports.grid wrote and escaped, narrowed to what was run.

function renderTables() {
  const host = document.getElementById("tables");
  if (!DATA.tables.length) host.append(el("p", { class: "soft" }, "None of these runs belongs to a table of the papers."));
  DATA.tables.forEach((entry, place) => {
    const content = el("div");
    content.innerHTML = entry.html; // the one place where markup is taken over
    const table = content.querySelector("table");
    const box = el("input", { type: "checkbox", checked: true, onchange: () => narrow(table, box.checked) });
    narrow(table, true);
    host.append(el("details", { open: place === 0 },
      el("summary", {}, el("b", {}, entry.title), el("span", { class: "small" }, `${entry.filled} ran`)),
      el("label", { class: "only" }, box, "only rows and columns with runs of ours"), content));
  });
}

/** Hide rows and columns in which nothing was run, or show them all again. */
function narrow(table, only) {
  const ran = (cell) => !cell.classList.contains("none") || cell.querySelector("sup") !== null; // a note tells of a lost run
  const lines = [...table.querySelectorAll("tbody tr:not(.group)")];
  const ours = lines.filter((line) => line.classList.contains("reproduced"));
  const names = [...[...table.tHead.rows].at(-1).querySelectorAll("th")];
  const shown = names.map((_, column) => !only || ours.some((line) => ran(line.querySelectorAll("td")[column])));
  const hide = (cells) => cells.forEach((cell, column) => { cell.hidden = !shown[column]; });
  hide(names);
  let visible = true;
  for (const line of lines) {
    if (line.classList.contains("first")) visible = !only || [...line.querySelectorAll("td")].some(ran);
    line.hidden = !visible;
    hide([...line.querySelectorAll("td")]);
  }
  for (const body of table.tBodies) body.hidden = [...body.rows].every((row) => row.hidden || row.classList.contains("group"));
  let column = 0;
  for (const group of table.tHead.rows.length > 1 ? table.tHead.rows[0].querySelectorAll("th") : []) {
    group.dataset.span ??= group.colSpan;
    const count = shown.slice(column, column + Number(group.dataset.span)).filter(Boolean).length;
    column += Number(group.dataset.span);
    group.hidden = !count;
    group.colSpan = count || 1;
  }
}
