"""What a run tells while it goes: a line on the terminal, and log.txt in its folder."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from benchmarks.config.schema import RunConfig
from benchmarks.records.files import redact_home

QUIET_SECONDS = 10.0  # between two lines when the output is not a terminal


class Tracker:
    """One running cell. On a terminal a line that is redrawn; elsewhere a plain line now and then."""

    def __init__(self, title: str, folder: Path, console: Console, live: bool | None = None):
        self.title, self.console = title, console
        self.live = console.is_terminal if live is None else live
        self.planned = 1
        self._folder = folder
        self._last_line = time.monotonic()
        self._first: int | None = (
            None  # visits at the first sign of life, after a resume more than a round's
        )
        self._accuracy = ""
        self._progress: Progress | None = None

    def plan(self, participations: int, tests: Sequence[Mapping[str, Any]] = ()) -> None:
        """Told once, before the first round: the visits that the method will make, and the tests that a checkpoint brought along."""
        self.planned = max(participations, 1)
        if self.live:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
            )
            self._progress = Progress(*columns, console=self.console, transient=True)
            self._task = self._progress.add_task(self.title, total=self.planned, text="starting")
            self._progress.start()
        else:
            self._line("starts")

    def advance(self, round: int, stage: str, participations: int) -> None:
        if self._first is None:
            self._first, self._started = participations, time.monotonic()
        text = f"{stage} round {round}{self._accuracy} left {self._left(participations)}"
        if self._progress is not None:
            self._progress.update(self._task, completed=participations, text=text)
        elif time.monotonic() - self._last_line >= QUIET_SECONDS:
            self._line(text)

    def _left(self, participations: int) -> str:
        done = participations - (self._first or 0)
        if done <= 0:
            return "?"
        seconds = (time.monotonic() - self._started) / done * max(self.planned - participations, 0)
        return str(timedelta(seconds=round(seconds)))

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self._accuracy = f" accuracy {100 * row['accuracy']:.2f} %"
        self.log(
            f"round {row['round']} {row['stage']} participations {row['participations']} accuracy {row['accuracy']:.4f} loss {row['loss']:.4f}"
        )

    def log(self, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "log.txt", "a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {redact_home(text)}\n")

    def warn(self, text: str) -> None:
        self.log(text)
        self._line(text)

    def ended(self, record: Mapping[str, Any]) -> None:
        """Told once, when the record of a run is written, whatever its status."""

    def close(self) -> None:
        """Always told, also when the run is interrupted."""
        if self._progress is not None:
            self._progress.stop()

    def finish(self, text: str) -> None:
        """The last line, after `close`."""
        self.log(text)
        self._line(text)

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.console.print(f"{self.title}: {text}", highlight=False, markup=False, soft_wrap=True)
        sys.stdout.flush()


def make(config: RunConfig, title: str, console: Console) -> Tracker:
    """The tracker that a configuration asks for."""
    if config.tracking.name == "wandb" and config.tracking.params.mode != "disabled":
        from benchmarks.tracking.wandb_tracker import WandbTracker

        return WandbTracker(title, config, console)
    return Tracker(title, config.run_dir, console)
