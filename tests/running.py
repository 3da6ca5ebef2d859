"""What tests of runs share: a quiet tracker, results compared byte for byte, records without times, and the example of a foreign package."""

import csv
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import Run
from benchmarks.tracking.tracker import Tracker

PLUGIN = Path(__file__).parent / "plugin_example"
PLUGIN_CONF = "hydra.searchpath=[pkg://example_plugin.conf]"


class SilentTracker(Tracker):
    """Keeps the lines instead of printing them."""

    def __init__(self, folder: Path):
        super().__init__("test", folder, Console(), live=False)
        self.lines: list[str] = []

    def _line(self, text: str) -> None:
        self.lines.append(text)


class Stopped(Exception):
    """Stands for whatever ends a process between two rounds."""


class StoppingTracker(SilentTracker):
    """Stops a run after some of its rounds."""

    def __init__(self, folder: Path, rounds: Sequence[int]):
        super().__init__(folder)
        self.rounds = rounds

    def advance(self, round: int, *others: Any) -> None:
        if round in self.rounds:
            raise Stopped


def loop(
    config: RunConfig, prepare: Callable[[Run], None] = lambda run: None, stops: Sequence[int] = ()
) -> Run:
    """A whole run, or up to where it is stopped; `prepare` sees it before its first round."""
    run = Run(config, StoppingTracker(config.run_dir, stops))
    prepare(run)
    try:
        run.loop()
    finally:
        run.executor.close()
    return run


def plain(value: Any) -> Any:
    """Nested data in a form whose equality is equality of bytes, NaN included."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def learnt(run: Run) -> Any:
    """Everything that a run has learned: the state of the server and of the clients."""
    method, fleet = run.method, run.fleet
    return plain([method.state, method.eval_models(), fleet.changed_labels, fleet.states])


def timeless(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in curve]


def without_times(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Record, curve and journal of a run folder, less what the clock decides."""
    record = json.loads((folder / "record.json").read_text())
    del record["time"]
    with open(folder / "curve.csv", newline="") as file:
        curve = timeless(list(csv.DictReader(file)))
    journal = folder / "journal.jsonl"
    return record, curve, journal.read_text() if journal.exists() else ""
