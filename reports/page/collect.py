"""Page data as JSON-compatible values, with local paths removed."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.config.schema import COMPONENTS, HASHED_SECTIONS, SCALES, drop_defaults
from benchmarks.records.files import CONFIG_FILE, CURVE_FILE, SCENARIO_FILE
from benchmarks.records.lease import read_lease
from benchmarks.records.readers import read_curve, read_scenario
from benchmarks.records.record import ACCURACIES, TESTED, read_record, require_config
from methods.core.errors import UserError
from reports.figures import style
from reports.frame import load
from reports.page import leaderboard, traces
from reports.published.tables import load_table, table_names
from reports.tables.comparison import comparison_table
from reports.tables.rendering import html
from reports.tables.results import collect_results

MAX_POINTS = 40_000  # of all curves together
MIN_CURVE_POINTS, MAX_CURVE_POINTS = 60, 400
CANVAS_DASHES = {"-": [], "--": [8, 4], "-.": [8, 3, 2, 3], ":": [2, 3]}
# The directories of a path. A slash after < closes an HTML element.
DIRECTORY = r"(?:[^\s/\\:'\"<>]+[/\\])"
PATHS = re.compile(rf"(?<![\w.…<])(?:(?:~[^\s/\\]*[/\\]|[A-Za-z]:\\){DIRECTORY}*|/{DIRECTORY}+)")


def build_page_data(
    directories: Sequence[str], accuracy: str = "last10"
) -> tuple[dict[str, Any], list[str]]:
    """Data of all runs below the directories, and warnings with full paths.

    Methods are sorted by `accuracy` and compared with the baseline.
    """
    runs = load.load_runs(directories)
    unfinished, warnings = _unfinished_rows(runs)
    frames = (runs.done, runs.references, runs.unsuccessful)
    rows = [*(row for frame in frames for row in load.rows_of(frame)), *unfinished]
    if not rows:
        warnings.append(f"no run below {', '.join(directories)}: the page is empty")
    points = MAX_POINTS // max(len(rows), 1)
    points = min(MAX_CURVE_POINTS, max(MIN_CURVE_POINTS, points))
    scenarios: dict[str, int] = {}
    groups = leaderboard.group_runs(rows)
    settings = leaderboard.describe_settings(groups)
    for description, (setting, variants) in zip(settings, groups.items(), strict=True):
        description["entries"] = leaderboard.leaderboard_entries(setting, variants, accuracy)
        for entry, members in zip(description["entries"], variants.values(), strict=True):
            entry["runs"] = [
                _run_data(row) | _read_files(row, points, scenarios, warnings) for row in members
            ]
    data = {
        "baseline": leaderboard.BASELINE,
        "accuracy": accuracy,
        "tested": TESTED,
        "accuracies": ACCURACIES,
        "settings": settings,
        "scenarios": [json.loads(text) for text in scenarios],
        "tables": _published_tables(runs, warnings),
        "styles": _line_styles(settings),
    }
    warnings = list(dict.fromkeys(warnings))
    return _strip_paths(data | {"warnings": warnings}, directories), warnings


def _unfinished_rows(runs: load.Runs) -> tuple[list[load.Row], list[str]]:
    """Rows of the unfinished runs, and the warnings about all other runs."""
    frames = (runs.done, runs.unsuccessful, runs.references)
    finished = {run_id for frame in frames for run_id in frame["run_id"]}
    rows: dict[str, load.Row] = {}
    for run_dir in runs.unfinished_dirs:
        if run_dir.name not in finished and (row := _unfinished_row(run_dir)):
            rows.setdefault(run_dir.name, row)
    shown = {load.unfinished_warning(row["run_dir"]) for row in rows.values()}
    return list(rows.values()), [line for line in runs.warnings if line not in shown]


def is_stale(run_dir: Path) -> bool:
    """True if no process executes the run."""
    lease = read_lease(run_dir)
    return lease is None or lease.is_stale


def _unfinished_row(run_dir: Path) -> load.Row | None:
    """None if the configuration is missing or cannot be read."""
    try:
        raw = yaml.safe_load((run_dir / CONFIG_FILE).read_text(encoding="utf-8"))
        config: dict[str, Any] = {key: raw[key] for key in ("seed", "scale", *HASHED_SECTIONS)}
        names = ("protocol", "hyperparameters", "labels", "oracle")
        config |= {key: raw[key] for key in names if raw.get(key)}
        executor = {"precision": "fp32", **raw.get("executor", {})}
        config = drop_defaults(config | {"precision": executor["precision"]})
        for group in COMPONENTS:
            config[group] = {"name": raw[group]["name"], **raw[group]["params"]}
        flat = load.flat_config(require_config(config))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError):
        return None
    status = "stopped" if is_stale(run_dir) else "running"
    row = {"run_id": run_dir.name, "status": status, "reason": "", "oracle": ""}
    return row | flat | {"run_dir": run_dir, "config": flat}


def _run_data(row: load.Row) -> dict[str, Any]:
    """Results, cost and times of one run."""
    summary = (*ACCURACIES, "best_round")
    return {
        "id": row["run_id"],
        "seed": row["seed"],
        "status": row["status"],
        "reason": row["reason"],
        **{name: row.get(f"summary.{name}") for name in summary},
        "rounds": row.get("rounds"),
        "cost": _section(row, "cost."),
        "time": _section(row, "time."),
    }


def _section(row: load.Row, prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix)}


def _read_files(
    row: load.Row, max_points: int, scenarios: dict[str, int], warnings: list[str]
) -> dict[str, Any]:
    """Curve, scenario and confusion matrix of one run. Missing files of done runs give warnings.

    Equal scenarios are stored once: `scenarios` maps their JSON text to an index.
    """
    run_dir, is_done = row["run_dir"], row["status"] == "done"

    def read(file: str, reader: Callable[[Path], Any]) -> Any:
        try:
            return reader(run_dir) if is_done or (run_dir / file).exists() else None
        except UserError as error:
            warnings.append(str(error))

    names = {"hash": "hash", "convention": "noise_convention", "noise_rate": "noise_rate"}
    found: dict[str, Any] = {
        "scenario": {name: row.get(f"scenario.{key}") for name, key in names.items()}
    }
    if record := read_record(run_dir) if is_done else None:
        found["confusion"] = traces.confusion(record.confusion)
    if (frame := read(CURVE_FILE, read_curve)) is not None:
        found["curve"] = traces.curve(frame, max_points)
    if (arrays := read(SCENARIO_FILE, read_scenario)) is not None:
        text = json.dumps(traces.scenario(arrays))
        found["scenario"]["index"] = scenarios.setdefault(text, len(scenarios))
    return found


def _published_tables(runs: load.Runs, warnings: list[str]) -> list[dict[str, Any]]:
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
