"""Leases of run directories: one holder at a time, stale leases are no obstacle."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_helpers import ROOT, start_command, wait_until
from run_helpers import SilentTracker

from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.records import lease as lease_module
from benchmarks.records.lease import (
    STALE_SECONDS,
    RunLeasedError,
    file_system_time,
    hold_lease,
    machine,
    read_lease,
)
from benchmarks.run import main


def write_lease(run_dir: Path, number: int = 1, age: float = 0.0, **content: Any) -> Path:
    """A lease of another machine, renewed `age` seconds ago."""
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / f".lease.{number}"
    holder = {"host": "node7", "machine": "node7", "process": 12, "started": 1e9, "progress": {}}
    path.write_text(json.dumps(holder | content))
    renewed = file_system_time(run_dir) - age
    os.utime(path, (renewed, renewed))
    return path


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_second_holder_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    with hold_lease(tmp_path / "run"):
        with pytest.raises(
            RunLeasedError, match=rf"is running on .* \(process {os.getpid()}, since"
        ):
            hold_lease(tmp_path / "run").__enter__()
    assert list((tmp_path / "run").iterdir()) == []
    with hold_lease(tmp_path / "run"):
        pass


@pytest.mark.parametrize("age", [0.0, STALE_SECONDS - 20])
def test_lease_of_another_machine_holds_while_it_is_renewed(age: float, tmp_path: Path) -> None:
    write_lease(tmp_path, age=age)
    with pytest.raises(RunLeasedError, match=r"is running on node7 \(process 12, since 2001-"):
        hold_lease(tmp_path).__enter__()


@pytest.mark.parametrize("content", [{}, {"process": "many"}])
def test_lease_that_is_not_renewed_is_taken_over(content: dict[str, Any], tmp_path: Path) -> None:
    stale = write_lease(tmp_path, 4, STALE_SECONDS + 20, **content)
    with hold_lease(tmp_path) as lease:
        assert lease.path.name == ".lease.5" and not stale.exists()


def test_lease_of_an_ended_process_of_this_machine_is_taken_over_at_once(tmp_path: Path) -> None:
    write_lease(tmp_path, machine=machine(), process=ended_process())
    with hold_lease(tmp_path):
        pass
    write_lease(tmp_path, machine=machine(), process=os.getppid())
    with pytest.raises(RunLeasedError):
        hold_lease(tmp_path).__enter__()


def test_unreadable_lease_holds_until_it_is_old(tmp_path: Path) -> None:
    path = write_lease(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(RunLeasedError):
        hold_lease(tmp_path).__enter__()
    os.utime(path, (1e9, 1e9))
    with hold_lease(tmp_path):
        pass


def test_holder_notices_that_its_lease_was_taken(tmp_path: Path) -> None:
    """As after a suspension that was longer than the limit."""
    with hold_lease(tmp_path) as lease:
        lease.renew()
        os.utime(lease.path, (1e9, 1e9))
        lease.content["machine"] = "elsewhere"
        lease.path.write_text(json.dumps(lease.content))
        os.utime(lease.path, (1e9, 1e9))
        with hold_lease(tmp_path) as other:
            assert other.path.name == ".lease.2"
            with pytest.raises(RunLeasedError, match="was taken over by another process"):
                lease.renew()
        assert not lease.path.exists()


def test_lease_is_renewed_with_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEWAL_SECONDS", 0.01)
    with hold_lease(tmp_path) as lease:
        os.utime(lease.path, (1e9, 1e9))
        lease.progress = {"round": 7}
        deadline = time.monotonic() + 60
        while (read_lease(tmp_path) or pytest.fail()).content["progress"] != {"round": 7}:
            assert time.monotonic() < deadline
        found = read_lease(tmp_path)
        assert found is not None and found.seconds_since_renewal < 60


RACE = """
import sys, time
from pathlib import Path
from benchmarks.records.lease import RunLeasedError, hold_lease
run_dir, start, log = Path(sys.argv[1]), float(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
for number in range(40):
    time.sleep(max(start + 0.05 * number - time.time(), 0))
    try:
        with hold_lease(run_dir / str(number)):
            log.write(f"{number} {time.monotonic_ns()} ")
            time.sleep(0.01)
            log.write(f"{time.monotonic_ns()}\\n")
    except RunLeasedError:
        pass
"""


def test_only_one_of_several_processes_takes_a_stale_lease(tmp_path: Path) -> None:
    for number in range(40):
        write_lease(tmp_path / str(number), age=STALE_SECONDS + 20)
    start, logs = str(time.time() + 3), [tmp_path / f"log{i}" for i in range(4)]
    command = [sys.executable, "-c", RACE, str(tmp_path), start]
    processes = [subprocess.Popen([*command, str(log)], cwd=ROOT) for log in logs]
    assert [process.wait() for process in processes] == [0] * 4
    held: dict[str, list[tuple[int, int]]] = {}
    for line in "".join(log.read_text() for log in logs).splitlines():
        name, begin, end = line.split()
        held.setdefault(name, []).append((int(begin), int(end)))
    assert len(held) == 40
    for times in held.values():
        times.sort()
        overlaps = [a for a, b in itertools.pairwise(times) if b[0] < a[1]]
        assert not overlaps


def test_run_that_is_taken_over_writes_no_record(configure: Callable[..., RunConfig]) -> None:
    config = configure("checkpoint.every_seconds=0")
    tracker = SilentTracker(config.run_dir)

    def take(*arguments: Any) -> None:
        for path in config.run_dir.glob(".lease.*"):
            path.unlink()

    tracker.on_evaluation = take  # type: ignore[method-assign]
    with pytest.raises(RunLeasedError, match="was taken over"):
        execute_run(config, tracker)
    assert not (config.run_dir / "record.json").exists()


def test_two_sweeps_at_once_share_the_runs(tmp_path: Path) -> None:
    """Every run is executed once. A sweep goes on with the others and names those of the other."""
    command = ["-m", "scale=smoke", "executor=serial", "budget.participations=40"]
    command += ["seed=1,2,3,4", f"runs_dir={tmp_path}"]
    processes = [start_command(*command) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    logs = [path.read_text() for path in tmp_path.glob("*/log.txt")]
    assert len(logs) == 4 and all(log.count("done: ") >= 1 for log in logs)
    evaluations = [log.count("round 1 train") for log in logs]
    assert evaluations == [1, 1, 1, 1]


def test_run_that_runs_elsewhere_is_named(
    tmp_path: Path, configure: Callable[..., RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path / 'runs'}"]
    write_lease(configure().run_dir)
    assert main(command) == 2
    line = capsys.readouterr().err
    assert "is running on node7 (process 12, since " in line and line.count("\n") == 1
    assert main(["-m", *command, "budget.participations=8,32"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "running elsewhere" in shown and "node7 (process 12, since 2001-" in shown


def test_lease_of_a_killed_command_is_no_obstacle(
    tmp_path: Path, configure: Callable[..., RunConfig]
) -> None:
    config = configure(f"runs_dir={tmp_path}")
    command = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path}"]
    process = start_command(*command)
    wait_until(lambda: list(config.run_dir.glob(".lease.*")), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert main(command) == 0 and not list(config.run_dir.glob(".lease.*"))


def test_lease_of_a_lost_machine_is_an_obstacle_until_it_is_stale(
    configure: Callable[..., RunConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = configure("budget.participations=8")
    command = ["scale=smoke", "executor=serial", "budget.participations=8"]
    command += [f"runs_dir={config.runs_dir}"]
    write_lease(config.run_dir, age=2.0)
    assert main(command) == 2 and "is running on node7" in capsys.readouterr().err
    monkeypatch.setattr(lease_module, "STALE_SECONDS", 1.0)
    assert main(command) == 0 and not list(config.run_dir.glob(".lease.*"))
