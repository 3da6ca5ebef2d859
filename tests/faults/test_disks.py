"""Faulty disks: one line, finished runs are kept, and the same command goes on afterwards.

Some of the tests run with `make faults` only.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_helpers import read_reproducible

from benchmarks.config.schema import RunConfig
from benchmarks.run import main
from benchmarks.tracking.tracker import Tracker
from benchmarks.tune.__main__ import main as tune_main

RUN = ["scale=smoke", "executor=serial", "budget.participations=12", "checkpoint.every_seconds=0"]
NOBODY = 65534


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little space."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("whole")
    assert main(["-m", *RUN, "seed=1,2,3", f"runs_dir={runs}"]) == 0
    return runs


def fill(disk: Path) -> Path:
    """Use up all space."""
    path = disk / "filler"
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(512)):
                pass
        except OSError:
            return path


def remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


@contextmanager
def fault_in_round(round: int, seed: int, cause: Callable[[], object]) -> Iterator[None]:
    """Cause a fault after a round of the run with this seed."""
    with pytest.MonkeyPatch.context() as patch:
        original = Tracker.on_round

        def on_round(tracker: Tracker, number: int, *others: object) -> None:
            if number == round and f"-s{seed}-" in tracker.run_dir.name:
                cause()
            original(tracker, number, *others)  # type: ignore[arg-type]

        patch.setattr(Tracker, "on_round", on_round)
        yield


def expect(command: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command. Returns what it has shown; an error is one line."""
    assert (tune_main if "trials=2" in command else main)(command) == code
    output, error = capsys.readouterr()
    assert "Traceback" not in output + error
    assert error.count("\n") == (1 if code == 2 else 0), error
    return " ".join((output + error).split())


def assert_equal(runs: Path, whole: Path, seeds: str) -> None:
    for seed in seeds:
        found, expected = (next(folder.glob(f"*-s{seed}-*")) for folder in (runs, whole))
        assert read_reproducible(found) == read_reproducible(expected)


@pytest.mark.parametrize("round", [pytest.param(1, marks=pytest.mark.faults), 2])
def test_disk_that_is_full_in_the_middle_of_a_run(
    round: int, disk: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the second round, the checkpoint of the first one is kept."""
    command = [*RUN, f"runs_dir={disk / 'runs'}"]
    with fault_in_round(round, 1, lambda: fill(disk)):
        shown = expect(command, 2, capsys)
    assert f"error: cannot use {disk / 'runs'}" in shown and "No space left on device" in shown
    assert "No space left on device" in expect(command, 2, capsys)
    (disk / "filler").unlink()
    expect(command, 0, capsys)
    log = next(disk.glob("runs/*/log.txt")).read_text()
    assert ("resuming from round 1" in log) == (round == 2)
    assert_equal(disk / "runs", whole, "1")


@pytest.mark.parametrize("fault", [pytest.param("full", marks=pytest.mark.faults), "read-only"])
def test_sweep_keeps_its_finished_runs(
    fault: str, disk: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of three runs meets the fault."""
    runs = disk / "runs"
    command = ["-m", *RUN, "seed=1,2,3", f"runs_dir={runs}"]
    causes = {"full": lambda: fill(disk), "read-only": lambda: remount(disk, "ro")}
    reason = {"full": "No space left on device", "read-only": "Read-only file system"}[fault]
    with fault_in_round(2, 2, causes[fault]):
        shown = expect(command, 2, capsys)
    assert "1 done" in shown and shown.count(f"stopped: cannot use {runs}") == 2
    assert reason in shown.partition("error: ")[2]
    assert_equal(runs, whole, "1")
    expect([*RUN, "seed=1", f"runs_dir={runs}"], 0, capsys)  # It only reads.
    assert reason in expect([*RUN, "seed=3", f"runs_dir={runs}"], 2, capsys)
    if fault == "full":
        (disk / "filler").unlink()
    else:
        remount(disk, "rw")
        for lease in runs.glob("*/.lease.*"):  # could not be removed, and its process still runs
            lease.unlink()
    assert "2 done, 0 diverged, 0 failed, 1 skipped" in expect(command, 0, capsys)
    assert_equal(runs, whole, "123")


@pytest.mark.faults
def test_disk_that_cannot_be_written_from_the_start(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full and read-only, for a run, a sweep and tuning."""
    target = f"runs_dir={disk / 'runs'}"
    commands = [[*RUN, target], ["-m", *RUN, "seed=1,2", target]]
    commands += [["method=fedavg", "trials=2", *RUN, target, f"tuned={disk / 'tuned'}"]]
    for command in commands:
        fill(disk)
        assert "No space left on device" in expect(command, 2, capsys)
        (disk / "filler").unlink()
        remount(disk, "ro")
        assert "Read-only file system" in expect(command, 2, capsys)
        remount(disk, "rw")


def test_directory_without_permission(capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to change the user")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        commands = [[*RUN, f"runs_dir={name}/runs"], ["-m", *RUN, "seed=1,2", f"runs_dir={name}"]]
        os.seteuid(NOBODY)
        try:
            for command in commands:
                command.append(f"data_dir={name}/data")
                assert "Permission denied" in expect(command, 2, capsys)
        finally:
            os.seteuid(0)


def test_file_in_place_of_a_directory(
    tmp_path: Path,
    whole: Path,
    configure: Callable[..., RunConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the runs, and of one run of a sweep, which does not stop the others."""
    (tmp_path / "file").touch()
    for target in ("file", "file/runs"):
        for sweep in ([], ["-m", "seed=1,2"]):
            shown = expect([*sweep, *RUN, f"runs_dir={tmp_path / target}"], 2, capsys)
            assert str(tmp_path / "file") in shown
    config = configure(*RUN[2:], "seed=2")
    config.runs_dir.mkdir()
    config.run_dir.touch()
    command = ["-m", *RUN, "seed=1,2,3", f"runs_dir={config.runs_dir}"]
    shown = expect(command, 2, capsys)
    assert "2 done" in shown and f"error: cannot use {config.run_dir}: File exists" in shown
    assert_equal(config.runs_dir, whole, "13")
    config.run_dir.unlink()
    expect(command, 0, capsys)
    assert_equal(config.runs_dir, whole, "123")
