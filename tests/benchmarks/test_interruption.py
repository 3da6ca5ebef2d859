"""Real signals to real commands: a checkpoint is written and no process is left."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from process_helpers import assert_ended, cpu_seconds, descendants, start_command, wait_until
from run_helpers import SilentTracker, read_reproducible

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.run import main

WORKERS = ["executor=processes", "executor.workers=2"]
# Rounds that end soon, with default checkpoints (every 30 s), and one that does not end.
SHORT_ROUNDS = ["scale=smoke", "budget.participations=100", *WORKERS]
ENDLESS_ROUND = ["scale=smoke", "train.local_epochs=1000000", *WORKERS]
JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]


def log_of(run_dir: Path) -> str:
    log = run_dir / "log.txt"
    return log.read_text() if log.exists() else ""


def wait_for_first_round(process: subprocess.Popen[str]) -> list[int]:
    """Wait until both workers of a run compute. Returns their process ids."""

    def busy() -> list[int]:
        return [pid for pid in descendants(process.pid) if cpu_seconds(pid) > 0.5]

    wait_until(lambda: len(busy()) == 2, process)
    return busy()


def test_signal_ends_a_run_after_a_checkpoint(
    tmp_path: Path, configure: Callable[..., RunConfig]
) -> None:
    """Each signal goes to all processes of the group, as signals of a terminal do."""
    command = [*SHORT_ROUNDS, f"runs_dir={tmp_path / 'runs'}"]
    config, resumed = configure(*command), 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start_command(*command)
        wait_until(lambda: f"round {resumed + 2} " in log_of(config.run_dir), process)
        os.killpg(process.pid, number)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        note, message = error.splitlines()
        assert note.startswith("interrupted: the current round ends first")
        found = re.fullmatch(
            r"interrupted: rerun the same command to resume from the checkpoint of round (\d+)",
            message,
        )
        assert found and int(found[1]) >= resumed + 2
        resumed = int(found[1])
        assert message in log_of(config.run_dir)
        assert f"round {resumed + 1} " not in log_of(config.run_dir)
    assert main(command) == 0
    assert f"resuming from round {resumed}" in log_of(config.run_dir)
    whole = configure("budget.participations=100", f"runs_dir={tmp_path / 'whole'}")
    execute_run(whole, SilentTracker(whole.run_dir))
    assert read_reproducible(config.run_dir) == read_reproducible(whole.run_dir)


def test_second_signal_ends_a_run_at_once(tmp_path: Path) -> None:
    process = start_command(*ENDLESS_ROUND, f"runs_dir={tmp_path}")
    workers = wait_for_first_round(process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None and "ends first" in process.stderr.readline()
    os.kill(process.pid, signal.SIGHUP)
    _, error = process.communicate(timeout=5)
    assert process.returncode == 128 + signal.SIGHUP
    message = "no checkpoint yet; rerun the same command to start from the first round"
    assert error == f"interrupted: {message}\n"
    assert_ended(workers)


def test_workers_of_a_killed_run_end(tmp_path: Path) -> None:
    """Also in the middle of a task, where they do not read from their pipe."""
    process = start_command(*ENDLESS_ROUND, f"runs_dir={tmp_path}")
    workers = wait_for_first_round(process)
    process.kill()
    process.communicate()
    assert_ended(workers)


@pytest.mark.parametrize("launcher", [[], JOBLIB], ids=["basic", "joblib"])
def test_signal_ends_a_sweep_after_the_checkpoints_of_its_runs(
    launcher: list[str], tmp_path: Path
) -> None:
    command = ["-m", *SHORT_ROUNDS, "seed=1,2,3", f"runs_dir={tmp_path}", *launcher]
    process = start_command(*command)
    at_once = 2 if launcher else 1
    logs = lambda: [log_of(path) for path in tmp_path.glob("fedavg-*")]  # noqa: E731
    wait_until(lambda: sum("round 3 " in log for log in logs()) == at_once, process)
    below = descendants(process.pid)
    os.kill(process.pid, signal.SIGHUP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP, error
    assert error.splitlines()[-1].startswith("interrupted: rerun the same command to ")
    assert_ended(below)
    assert len(list(tmp_path.glob("*/checkpoint.bin"))) == len(logs()) == at_once
    assert not list(tmp_path.glob("*/record.json"))
    rounds = [re.findall("resume from the checkpoint of round (.*)", log) for log in logs()]
    assert all(len(found) == 1 and int(found[0]) >= 3 for found in rounds)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_of_a_joblib_sweep_end_with_it(number: int, tmp_path: Path) -> None:
    """SIGKILL ends the sweep itself. With SIGTERM, a second signal ends it at once."""
    command = ["-m", *ENDLESS_ROUND, "seed=1,2", f"runs_dir={tmp_path}", *JOBLIB]
    process = start_command(*command)
    wait_until(lambda: len(list(tmp_path.glob("*/config.yaml"))) == 2, process)
    below = descendants(process.pid)
    os.kill(process.pid, number)
    if number == signal.SIGTERM:
        assert process.stderr is not None and "ends first" in process.stderr.readline()
        os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    assert len(below) >= 6  # two workers of joblib, each with two of its own
    assert_ended(below)


def test_joblib_sweep_goes_on_after_the_death_of_a_worker(tmp_path: Path) -> None:
    """The other run resumes, too, because joblib ends all of its workers."""
    command = ["-m", "scale=smoke", "budget.participations=100", "executor=serial", "seed=1,2"]
    process = start_command(*command, f"runs_dir={tmp_path}", *JOBLIB)
    wait_until(lambda: len(list(tmp_path.glob("*/.lease.*"))) == 2, process)
    lease = next(tmp_path.glob("*/.lease.*"))
    wait_until(lambda: lease.stat().st_size > 0, process)
    os.kill(json.loads(lease.read_text())["process"], signal.SIGKILL)
    output, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert "2 done, 0 diverged, 0 failed, 0 skipped" in output
    assert "Traceback" not in error


def test_ignored_signal_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        config = compose_run(["scale=smoke", "executor=serial", f"runs_dir={tmp_path}"])
        tracker = SilentTracker(config.run_dir)
        monkeypatch.setattr(tracker, "on_round", lambda *a: signal.raise_signal(signal.SIGHUP))
        assert execute_run(config, tracker).status == "done"
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_error_after_a_lost_interruption_is_the_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if a library discarded the exception of the signal in an import, which later fails."""

    def break_import(*arguments: Any) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise RecursionError("an incomplete module")

    command = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path}"]
    for function in ("benchmarks.loop.preflight.validate_runs", "benchmarks.data.load"):
        with monkeypatch.context() as patch:
            patch.setattr(function, break_import)
            assert main(command) == 128 + signal.SIGTERM
        assert capsys.readouterr().err == "interrupted: rerun the same command to go on\n"
    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.loop.runner.evaluate", break_import)
        assert main(command) == 128 + signal.SIGTERM
    assert "rerun the same command to start" in capsys.readouterr().err
    assert main(command) == 0, "nothing of the signal is left"
    assert not [path for path in tmp_path.glob("*/record.json") if "done" not in path.read_text()]
