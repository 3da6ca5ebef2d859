"""Weights & Biases tracking (`tracking=wandb`).

The W&B run starts with the first round and ends with the record, in the same process, so that runs
of a sweep are not merged. Its id is the run id, so a resumed run continues its W&B run. The W&B
step is the round. Evaluations that W&B already has are not sent again. A W&B failure is logged in
one line and never stops the run. W&B receives no home directory, host name or user name.
"""

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import wandb
from PIL import Image
from rich.console import Console
from wandb.util import get_core_path

from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.records.files import CURVE_FILE, JOURNAL_FILE, RECORD_FILE, redact_home
from benchmarks.records.record import FINAL_STATUSES, Record
from benchmarks.tracking.tracker import Tracker
from benchmarks.tracking.wandb_service import service_timeout, teardown
from methods.core.errors import first_line

INIT_TIMEOUT_S = 15.0  # for the reply of the server
OPEN_TIMEOUT_S = 60.0  # for the whole start of a W&B run
FINISH_TIMEOUT_S = 60.0  # for the upload; the rest stays on disk
READ_TIMEOUT_S = 60.0
SETTINGS: dict[str, Any] = {
    # Keep W&B output off the terminal, which shows the progress line.
    "silent": True,
    "console": "off",
    "init_timeout": INIT_TIMEOUT_S,
    "finish_timeout": FINISH_TIMEOUT_S,
    "finish_timeout_raises": True,
    # Do not change a W&B run that the caller has started.
    "reinit": "create_new",
    # Send nothing about the machine, its user or the location of the code.
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
NO_ERROR_REPORTING_ENV = {"WANDB_ERROR_REPORTING": "false"}  # of W&B's own errors
ARTIFACT_FILES = (RECORD_FILE, CURVE_FILE, JOURNAL_FILE)
SUMMARY_SECTIONS = ("scenario", "summary", "cost", "versions", "time")  # keys of the record
LOCAL_KEYS = ("runs_dir", "data_dir", "tracking", "force", "dry_run")  # not sent
# Functions run_dir -> {name: PNG bytes} that installed packages provide.
FIGURES_ENTRY_POINT = "fln.run_figures"


class WandbTracker(Tracker):
    """Terminal line and log.txt, and a W&B run."""

    def __init__(self, title: str, config: RunConfig, console: Console, live: bool | None = None):
        super().__init__(title, config.run_dir, console, live)
        self.config = config
        self._run: Any = None  # None: not started, closed, or ended by an error
        self._was_opened = False
        self._next_step = 0  # the first step that W&B does not have

    def on_start(
        self, planned_participations: int, curve: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._open()
        for row in curve:
            self._send(row["round"], row)
        super().on_start(planned_participations, curve)

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        super().on_evaluation(row)
        self._send(row["round"], row)

    def on_end(self, record: Record) -> None:
        if not self._was_opened:  # The run failed before its first round.
            self._open()
        # A failed run may resume and then needs the next step for its next evaluation.
        if record.status in FINAL_STATUSES:
            self._call_wandb(lambda run: self._send(record.rounds + 1, self._figures()))
        self._call_wandb(lambda run: run.summary.update(_wandb_summary(record)))
        self._call_wandb(lambda run: run.log_artifact(self._artifact()))
        self._close(0 if record.status == "done" else 1)

    def close(self) -> None:
        super().close()
        self._close(1)  # Only an interrupted run is still open.

    def _open(self) -> None:
        """Start or continue the W&B run, offline if the server is unreachable."""
        self._was_opened = True
        if self.config.force:  # Overwrite the W&B run, as the record is overwritten.
            shutil.rmtree(self.run_dir / "wandb", ignore_errors=True)
        try:
            if self.config.tracking.params.mode == "online":
                try:
                    return self._start("online")
                except Exception as error:
                    fix = f"python -m wandb sync {self._display_path('offline-run-*')}"
                    unreachable = f"W&B is unreachable ({first_line(error)})"
                    self.report(f"{unreachable}; saved locally, upload later with: {fix}")
            self._start("offline")
        except Exception as error:
            self._report_failure(error)

    def _start(self, mode: Literal["online", "offline"]) -> None:
        os.environ.update(NO_ERROR_REPORTING_ENV)
        earlier = self._sessions()
        try:
            with service_timeout(OPEN_TIMEOUT_S):
                wandb.setup(wandb.Settings(silent=True))
                is_online = mode == "online"
                if is_online and not wandb.run and not wandb.login(prompt=False, verify=False):
                    raise ConnectionError("not logged in; run `wandb login`")
                self._run = wandb.init(mode=mode, **self._init_arguments())
                # Online the server counts the steps, offline the files on disk do.
                self._next_step = self._run.step if is_online else _last_step(earlier) + 1
                self._run.define_metric("participations", hidden=True)
                self._run.define_metric("*", step_metric="participations", step_sync=False)
        except Exception:
            self._shut_down_service()
            for session in set(self._sessions()) - set(earlier):
                shutil.rmtree(session, ignore_errors=True)
            raise

    def _init_arguments(self) -> dict[str, Any]:
        config, params = self.config, self.config.tracking.params
        return {
            "project": params.project,
            "entity": params.entity,
            "id": config.run_id,
            "name": self.title,
            "group": config.experiment_name,
            "job_type": config.method.name,
            "tags": [config.dataset.name, config.noise.name, config.scale],
            "config": redact_home(_wandb_config(config)),
            "dir": self.run_dir,
            "resume": None if config.force else "allow",
            "settings": wandb.Settings(**SETTINGS),
        }

    def _send(self, step: int, values: Mapping[str, Any]) -> None:
        if step < self._next_step or not values:
            return
        self._call_wandb(lambda run: run.log(dict(values), step=step, commit=True))
        self._next_step = step + 1

    def _call_wandb(self, function: Callable[[Any], Any]) -> None:
        """Call a function with the W&B run, if there is one. An error ends the use of W&B."""
        if self._run is None:
            return
        try:
            with service_timeout(FINISH_TIMEOUT_S):
                function(self._run)
        except Exception as error:
            self._report_failure(error)
            self._shut_down_service()

    def _report_failure(self, error: Exception) -> None:
        self.report(f"continuing without W&B ({first_line(error)})")

    def _close(self, exit_code: int) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        try:
            with service_timeout(FINISH_TIMEOUT_S + INIT_TIMEOUT_S):
                run.finish(exit_code=exit_code)
        except Exception as error:
            fix = f"python -m wandb sync --include-online {self._display_path('*run-*')}"
            self.report(f"W&B upload incomplete ({first_line(error)}); finish with: {fix}")
        self._shut_down_service()

    def _shut_down_service(self) -> None:
        """End the service, which the next run's workers must not inherit, and delete its logs.

        The logs contain local paths.
        """
        self._run = None
        if wandb.run is None:
            teardown()
        for session in self._sessions():
            for name in ("logs", "tmp"):
                shutil.rmtree(session / name, ignore_errors=True)

    def _sessions(self) -> list[Path]:
        """W&B's directories for this run, one per process that worked on it."""
        return sorted((self.run_dir / "wandb").glob("*run-*"))

    def _display_path(self, sessions: str) -> str:
        return os.path.relpath(self.run_dir / "wandb" / sessions)

    def _figures(self) -> dict[str, Any]:
        providers = entry_points(group=FIGURES_ENTRY_POINT)
        if not providers:
            self.log(f"no figures for W&B: no installed package provides {FIGURES_ENTRY_POINT}")
        return {
            f"figures/{name}": wandb.Image(Image.open(io.BytesIO(png)), file_type="png")
            for provider in providers
            for name, png in provider.load()(self.run_dir).items()
        }

    def _artifact(self) -> Any:
        """The files of the run. They are not copied, so `wandb sync` needs the same directory."""
        artifact = wandb.Artifact(f"record-{self.config.run_id}", type="record")
        for path in (self.run_dir / name for name in ARTIFACT_FILES):
            if path.exists():
                local = os.path.relpath(path)
                artifact.add_file(local, name=path.name, policy="immutable", skip_cache=True)
        return artifact


def read_entries(session: Path) -> Iterator[dict[str, Any]]:
    """Log entries in a W&B directory, read with `wandb leet inspect`.

    Of a truncated file, the complete entries are read.
    """
    for path in session.glob("run-*.wandb"):
        options = ["--no-observability", "--json", "--run-file", str(path), str(session.parent)]
        command = [get_core_path(), "leet", "inspect", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT_S)
        if done.returncode:
            raise OSError(f"cannot read {path}: {done.stderr.strip()}")
        yield from map(json.loads, done.stdout.splitlines())


def _last_step(sessions: Sequence[Path]) -> int:
    entries = (entry for session in sessions for entry in read_entries(session))
    rows = (entry["history"] for entry in entries if entry["type"] == "history")
    return max((int(row["step"]["num"]) for row in rows), default=-1)


def _wandb_config(config: RunConfig) -> dict[str, Any]:
    """The run configuration without local paths and execution-only keys."""
    plain: dict[str, Any] = to_plain_data(config)
    sent = {name: value for name, value in plain.items() if name not in LOCAL_KEYS}
    return {"run_id": config.run_id, **sent, **config.hashed_config()}


def _wandb_summary(record: Record) -> dict[str, Any]:
    """The record as flat values. Metrics keep their names in the learning curve."""
    content = redact_home(record.to_dict())
    flat = {name: content[name] for name in ("status", "reason", "rounds", "oracle")}
    flat |= content["metrics"]
    for section in SUMMARY_SECTIONS:
        flat |= {f"{section}/{key}": value for key, value in content[section].items()}
    return flat
