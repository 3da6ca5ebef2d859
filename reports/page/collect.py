"""Everything that the page shows, as plain data; no path of this machine is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.config.schema import SCALES
from benchmarks.records.record import read_record
from methods.core.errors import UserError
from reports.figures import style
from reports.figures.extract import read_scene
from reports.figures.select import Row, rows_of
from reports.frame.load import Runs, load_runs, read_curve
from reports.page import leaderboard, traces
from reports.page.unfinished import running
from reports.published import load_table, table_names
from reports.tables.comparison import comparison_table
from reports.tables.rendering import html
from reports.tables.results import collect_results

POINTS, FINEST, COARSEST = 60_000, 400, 60  # of all curves together; of one curve
COSTS = (
    "contacts", "models_down", "models_up", "bytes_down", "bytes_up", "samples_trained", "samples_scored",
    "dropped_models",
)  # fmt: skip
TIMES = ("seconds_method", "seconds_evaluation", "peak_memory_mb", "executor", "workers")
DASHES = {"-": [], "--": [8, 4], "-.": [8, 3, 2, 3], ":": [2, 3]}
# The folders before a file's name; a slash after < ends an element of HTML.
PART = r"(?:[^\s/\\:'\"<>]+[/\\])"
PATHS = re.compile(rf"(?<![\w.…<])(?:(?:~[^\s/\\]*[/\\]|[A-Za-z]:\\){PART}*|/{PART}+)")


@dataclass
class Page:
    data: dict[str, Any]
    warnings: list[str]


def page(folders: Sequence[str]) -> Page:
    """All runs below the folders. What is left out is in `warnings`, with full paths, and on the page without them."""
    runs = load_runs(folders)
    under_way, warnings = running(runs)
    rows = [*rows_of(runs.done), *rows_of(runs.unsuccessful), *under_way]
    if not rows:
        warnings.append(f"no run below {', '.join(folders)}: the page is empty")
    scenes: dict[str, int] = {}
    limit = max(COARSEST, min(FINEST, POINTS // max(len(rows), 1)))
    groups = leaderboard.grouped(rows)
    order = sorted(groups, key=lambda setting: (-len(groups[setting]), setting))
    described = leaderboard.describe_settings(
        order, [next(iter(groups[setting].values()))[0] for setting in order]
    )
    for entry, setting in zip(described, order, strict=True):
        variants_of = groups[setting]
        versus = leaderboard.versus_baseline(variants_of)
        entry["cells"] = []
        for label, (variant, members) in zip(
            leaderboard.labels(variants_of), variants_of.items(), strict=True
        ):
            line = leaderboard.cell(setting, variant, label, members) | {
                "versus": versus.get(variant)
            }
            entry["cells"].append(
                line | {"runs": [_run(row, limit, scenes, warnings) for row in members]}
            )
    data = {
        "baseline": leaderboard.BASELINE,
        "settings": described,
        "scenes": [json.loads(text) for text in scenes],
        "tables": _tables(runs, warnings),
        "looks": _looks(described),
    }
    data["warnings"] = list(dict.fromkeys(warnings))
    return Page(_pathless(data, folders), list(dict.fromkeys(warnings)))


def _run(row: Row, limit: int, scenes: dict[str, int], warnings: list[str]) -> dict[str, Any]:
    """One seed of a cell."""
    found: dict[str, Any] = {
        "id": row["run_id"],
        "seed": row["seed"],
        "status": row["status"],
        "reason": row["reason"],
    }
    found |= {
        name: leaderboard.number(row.get(f"summary.{name}"))
        for name in (*leaderboard.ACCURACIES, "best_round")
    }
    found["rounds"] = leaderboard.number(row.get("rounds"))
    found["participations"] = leaderboard.number(row.get("cost.participations"))
    found["cost"] = {
        name: value
        for name in COSTS
        if (value := leaderboard.number(row.get(f"cost.{name}"))) is not None
    }
    found["time"] = {
        name: value
        for name in TIMES
        if (value := row.get(f"time.{name}")) is not None and value == value
    }
    found["scene"] = {
        "hash": row.get("scene.hash"),
        "convention": row.get("scene.noise_convention"),
    }
    found["scene"]["wrong"] = leaderboard.number(row.get("scene.wrong_labels"))
    done = row["status"] == "done"  # others may have ended before there was anything to be written
    if done:
        found["confusion"] = traces.confusion((read_record(row["run_dir"]) or {}).get("confusion"))
    if done or (row["run_dir"] / "curve.csv").exists():
        try:
            found["curve"] = traces.curve(read_curve(row["run_dir"]), limit)
        except UserError as error:
            warnings.append(str(error))
    if done or (row["run_dir"] / "scene.npz").exists():
        try:
            text = json.dumps(traces.scene(read_scene(row["run_dir"])))
            found["scene"]["picture"] = scenes.setdefault(text, len(scenes))
        except UserError as error:
            warnings.append(str(error))
    return found


def _tables(runs: Runs, warnings: list[str]) -> list[dict[str, Any]]:
    """The published tables of which a cell was run, at every scale that has one."""
    found = []
    for scale in SCALES:
        if not (runs.done["scale"] == scale).any():
            continue
        for name in table_names():
            results = collect_results(load_table(name), runs, scale)
            warnings += results.warnings
            if results.cells:
                made = comparison_table(results)
                filled = f"{len(results.cells)} of {len(results.table.cells)} cells"
                found.append(
                    {"name": name, "title": made.title, "filled": filled, "html": html(made)}
                )
    return found


def _looks(described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Colours, dashes and markers of the figures, and each label's place in their cycles: the same in every setting."""
    every = {line["label"] for entry in described for line in entry["cells"]}
    order = sorted(every, key=lambda label: (label != leaderboard.BASELINE, " " in label, label))
    dashes = [
        DASHES[dash] if isinstance(dash, str) else [2 * length for length in dash[1]]
        for dash in style.DASHES
    ]
    return {
        "colours": style.COLOURS,
        "dashes": dashes,
        "markers": "".join(style.MARKERS),
        "order": order,
    }


def _pathless(value: Any, folders: Sequence[str]) -> Any:
    """The same data with every folder of this machine cut off from what lies in it."""
    if isinstance(value, dict):
        return {key: _pathless(entry, folders) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pathless(entry, folders) for entry in value]
    if not isinstance(value, str) or ("/" not in value and "\\" not in value):
        return value
    for folder in folders:
        value = re.sub(rf"(?<![\w/]){re.escape(folder.rstrip('/'))}/", "", value)
    return PATHS.sub("…/", value.replace(f"{Path.home()}/", "~/"))
