"""Page data as JSON-compatible values, with local paths removed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.config.schema import SCALES
from benchmarks.records.files import SCENARIO_FILE
from benchmarks.records.readers import read_curve, read_scenario
from benchmarks.records.record import read_record
from methods.core.errors import UserError
from reports.figures import style
from reports.frame.load import Row, Runs, load_runs, rows_of
from reports.page import leaderboard, traces
from reports.page.leaderboard import finite_or_none
from reports.page.unfinished import unfinished_rows
from reports.published import load_table, table_names
from reports.tables.comparison import comparison_table
from reports.tables.rendering import html
from reports.tables.results import collect_results

MAX_POINTS = 60_000  # of all curves together
MIN_CURVE_POINTS, MAX_CURVE_POINTS = 60, 400
COSTS = (
    "queries", "models_down", "models_up", "bytes_down", "bytes_up", "samples_trained",
    "samples_scored", "dropped_models",
)  # fmt: skip
TIMES = ("seconds_method", "seconds_evaluation", "peak_memory_mb", "executor", "workers")
CANVAS_DASHES = {"-": [], "--": [8, 4], "-.": [8, 3, 2, 3], ":": [2, 3]}
# The directories of a path. A slash after < closes an HTML element.
DIRECTORY = r"(?:[^\s/\\:'\"<>]+[/\\])"
PATHS = re.compile(rf"(?<![\w.…<])(?:(?:~[^\s/\\]*[/\\]|[A-Za-z]:\\){DIRECTORY}*|/{DIRECTORY}+)")


@dataclass
class PageData:
    """Data of the page, and the warnings with full paths."""

    data: dict[str, Any]
    warnings: list[str]


def build_page_data(directories: Sequence[str]) -> PageData:
    """Collect all runs below the directories, and warnings about excluded ones."""
    runs = load_runs(directories)
    unfinished, warnings = unfinished_rows(runs)
    rows = [*rows_of(runs.done), *rows_of(runs.unsuccessful), *unfinished]
    if not rows:
        warnings.append(f"no run below {', '.join(directories)}: the page is empty")
    points = MAX_POINTS // max(len(rows), 1)
    files = _RunFiles(min(MAX_CURVE_POINTS, max(MIN_CURVE_POINTS, points)), warnings)
    groups = leaderboard.group_runs(rows)
    settings = leaderboard.describe_settings(groups)
    for description, (setting, variants) in zip(settings, groups.items(), strict=True):
        description["entries"] = leaderboard.leaderboard_entries(setting, variants)
        for entry, members in zip(description["entries"], variants.values(), strict=True):
            entry["runs"] = [_run_data(row) | files.read(row) for row in members]
    data = {
        "baseline": leaderboard.BASELINE,
        "settings": settings,
        "scenarios": [json.loads(text) for text in files.scenarios],
        "tables": _published_tables(runs, warnings),
        "styles": _line_styles(settings),
    }
    warnings = list(dict.fromkeys(warnings))
    return PageData(_strip_paths(data | {"warnings": warnings}, directories), warnings)


def _run_data(row: Row) -> dict[str, Any]:
    """Results, cost and times of one run."""
    costs = {name: finite_or_none(row.get(f"cost.{name}")) for name in COSTS}
    times = {name: row.get(f"time.{name}") for name in TIMES}
    summary = (*leaderboard.ACCURACIES, "best_round")
    return {
        "id": row["run_id"],
        "seed": row["seed"],
        "status": row["status"],
        "reason": row["reason"],
        **{name: finite_or_none(row.get(f"summary.{name}")) for name in summary},
        "rounds": finite_or_none(row.get("rounds")),
        "participations": finite_or_none(row.get("cost.participations")),
        "cost": {name: value for name, value in costs.items() if value is not None},
        # NaN, unequal to itself, marks a missing value of the frame.
        "time": {k: value for k, value in times.items() if value is not None and value == value},
    }


@dataclass
class _RunFiles:
    """Reads the files of run directories. Equal scenarios are stored once."""

    max_curve_points: int
    warnings: list[str]
    scenarios: dict[str, int] = field(default_factory=dict)  # JSON text -> index

    def read(self, row: Row) -> dict[str, Any]:
        """Curve, scenario and confusion matrix. Missing files of done runs give warnings."""
        run_dir, is_done = row["run_dir"], row["status"] == "done"
        scenario: dict[str, Any] = {
            "hash": row.get("scenario.hash"),
            "convention": row.get("scenario.noise_convention"),
            "noise_rate": finite_or_none(row.get("scenario.noise_rate")),
        }
        found: dict[str, Any] = {"scenario": scenario}
        if is_done:
            record = read_record(run_dir)
            found["confusion"] = traces.confusion(record and record.confusion)
        if is_done or (run_dir / "curve.csv").exists():
            try:
                found["curve"] = traces.curve(read_curve(run_dir), self.max_curve_points)
            except UserError as error:
                self.warnings.append(str(error))
        if is_done or (run_dir / SCENARIO_FILE).exists():
            try:
                text = json.dumps(traces.scenario(read_scenario(run_dir)))
                scenario["index"] = self.scenarios.setdefault(text, len(self.scenarios))
            except UserError as error:
                self.warnings.append(str(error))
        return found


def _published_tables(runs: Runs, warnings: list[str]) -> list[dict[str, Any]]:
    """Published tables with at least one reproduced cell, at every scale with runs."""
    found = []
    for scale in SCALES:
        if not (runs.done["scale"] == scale).any():
            continue
        for name in table_names():
            results = collect_results(load_table(name), runs, scale)
            warnings += results.warnings
            if results.cells:
                table = comparison_table(results)
                filled = f"{len(results.cells)} of {len(results.table.cells)} cells"
                entry = {"name": name, "title": table.title, "filled": filled}
                found.append(entry | {"html": html(table)})
    return found


def _line_styles(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Colors, dashes and markers as in the figures, and the order of labels in their cycles."""
    labels = {entry["label"] for setting in settings for entry in setting["entries"]}
    order = sorted(labels, key=lambda label: (label != leaderboard.BASELINE, " " in label, label))
    dashes = [
        CANVAS_DASHES[dash] if isinstance(dash, str) else [2 * length for length in dash[1]]
        for dash in style.DASHES
    ]
    markers = "".join(style.MARKERS)
    return {"colors": style.COLORS, "dashes": dashes, "markers": markers, "order": order}


def _strip_paths(value: Any, directories: Sequence[str]) -> Any:
    """The same data with local directories removed from all strings."""
    if isinstance(value, dict):
        return {key: _strip_paths(entry, directories) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strip_paths(entry, directories) for entry in value]
    if not isinstance(value, str) or ("/" not in value and "\\" not in value):
        return value
    for directory in directories:
        value = re.sub(rf"(?<![\w/]){re.escape(directory.rstrip('/'))}/", "", value)
    return PATHS.sub("…/", value.replace(f"{Path.home()}/", "~/"))
