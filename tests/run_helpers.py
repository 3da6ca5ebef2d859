"""Helpers for tests of runs: trackers, byte-for-byte comparison, the example package."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.config.compose import Composer, hydra_session
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import Run
from benchmarks.records.files import CURVE_FILE, JOURNAL_FILE, RECORD_FILE
from benchmarks.tracking.tracker import Tracker

PLUGIN = Path(__file__).parent / "plugin_example"


def compose_runs(runs: Iterable[Iterable[str]]) -> list[RunConfig]:
    """Compose and validate several runs in one Hydra session."""
    with hydra_session():
        composer = Composer()
        return [composer.compose_run(overrides) for overrides in runs]


class SilentTracker(Tracker):
    """Collects lines instead of printing them."""

    def __init__(self, run_dir: Path):
        super().__init__("test", run_dir, Console(), live=False)
        self.lines: list[str] = []

    def _print_line(self, text: str) -> None:
        self.lines.append(text)


class InterruptedRunError(Exception):
    """Stands for any cause that ends a process between two rounds."""


class StoppingTracker(SilentTracker):
    """Interrupts a run after one of the given rounds."""

    def __init__(self, run_dir: Path, rounds: Sequence[int]):
        super().__init__(run_dir)
        self.rounds = rounds

    def on_round(self, round: int, *others: Any) -> None:
        if round in self.rounds:
            raise InterruptedRunError


def run_to_end(
    config: RunConfig, prepare: Callable[[Run], None] = lambda run: None, stops: Sequence[int] = ()
) -> Run:
    """Run all rounds, or up to a round in `stops`. `prepare` is called before the first round."""
    run = Run(config, StoppingTracker(config.run_dir, stops))
    prepare(run)
    try:
        run.run()
    finally:
        run.executor.close()
    return run


def to_comparable(value: Any) -> Any:
    """Nested data in a form in which equality means equal bytes, also for NaN."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_comparable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_comparable(entry) for entry in value]
    return value


def learned_state(run: Run) -> Any:
    """Server state and client states of a run, in comparable form."""
    method, pool = run.method, run.pool
    return to_comparable([method.state, method.eval_models(), pool.relabeled, pool.states])


def drop_seconds(curve: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A learning curve without its time column."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in curve]


def read_reproducible(run_dir: Path) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Record, learning curve and journal of a run, without times."""
    record = json.loads((run_dir / RECORD_FILE).read_text())
    del record["time"]
    with open(run_dir / CURVE_FILE, newline="") as file:
        curve = drop_seconds(list(csv.DictReader(file)))
    journal = run_dir / JOURNAL_FILE
    return record, curve, journal.read_text() if journal.exists() else ""
