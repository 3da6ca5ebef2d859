"""Progress reporting of a run: terminal line and log.txt."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from benchmarks.records.files import LOG_FILE, redact_home
from benchmarks.records.record import Record

LOG_INTERVAL_SECONDS = 10.0  # between progress lines if the output is not a terminal


class Tracker:
    """Callbacks of a run. On a terminal a progress bar, elsewhere a line every few seconds."""

    def __init__(self, title: str, run_dir: Path, console: Console, live: bool | None = None):
        self.title, self.console, self.run_dir = title, console, run_dir
        self.live = console.is_terminal if live is None else live
        self.planned_participations = 1
        self._last_line = time.monotonic()
        self._started: tuple[float, int] | None = None  # time and participations at the first round
        self._accuracy = ""
        self._progress: Progress | None = None

    def on_start(
        self, planned_participations: int, curve: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Called once, before the first round. `curve` is the learning curve of a checkpoint."""
        self.planned_participations = max(planned_participations, 1)
        if not self.live:
            self._print_line("started")
            return
        title, text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
        columns = (title, BarColumn(bar_width=24), text)
        self._progress = Progress(*columns, console=self.console, transient=True)
        total = self.planned_participations
        self._task = self._progress.add_task(self.title, total=total, text="starting")
        self._progress.start()

    def on_round(self, round: int, stage: str, participations: int) -> None:
        """Called after every round, with the participations so far."""
        self._started = self._started or (time.monotonic(), participations)
        text = f"{stage} round {round}{self._accuracy}{self._eta(participations)}"
        if self._progress is not None:
            self._progress.update(self._task, completed=participations, text=text)
        elif time.monotonic() - self._last_line >= LOG_INTERVAL_SECONDS:
            self._print_line(text)

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        """Called with every new row of the learning curve."""
        self._accuracy = f", accuracy {100 * row['accuracy']:.2f} %"
        self.log(
            f"round {row['round']} {row['stage']} participations {row['participations']} "
            f"accuracy {row['accuracy']:.4f} loss {row['loss']:.4f}"
        )

    def on_end(self, record: Record) -> None:
        """Called once, after the record is written."""

    def close(self) -> None:
        """Called last, also if the run is interrupted."""
        if self._progress is not None:
            self._progress.stop()

    def log(self, text: str) -> None:
        """Write a line to the log. Errors are ignored: the record and checkpoints report them."""
        with suppress(OSError):
            self.run_dir.mkdir(parents=True, exist_ok=True)
            with open(self.run_dir / LOG_FILE, "a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {redact_home(text)}\n")

    def report(self, text: str) -> None:
        self.log(text)
        self._print_line(text)

    def _eta(self, participations: int) -> str:
        started, first = self._started or (0.0, participations)
        if participations <= first:
            return ""
        per_participation = (time.monotonic() - started) / (participations - first)
        remaining = max(self.planned_participations - participations, 0)
        return f", {timedelta(seconds=round(per_participation * remaining))} left"

    def _print_line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.console.print(f"{self.title}: {text}", highlight=False, markup=False, soft_wrap=True)
        sys.stdout.flush()
