"""Write comparison tables (reproduced vs. published) as Markdown, LaTeX and CSV.

    python -m reports.build [table=NAME,...] [runs=DIR,...] [out=DIR] [scale=NAME] [accuracy=NAME]
                            [hyperparameters=NAME]

Files: OUT/SCALE/TABLE.md, TABLE.csv, TABLE.tex (for \\input), TABLE_page.tex (a document)

  table   all (default), or names separated by commas; an unknown name lists those available
  runs    directories with run records, separated by commas (default: runs)
  out     output directory (default: reports/reproductions)
  scale   paper, laptop or smoke; all (default) takes the scales that have runs of the table,
          or paper if there are none
  accuracy  reproduced accuracy: published (default, the one that the paper reports), selected,
            last10, best (oracle) or final
  hyperparameters  published, common or tuned; by default those that a run has at the scale
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.config.protocols import HYPERPARAMETERS
from benchmarks.config.schema import SCALES
from benchmarks.records.record import ACCURACIES
from benchmarks.terminal import command
from reports.frame.load import Runs, load_runs
from reports.published.tables import load_settings, load_table, settings_names, table_names
from reports.tables import rendering
from reports.tables.comparison import comparison_csv, comparison_table
from reports.tables.results import collect_results
from reports.tables.settings import collect_settings, settings_csv, settings_table

DEFAULTS = {"table": "all", "runs": "runs", "out": "reports/reproductions", "scale": "all"}
DEFAULTS |= {"accuracy": "published", "hyperparameters": ""}


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, str(__doc__), DEFAULTS, build)


def build(options: command.Options) -> int:
    """Write the requested tables, and print the written files and the warnings."""
    available = (*table_names(), *settings_names())
    names = command.choose_names("table", options["table"], available)
    scale = command.require_choice("scale", options["scale"], ("all", *SCALES))
    choices = ("published", *ACCURACIES)
    accuracy = command.require_choice("accuracy", options["accuracy"], choices)
    accuracy = "" if accuracy == "published" else accuracy
    kind = options["hyperparameters"]
    if kind:
        command.require_choice("hyperparameters", kind, HYPERPARAMETERS)
    dirs = command.split_dirs(options["runs"])
    runs = load_runs(dirs)
    warnings = list(runs.warnings)
    if len(runs.done) == 0:
        warnings.append(
            f"no completed runs found in {', '.join(dirs)}; reproduced values are left blank"
        )
    for name in names:
        if name in table_names():
            warnings += _write_results(name, runs, scale, Path(options["out"]), accuracy, kind)
        else:
            warnings += _write_settings(name, scale, Path(options["out"]))
    command.print_warnings(warnings)
    return 0


def _write_results(
    name: str, runs: Runs, scale: str, out: Path, accuracy: str, hyperparameters: str
) -> list[str]:
    """Write one table at the scale, or at every scale with runs of it. Returns the warnings."""
    table = load_table(name)
    scales = SCALES if scale == "all" else [scale]
    found = [collect_results(table, runs, each, accuracy, hyperparameters) for each in scales]
    for results in [results for results in found if results.cells] or found[:1]:
        filled = f"{len(results.cells)} of {len(table.cells)} cells"
        _write(comparison_table(results), comparison_csv(results), out / results.scale, filled)
    return [line for results in found for line in results.warnings]


def _write_settings(name: str, scale: str, out: Path) -> list[str]:
    results = collect_settings(load_settings(name), "paper" if scale == "all" else scale)
    _write(settings_table(results), settings_csv(results), out / results.scale, "settings")
    return list(results.warnings)


def _write(table: rendering.ReportTable, csv_text: str, directory: Path, content: str) -> None:
    files = {
        ".md": rendering.markdown(table),
        ".tex": rendering.latex(table),
        "_page.tex": rendering.latex_document(table),
        ".csv": csv_text,
    }
    directory.mkdir(parents=True, exist_ok=True)
    for ending, text in files.items():
        (directory / f"{table.name}{ending}").write_text(text, encoding="utf-8")
    print(f"{table.name} {directory.name}: {content} -> {directory}/{table.name}.*")


if __name__ == "__main__":
    sys.exit(main())
