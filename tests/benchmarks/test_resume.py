"""Interrupted runs resume from a checkpoint with the results of an uninterrupted run."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_helpers import assert_ended, descendants, start_command, wait_until
from run_helpers import (
    InterruptedRunError,
    SilentTracker,
    StoppingTracker,
    drop_seconds,
    learned_state,
    read_reproducible,
    run_to_end,
)

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.records.record import read_record
from benchmarks.run import main

# FedCorr has stages, corrected labels and client states, all of which are in a checkpoint.
OPTIONS = [
    "method=fedcorr",
    "scale=smoke",
    "budget.participations=48",
    "checkpoint.every_seconds=0",
    "executor=processes",
    "executor.workers=2",
]


def test_same_command_resumes_a_killed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], configure: Callable[..., RunConfig]
) -> None:
    """Killed before the first checkpoint, in the first stage, and near the end.

    While it is stopped, other processes do not execute the run.
    """
    config = configure(*OPTIONS, f"runs_dir={tmp_path / 'killed'}")
    log, command = config.run_dir / "log.txt", [*OPTIONS, f"runs_dir={tmp_path / 'killed'}"]
    for moment in ("", "round 8 preprocessing", "round 20 "):
        process = start_command(*command)
        wait_until(
            (config.run_dir / "scenario.npz").exists
            if not moment
            else lambda moment=moment: log.exists() and moment in log.read_text(),
            process,
        )
        workers = descendants(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        if moment == "round 20 ":
            assert main(command) == 2
            assert "it is running on" in capsys.readouterr().err
            assert main(["-m", *command, "seed=1"]) == 0
            assert (
                "0 done, 0 diverged, 0 failed, 0 skipped, 1 running elsewhere"
                in capsys.readouterr().out
            )
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert read_record(config.run_dir) is None and len(workers) == 2
        assert_ended(workers)
    assert main(command) == 0
    resumed = [
        line.partition("resuming from ")[2]
        for line in log.read_text().splitlines()
        if "resuming from" in line
    ]
    assert len(resumed) >= 2 and int(resumed[-1].split()[-1]) >= 19

    whole = configure(*OPTIONS, f"runs_dir={tmp_path / 'whole'}")
    execute_run(whole, SilentTracker(whole.run_dir))
    assert read_reproducible(config.run_dir) == read_reproducible(whole.run_dir)
    assert (config.run_dir / "scenario.npz").read_bytes() == (
        whole.run_dir / "scenario.npz"
    ).read_bytes()
    assert {path.name for path in config.run_dir.iterdir()} == {
        "record.json",
        "curve.csv",
        "journal.jsonl",
        "config.yaml",
        "scenario.npz",
        "log.txt",
    }


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 4]) + data[1001:]


def emptied(data: bytes) -> bytes:
    return b""


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results of an uninterrupted run."""
    config = compose_run(
        ["scale=smoke", "executor=serial", f"runs_dir={tmp_path_factory.mktemp('runs')}"]
    )
    run = run_to_end(config)
    return [drop_seconds(run.curve), learned_state(run)]


@pytest.fixture(scope="module")
def interrupted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run that was interrupted in round 5, with checkpoints of rounds 4 and 3."""
    runs_dir = f"runs_dir={tmp_path_factory.mktemp('runs')}"
    options = ["scale=smoke", "executor=serial", "checkpoint.every_seconds=0", runs_dir]
    config = compose_run(options)
    with pytest.raises(InterruptedRunError):
        run_to_end(config, stops=[5])
    return config.run_dir


@pytest.mark.parametrize("damage", [truncated, flipped, emptied])
@pytest.mark.parametrize(
    ("files", "first_round"),
    [(["checkpoint.bin"], 3), (["checkpoint.bin", "checkpoint.previous.bin"], 0)],
    ids=["latest", "both"],
)
def test_damaged_checkpoint_is_reported_and_not_used(
    damage: Callable[[bytes], bytes],
    files: list[str],
    first_round: int,
    configure: Callable[..., RunConfig],
    whole_run: list[Any],
    interrupted_run: Path,
) -> None:
    config = configure("checkpoint.every_seconds=0")
    shutil.copytree(interrupted_run, config.run_dir)
    for name in files:
        path = config.run_dir / name
        path.write_bytes(damage(path.read_bytes()))
    run = run_to_end(config)
    lines = run.tracker.lines  # type: ignore[attr-defined]
    for name in files:
        (line,) = (line for line in lines if str(config.run_dir / name) in line)
        assert (
            "damaged" in line
            and (
                "using the previous"
                if name == "checkpoint.bin"
                else "starting from the first round"
            )
            in line
        )
        assert line in (config.run_dir / "log.txt").read_text()
    assert ("resuming from round 3" in lines) == (first_round == 3)
    assert [drop_seconds(run.curve), learned_state(run)] == whole_run


def test_damaged_checkpoint_does_not_replace_an_intact_one(
    configure: Callable[..., RunConfig],
) -> None:
    """A run that resumes from the previous checkpoint is killed before its next save."""
    config = configure("checkpoint.every_seconds=0")
    with pytest.raises(InterruptedRunError):
        run_to_end(config, stops=[4])
    latest, previous = config.run_dir / "checkpoint.bin", config.run_dir / "checkpoint.previous.bin"
    whole = previous.read_bytes()
    latest.write_bytes(b"rubbish")
    with pytest.raises(InterruptedRunError):
        run_to_end(config, stops=[3])
    assert not latest.exists() and previous.read_bytes() == whole


def test_completed_run_is_repeated_only_with_force(
    configure: Callable[..., RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure()
    command = ["scale=smoke", "executor=serial", f"runs_dir={config.runs_dir}"]
    assert main(command) == 0
    first, times = (
        read_reproducible(config.run_dir),
        {
            path: path.stat().st_mtime_ns
            for path in config.run_dir.iterdir()
            if path.name != "log.txt"
        },
    )
    assert main(command) == 0
    assert "already completed; use force=true to rerun" in " ".join(capsys.readouterr().out.split())
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert main([*command, "force=true"]) == 0
    assert all(path.stat().st_mtime_ns > time for path, time in times.items())
    assert read_reproducible(config.run_dir) == first


def test_failed_run_resumes_from_its_checkpoint(
    configure: Callable[..., RunConfig],
) -> None:
    config = configure("checkpoint.every_seconds=0")
    record = execute_run(config, StoppingTracker(config.run_dir, [5]))
    assert (record.status, record.reason) == ("failed", "InterruptedRunError: ")
    assert record.summary is None
    assert read_record(config.run_dir) == record and (config.run_dir / "checkpoint.bin").exists()
    tracker = SilentTracker(config.run_dir)
    assert execute_run(config, tracker).status == "done"
    assert "resuming from round 4" in tracker.lines
