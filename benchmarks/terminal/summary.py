"""What the terminal shows of cells and their records."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks import data, models
from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.config.sweep import Cell
from benchmarks.records import estimates
from benchmarks.records.record import FINISHED, read_record
from benchmarks.scenario.scenario import build_scenario
from methods.core.errors import UserError


def console() -> Console:
    """A terminal at its own width; a file or a pipe wide enough for a table."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def title(config: RunConfig) -> str:
    noise = {
        k: v
        for k, v in vars(config.noise.params).items()
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    level = ",".join(f"{v:g}" for v in noise.values())
    return f"{config.method.name} {config.dataset.name} {config.noise.name}{f'({level})' if level else ''} seed {config.seed}"


def one_line(record: Mapping[str, Any]) -> str:
    if record["status"] != "done":
        return f"{record['status']}: {record['reason']}"
    summary, time = record["summary"], record["time"]
    return f"done: best {percent(summary['best'])} last-10 {percent(summary['last10'])} in {time['seconds_method'] + time['seconds_evaluation']:.1f} s"


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def finished(cells: Sequence[Cell]) -> set[str]:
    """Cells that a former command has finished; they are not run again unless forced."""
    return {
        config.run_id for _, config in cells if not config.force and _status(config) in FINISHED
    }


def _status(config: RunConfig) -> str:
    record = read_record(config.run_dir)
    return "to run" if record is None else str(record["status"])


def validate_runs(cells: Sequence[Cell]) -> None:
    """Build every distinct data set, model check and scene once, so that an impossible cell stops the grid before it starts."""
    from benchmarks.loop.runner import build_method

    seen: set[str] = set()
    datasets: dict[str, data.Dataset] = {}
    for overrides, config in cells:
        world = repr(
            (
                config.dataset,
                config.model,
                config.partition,
                config.noise,
                config.federation,
                config.seed,
            )
        )
        key = repr(config.dataset)
        try:
            if key not in datasets:
                datasets[key] = data.load(
                    config.dataset.name, config.data_dir, config.dataset.params
                )
            if world not in seen:
                models.validate_model(config.model.name, datasets[key].shape, config.model.params)
                build_scenario(config, datasets[key])
                seen.add(world)
            build_method(config, datasets[key])
        except UserError as error:
            raise UserError(
                f"{error} (cell {' '.join(_telling(overrides))})" if len(cells) > 1 else str(error)
            ) from error


def print_cells(cells: Sequence[Cell], already: set[str]) -> None:
    """What would run, and how long it may take: ~ from other training settings or another method's speed, ? where nothing comparable is done."""
    records = estimates.measured(cells[0][1].runs_dir)
    times = {
        config.run_id: estimates.estimate(config, records)
        for _, config in cells
        if config.run_id not in already
    }
    left = f", {estimates.total(times.values())} left" if times else ""
    table = Table(
        "cell", "status", "time", "record", title=f"{len(cells)} cells, {len(already)} done{left}"
    )
    for overrides, config in cells:
        time = "" if config.run_id in already else str(times[config.run_id] or "?")
        table.add_row(
            " ".join(_telling(overrides)) or "defaults", _status(config), time, str(config.run_dir)
        )
    console().print(table)


def _telling(overrides: Sequence[str]) -> list[str]:
    return [
        text
        for text in overrides
        if text.split("=")[0] not in ("runs_dir", "data_dir", "force", "dry")
        and not text.startswith(("executor", "hydra"))
    ]


def print_grid(cells: Sequence[Cell], already: set[str]) -> int:
    """One row per cell: what it was, how it ended, its numbers; below, why a cell has no result. Exit code 1 when a cell failed."""
    varied = _varied(cells)
    columns = [
        *varied,
        "status",
        "best %",
        "last 10 %",
        "client F1",
        "labels right %",
        "visits",
        "seconds",
    ]
    counts = {"done": 0, "diverged": 0, "failed": 0, "skipped": 0}
    rows: list[list[str]] = []
    reasons: list[str] = []
    for overrides, config in cells:
        record = read_record(config.run_dir) or {
            "status": "skipped",
            "reason": "another process is at work on it",
        }
        status = record["status"]
        before = config.run_id in already
        counts["skipped" if before else status] += 1
        shown = f"{status} before" if before else status
        if status != "done" and not before:
            reasons.append(
                f"{' '.join(_telling(overrides))}: {status}: {record['reason']} ({config.run_dir}/log.txt)"
            )
        chosen = dict(text.split("=", 1) for text in overrides)
        rows.append([*(chosen.get(key, "") for key in varied), shown, *_numbers(record)])
    shown_columns = [i for i in range(len(columns)) if any(row[i] != "-" for row in rows)]
    table = Table(
        *(columns[i] for i in shown_columns),
        title="Comparison: test accuracy, best and mean of the last 10 tests",
    )
    for row in rows:
        table.add_row(*(row[i] for i in shown_columns))
    screen = console()
    screen.print(table)
    screen.print(
        ", ".join(f"{number} {name}" for name, number in counts.items())
        + f"; records under {cells[0][1].runs_dir}/",
        highlight=False,
    )
    for line in reasons:
        screen.print(line, highlight=False, markup=False, soft_wrap=True)
    return 1 if counts["failed"] else 0


def _varied(cells: Sequence[Cell]) -> list[str]:
    """Keys whose values differ between cells; all keys when there is one cell."""
    values: dict[str, set[str]] = {}
    for overrides, _ in cells:
        for text in _telling(overrides):
            key, value = text.split("=", 1)
            values.setdefault(key, set()).add(value)
    varied = [key for key, found in values.items() if len(found) > 1]
    return varied or list(values)


def _numbers(record: Mapping[str, Any]) -> list[str]:
    summary, scores = record.get("summary", {}), record.get("scores", {})
    f1 = scores.get("clients/f1")
    right = "-"
    if "labels/accuracy_after" in scores:
        right = f"{100 * scores['labels/accuracy_before']:.1f} -> {100 * scores['labels/accuracy_after']:.1f}"
    time = record.get("time", {})
    seconds = f"{time['seconds_method'] + time['seconds_evaluation']:.1f}" if time else "-"
    visits = str(record.get("cost", {}).get("participations", "-"))
    best, last = (
        f"{100 * summary[name]:.2f}" if name in summary else "-" for name in ("best", "last10")
    )
    return [best, last, "-" if f1 is None else f"{f1:.3f}", right, visits, seconds]


def print_configurations(cells: Sequence[Cell]) -> None:
    for _, config in cells:
        print(yaml.safe_dump(to_plain_data(config), sort_keys=False))


def print_run(config: RunConfig, before: bool) -> int:
    """The short summary of a single run. Exit code 1 unless it is done."""
    record = read_record(config.run_dir)
    if record is None:
        raise UserError(
            f"{config.run_dir} holds no record: another process is at work on this cell"
        )
    summary, scores, cost, time = (
        record.get(key, {}) for key in ("summary", "scores", "cost", "time")
    )
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("run", title(config))
    table.add_row(
        "status", record["status"] + (f": {record['reason']}" if record.get("reason") else "")
    )
    if summary:
        best, last, final = (percent(summary[name]) for name in ("best", "last10", "final"))
        table.add_row(
            "accuracy",
            f"best {best} (round {summary['best_round']}), last 10 {last}, final {final}",
        )
    found = {name: scores.get(f"clients/{name}") for name in ("precision", "recall", "f1")}
    if found["precision"] is None:
        table.add_row("noisy clients", "this method does not look for them")
    else:
        table.add_row(
            "noisy clients",
            ", ".join(f"{name} {value:.3f}" for name, value in found.items() if value is not None),
        )
    if "labels/accuracy_after" in scores:
        table.add_row(
            "labels",
            f"{percent(scores['labels/accuracy_before'])} right as given, {percent(scores['labels/accuracy_after'])} as corrected",
        )
    if cost:
        megabytes = (cost["bytes_down"] + cost["bytes_up"]) / 1e6
        seconds = time["seconds_method"] + time["seconds_evaluation"]
        table.add_row(
            "cost",
            f"{cost['participations']} visits, {cost['samples_trained']} samples trained, {megabytes:.1f} MB sent, {seconds:.1f} s",
        )
    table.add_row(
        "record",
        f"{config.run_dir}{' (finished before; force=true runs it again)' if before else ''}",
    )
    console().print(table)
    return 0 if record["status"] == "done" else 1
