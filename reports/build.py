"""Published tables with our numbers beside the paper's: python -m reports.build table=fedcorr_table2 runs=runs"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.config.schema import SCALES
from benchmarks.terminal import command
from reports.frame.load import Runs, load_runs
from reports.published import load as published
from reports.published import load_settings, names, settings_names
from reports.tables.comparison import comparison_table, to_csv
from reports.tables.rendering import ReportTable, latex, latex_document, markdown
from reports.tables.results import collect_results
from reports.tables.settings import collect_settings, settings_csv, settings_table

DEFAULTS = {"table": "all", "runs": "runs", "out": "reports/reproductions", "scale": "all"}
USAGE = """
python -m reports.build [table=NAME,...] [runs=FOLDER,...] [out=FOLDER] [scale=NAME]

Writes published tables with our numbers beside the paper's, as Markdown, LaTeX and CSV:
  OUT/SCALE/TABLE.md, TABLE.csv, TABLE.tex (to \\input), TABLE_page.tex (compiles alone)

  table   all, or names separated by commas (default all); a wrong name lists the legal ones
  runs    folders with records of runs, separated by commas (default runs)
  out     where to write (default reports/reproductions)
  scale   paper, laptop or smoke; default all: those of which a run belongs to the table, or else paper
"""


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, build)


def build(options: dict[str, str]) -> int:
    """Write the tables that the options ask for, and say what was written and what was left out."""
    legal = (*names(), *settings_names())
    chosen = [
        command.require_choice("table", name, ("all", *legal))
        for name in options["table"].split(",")
    ]
    scale = command.require_choice("scale", options["scale"], ("all", *SCALES))
    folders = command.split_dirs(options["runs"])
    runs = load_runs(folders)
    warnings = list(runs.warnings)
    if len(runs.done) == 0:
        warnings.append(
            f"no finished run below {', '.join(folders)}: every table has dashes on our side"
        )
    for name in legal if "all" in chosen else dict.fromkeys(chosen):
        if name in names():
            warnings += _results(name, runs, scale, Path(options["out"]))
        else:
            warnings += _settings(name, "paper" if scale == "all" else scale, Path(options["out"]))
    command.print_warnings(warnings)
    return 0


def _results(name: str, runs: Runs, scale: str, out: Path) -> list[str]:
    """Write one table at the scale, or at every scale that has a run of it. Returns the warnings."""
    table = published(name)
    found = [
        collect_results(table, runs, each) for each in (SCALES if scale == "all" else (scale,))
    ]
    for results in [results for results in found if results.cells] or found[:1]:
        _write(comparison_table(results), to_csv(results), out / results.scale)
        filled = f"{len(results.cells)} of {len(table.cells)} cells"
        print(f"{name} {results.scale}: {filled} -> {out / results.scale}/{name}.*")
    return [line for results in found for line in results.warnings]


def _settings(name: str, scale: str, out: Path) -> list[str]:
    results = collect_settings(load_settings(name), scale)
    _write(settings_table(results), settings_csv(results), out / scale)
    print(f"{name} {scale}: settings -> {out / scale}/{name}.*")
    return list(results.warnings)


def _write(table: ReportTable, lines: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        ".md": markdown(table),
        ".tex": latex(table),
        "_page.tex": latex_document(table, table.name),
        ".csv": lines,
    }
    for ending, text in files.items():
        (folder / f"{table.name}{ending}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
