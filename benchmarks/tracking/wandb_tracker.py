"""A cell as a run of Weights & Biases: `tracking=wandb`. Imported only when that is chosen.

The run opens with the cell's first round and closes with its record, inside the same job, so that grids and parallel launchers do not merge runs. Its id is
the cell's: a cell that goes on from a checkpoint continues its run. W&B's step is the round, and a test that W&B has already is not sent again.
W&B is an onlooker: whatever goes wrong with it costs a line, never the run. What it is given holds no home folder, host name or user name.
"""

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb
from PIL import Image
from rich.console import Console
from wandb.util import get_core_path

from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.records.files import redact_home
from benchmarks.records.record import FINISHED
from benchmarks.tracking import wandb_service
from benchmarks.tracking.tracker import Tracker

ANSWER_SECONDS = 15.0  # that the server may take when a run opens
OPEN_SECONDS = 60.0  # that all of it may take, W&B's own start included
SEND_SECONDS = 60.0  # that sending may take when a run closes; what is left then lies on the disk
READ_SECONDS = 60.0
SETTINGS: dict[str, Any] = {
    # The terminal is the progress line's.
    "silent": True,
    "console": "off",
    "init_timeout": ANSWER_SECONDS,
    "finish_timeout": SEND_SECONDS,
    "finish_timeout_raises": True,
    # A run of the caller's own stays as it is.
    "reinit": "create_new",
    # Nothing about the machine, its user or the place of the code.
    "host": "",
    "program": "benchmarks.run",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "label_disable": True,
    "symlink": False,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
NO_REPORTS = {"WANDB_ERROR_REPORTING": "false"}  # of W&B's own errors to its makers
FILES = ("record.json", "curve.csv", "journal.jsonl")
SECTIONS = ("scene", "summary", "cost", "versions", "time")  # of the record, in W&B's summary


class WandbTracker(Tracker):
    """The terminal line and log.txt, and W&B besides."""

    def __init__(self, title: str, config: RunConfig, console: Console, live: bool | None = None):
        super().__init__(title, config.run_dir, console, live)
        self.config = config
        self._run: Any = None  # None before it opens, when it is closed, and when W&B was given up
        self._opened = False
        self._next = 0  # the first round that W&B does not have

    def plan(self, participations: int, tests: Sequence[Mapping[str, Any]] = ()) -> None:
        self._open()
        for row in tests:
            self._send(row["round"], row)
        super().plan(participations, tests)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        super().evaluated(row)
        self._send(row["round"], row)

    def ended(self, record: Mapping[str, Any]) -> None:
        if not self._opened:  # it failed before its first round
            self._open()
        if (
            record["status"] in FINISHED
        ):  # a failed run may go on, and needs the next step for its next test
            self._attempt(lambda run: self._send(record["rounds"] + 1, self._pictures()))
        self._attempt(lambda run: run.summary.update(_summary(redact_home(record))))
        self._attempt(lambda run: run.log_artifact(self._artifact()))
        self._close(0 if record["status"] == "done" else 1)

    def close(self) -> None:
        super().close()
        self._close(1)  # still open: the run was interrupted

    def _open(self) -> None:
        """Start or continue the cell's run; where the server cannot be reached, on this disk."""
        self._opened = True
        if self.config.force:  # as its record, the cell's run is written anew
            shutil.rmtree(self._folder / "wandb", ignore_errors=True)
        mode = self.config.tracking.params.mode
        try:
            if mode == "online":
                try:
                    self._start("online")
                    return
                except Exception as error:
                    self.warn(
                        f"W&B is not reached ({_first_line(error)}); kept, to be sent with: python -m wandb sync {self._shown('offline-run-*')}"
                    )
            self._start("offline")
        except Exception as error:
            self.warn(f"goes on without W&B ({_first_line(error)})")

    def _start(self, mode: Literal["online", "offline"]) -> None:
        os.environ.update(NO_REPORTS)
        config, params = self.config, self.config.tracking.params
        before = self._sessions()
        try:
            with wandb_service.within(OPEN_SECONDS):
                wandb.setup(wandb.Settings(silent=True))
                if (
                    mode == "online"
                    and wandb.run is None
                    and not wandb.login(prompt=False, verify=False)
                ):
                    raise ConnectionError("no login; `wandb login` makes one")
                self._run = wandb.init(
                    project=params.project,
                    entity=params.entity,
                    id=config.run_id,
                    name=self.title,
                    group=config.part_of,
                    job_type=config.method.name,
                    tags=[config.dataset.name, config.noise.name, config.scale],
                    config=redact_home(_whole(config)),
                    dir=self._folder,
                    mode=mode,
                    resume=None if config.force else "allow",
                    settings=wandb.Settings(**SETTINGS),
                )
                self._next = (
                    self._run.step if mode == "online" else _last_step(before) + 1
                )  # what the server has, or this disk
                self._run.define_metric("participations", hidden=True)
                self._run.define_metric("*", step_metric="participations", step_sync=False)
        except Exception:
            self._leave()
            for session in set(self._sessions()) - set(before):
                shutil.rmtree(session, ignore_errors=True)
            raise

    def _send(self, step: int, values: Mapping[str, Any]) -> None:
        if step < self._next or not values:
            return
        self._attempt(lambda run: run.log(dict(values), step=step, commit=True))
        self._next = step + 1

    def _attempt(self, act: Callable[[Any], Any]) -> None:
        """Do something with the run, if there is one; an error ends W&B's part and nothing else."""
        if self._run is None:
            return
        try:
            with wandb_service.within(SEND_SECONDS):
                act(self._run)
        except Exception as error:
            self.warn(f"goes on without W&B ({_first_line(error)})")
            self._leave()

    def _close(self, exit_code: int) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        try:
            with wandb_service.within(SEND_SECONDS + ANSWER_SECONDS):
                run.finish(exit_code=exit_code)
        except Exception as error:
            self.warn(
                f"W&B was not sent all ({_first_line(error)}); the rest goes with: python -m wandb sync --include-online {self._shown('*run-*')}"
            )
        self._leave()

    def _leave(self) -> None:
        """End W&B's service, which must not be inherited by the next cell's workers, and its own logs, which name paths."""
        self._run = None
        if wandb.run is None:
            wandb_service.end()
        for session in self._sessions():
            for name in ("logs", "tmp"):
                shutil.rmtree(session / name, ignore_errors=True)

    def _sessions(self) -> list[Path]:
        """What W&B wrote for this cell, a folder for each job that worked on it."""
        return sorted((self._folder / "wandb").glob("*run-*"))

    def _shown(self, sessions: str) -> str:
        return os.path.relpath(self._folder / "wandb" / sessions)

    def _pictures(self) -> dict[str, Any]:
        from reports.figures.run_figures import render_figures

        return {
            f"figures/{name}": wandb.Image(Image.open(io.BytesIO(png)), file_type="png")
            for name, png in render_figures(self._folder).items()
        }

    def _artifact(self) -> Any:
        """The record as it lies in the run folder: no copy is made, so that `python -m wandb sync` has to be typed where the run was."""
        artifact = wandb.Artifact(f"record-{self.config.run_id}", type="record")
        for path in (self._folder / name for name in FILES):
            if path.exists():
                artifact.add_file(
                    os.path.relpath(path), name=path.name, policy="immutable", skip_cache=True
                )
        return artifact


def records(session: Path) -> Iterator[dict[str, Any]]:
    """What lies in one of W&B's folders, by its own reader (`wandb leet inspect --json`); of a file that a kill cut short, the whole records."""
    for path in session.glob("run-*.wandb"):
        command = [
            get_core_path(),
            "leet",
            "inspect",
            "--no-observability",
            "--json",
            "--run-file",
            str(path),
            str(session.parent),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READ_SECONDS)
        if done.returncode:
            raise OSError(f"{path} cannot be read: {done.stderr.strip()}")
        yield from map(json.loads, done.stdout.splitlines())


def _last_step(sessions: Sequence[Path]) -> int:
    rows = (
        record["history"]
        for session in sessions
        for record in records(session)
        if record["type"] == "history"
    )
    return max((int(row["step"]["num"]) for row in rows), default=-1)


def _whole(config: RunConfig) -> dict[str, Any]:
    """The configuration less the places on this machine and what says nothing about the run."""
    rest = {
        name: value
        for name, value in to_plain_data(config).items()
        if name not in ("runs_dir", "data_dir", "tracking", "force", "dry")
    }
    return {"run_id": config.run_id, **rest, **config.science()}


def _summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as flat values; the scores keep the names that they have in the curve."""
    flat = {name: record[name] for name in ("status", "reason", "rounds", "oracle")} | record[
        "scores"
    ]
    return flat | {
        f"{section}/{key}": value for section in SECTIONS for key, value in record[section].items()
    }


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0] or type(error).__name__
