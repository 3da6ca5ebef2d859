"""A run that is killed goes on from its checkpoint and ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import SilentTracker, Stopped, StoppingTracker, learnt, loop, timeless, without_times

from benchmarks.config import sweep
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.records.record import read_record
from benchmarks.run import main

ROOT = Path(__file__).parent.parent.parent
# Stages, changed labels and state on clients: all that a checkpoint must hold.
CELL = [
    "method=fedcorr",
    "scale=smoke",
    "budget.participations=48",
    "checkpoint.every_seconds=0",
    "executor=processes",
    "executor.workers=2",
]


def start(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.run", *CELL, f"runs_dir={folder}", *overrides]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (
            "the run ended before the moment came"
        )
        time.sleep(0.002)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    return [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_killed_process_is_resumed_by_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], configure: Callable[..., RunConfig]
) -> None:
    """Killed before the first checkpoint, in the preprocessing stage, and near the end; in between another process tries the same cell."""
    config = configure(*CELL, f"runs_dir={tmp_path / 'killed'}")
    log, command = config.run_dir / "log.txt", [*CELL, f"runs_dir={tmp_path / 'killed'}"]
    for moment in ("", "round 8 preprocessing", "round 20 "):
        process = start(tmp_path / "killed")
        wait_for(
            (config.run_dir / "scene.npz").exists
            if not moment
            else lambda moment=moment: log.exists() and moment in log.read_text(),
            process,
        )
        workers = children(process)
        os.kill(process.pid, signal.SIGSTOP)
        if moment == "round 20 ":
            assert main(command) == 2
            assert "another process is at work on this cell" in capsys.readouterr().err
            assert main(["-m", *command, "seed=1"]) == 0
            assert "0 done, 0 diverged, 0 failed, 1 skipped" in capsys.readouterr().out
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert read_record(config.run_dir) is None and len(workers) == 2
        deadline = time.monotonic() + 30
        while any(map(is_running, workers)):
            assert time.monotonic() < deadline, "workers outlive their parent"
            time.sleep(0.01)
    assert main(command) == 0
    resumed = [
        line.partition("goes on from ")[2]
        for line in log.read_text().splitlines()
        if "goes on from" in line
    ]
    assert len(resumed) >= 2 and int(resumed[-1].split()[-1]) >= 19

    whole = configure(*CELL, f"runs_dir={tmp_path / 'whole'}")
    execute_run(whole, SilentTracker(whole.run_dir))
    assert without_times(config.run_dir) == without_times(whole.run_dir)
    assert (config.run_dir / "scene.npz").read_bytes() == (whole.run_dir / "scene.npz").read_bytes()
    assert {path.name for path in config.run_dir.iterdir()} == {
        "record.json",
        "curve.csv",
        "journal.jsonl",
        "config.yaml",
        "scene.npz",
        "log.txt",
        ".lock",
    }


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 4]) + data[1001:]


def emptied(data: bytes) -> bytes:
    return b""


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the resumed runs are compared with."""
    ((_, config),) = sweep.expand(
        ["scale=smoke", "executor=serial", f"runs_dir={tmp_path_factory.mktemp('runs')}"]
    )
    run = loop(config)
    return [timeless(run.curve), learnt(run)]


@pytest.mark.parametrize("damage", [truncated, flipped, emptied])
@pytest.mark.parametrize(
    ("files", "first_round"),
    [(["checkpoint.bin"], 3), (["checkpoint.bin", "checkpoint.previous.bin"], 0)],
    ids=["newest", "both"],
)
def test_damaged_checkpoint_is_named_and_not_used(
    damage: Callable[[bytes], bytes],
    files: list[str],
    first_round: int,
    configure: Callable[..., RunConfig],
    whole_run: list[Any],
) -> None:
    config = configure("checkpoint.every_seconds=0")
    with pytest.raises(Stopped):
        loop(config, stops=[5])  # leaves the checkpoints of rounds 4 and 3
    for name in files:
        path = config.run_dir / name
        path.write_bytes(damage(path.read_bytes()))
    run = loop(config)
    lines = run.tracker.lines  # type: ignore[attr-defined]
    for name in files:
        (line,) = (line for line in lines if str(config.run_dir / name) in line)
        assert (
            "is damaged" in line
            and ("going back to the one before it" if name == "checkpoint.bin" else "starting anew")
            in line
        )
        assert line in (config.run_dir / "log.txt").read_text()
    assert ("goes on from round 3" in lines) == (first_round == 3)
    assert [timeless(run.curve), learnt(run)] == whole_run


def test_damaged_checkpoint_never_takes_the_place_of_a_whole_one(
    configure: Callable[..., RunConfig],
) -> None:
    """The newest is damaged, the run goes on from the one before and is killed while it saves: the whole one is still there."""
    config = configure("checkpoint.every_seconds=0")
    with pytest.raises(Stopped):
        loop(config, stops=[4])
    newest, previous = config.run_dir / "checkpoint.bin", config.run_dir / "checkpoint.previous.bin"
    whole = previous.read_bytes()
    newest.write_bytes(b"rubbish")
    with pytest.raises(Stopped):
        loop(config, stops=[3])
    assert not newest.exists() and previous.read_bytes() == whole


def test_finished_cell_is_left_alone_unless_forced(
    configure: Callable[..., RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure()
    command = ["scale=smoke", "executor=serial", f"runs_dir={config.runs_dir}"]
    assert main(command) == 0
    first, times = (
        without_times(config.run_dir),
        {
            path: path.stat().st_mtime_ns
            for path in config.run_dir.iterdir()
            if path.name not in ("log.txt", ".lock")
        },
    )
    assert main(command) == 0
    assert "finished before; force=true runs it again" in " ".join(capsys.readouterr().out.split())
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert main([*command, "force=true"]) == 0
    assert all(path.stat().st_mtime_ns > time for path, time in times.items())
    assert without_times(config.run_dir) == first


def test_failed_cell_is_tried_again_from_its_checkpoint(
    configure: Callable[..., RunConfig],
) -> None:
    config = configure("checkpoint.every_seconds=0")
    record = execute_run(config, StoppingTracker(config.run_dir, [5]))
    assert (record["status"], record["reason"], record["summary"]) == ("failed", "Stopped: ", {})
    assert read_record(config.run_dir) == record and (config.run_dir / "checkpoint.bin").exists()
    tracker = SilentTracker(config.run_dir)
    assert execute_run(config, tracker)["status"] == "done"
    assert "goes on from round 4" in tracker.lines
