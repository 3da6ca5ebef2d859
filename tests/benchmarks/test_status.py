"""The command `fln status`: states of runs from records, leases and plans of sweeps."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_leases import write_lease

from benchmarks.records.lease import STALE_SECONDS
from benchmarks.records.plans import read_plans, write_plan
from benchmarks.run import main as run_command
from benchmarks.status import StatusReader, main

SMALL = ["scale=smoke", "executor=serial", "budget.participations=8"]
PROGRESS = {"round": 12, "stage": "train", "participations": 120, "planned": 480}


def add_record(runs_dir: Path, name: str, **content: str) -> None:
    (runs_dir / name).mkdir(parents=True, exist_ok=True)
    good = Path(__file__).parents[1] / "reports/records/good/fedavg-iid-s1/record.json"
    record = json.loads(good.read_text()) | content
    (runs_dir / name / "record.json").write_text(json.dumps(record))


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """One run in each state, and a sweep of four of them."""
    add_record(tmp_path, "a-done", status="done")
    add_record(tmp_path, "b-diverged", status="diverged", reason="client 3 returned NaN or Inf")
    add_record(tmp_path, "c-failed", status="failed", reason="OSError: no space")
    write_lease(tmp_path / "d-running", progress=PROGRESS)
    write_lease(tmp_path / "e-stale", age=STALE_SECONDS + 20)
    (tmp_path / "f-stopped").mkdir()
    (tmp_path / "f-stopped" / "config.yaml").write_text("seed: 1")
    add_record(tmp_path, "g-damaged", status="perfect")
    write_plan(tmp_path, ["a-done", "d-running", "h-pending", "i-pending"])
    return tmp_path


def test_all_states_are_shown(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"runs={runs_dir}"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    counts = "1 done, 1 diverged, 1 failed, 1 running, 1 stale, 1 stopped, 1 damaged, 2 pending"
    assert counts in shown
    assert "sweep of 4 runs, started 2" in shown and "1 done, 1 running, 2 pending" in shown
    assert "d-running node7 12 2001-09-09 " in shown and "12 train 120 of 480 (25 %)" in shown
    assert "c-failed failed OSError: no space" in shown
    assert "e-stale stale was on node7 (process 12, since 2001-" in shown


def test_states_follow_the_files(runs_dir: Path) -> None:
    reader = StatusReader(runs_dir)

    def state(name: str) -> str:
        return {status.run_dir.name: status.state for status in reader.read()[0]}[name]

    assert state("c-failed") == "failed" and state("h-pending") == "pending"
    write_lease(runs_dir / "c-failed")
    assert state("c-failed") == "running"
    (runs_dir / "c-failed" / ".lease.1").unlink()
    add_record(runs_dir, "c-failed", status="done", reason="")
    assert state("c-failed") == "done"
    write_lease(runs_dir / "h-pending")
    assert state("h-pending") == "running"


def test_wrong_options_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"runs={tmp_path / 'none'}"]) == 2
    assert capsys.readouterr().err == f"error: cannot read {tmp_path / 'none'}: no such directory\n"
    assert main([f"runs={tmp_path}", "watch=yes"]) == 2
    assert capsys.readouterr().err.startswith("error: invalid watch=yes")


def test_plan_of_a_sweep_exists_until_all_runs_are_complete(tmp_path: Path) -> None:
    command = ["-m", *SMALL, f"runs_dir={tmp_path}", "seed=1,2"]
    assert run_command([*command, "dry_run=true"]) == 0 and not read_plans(tmp_path)
    assert run_command(command) == 0 and not read_plans(tmp_path)
    (run_dir,) = tmp_path.glob("fedavg-digits-s2-*")
    (run_dir / "record.json").unlink()
    write_lease(run_dir)
    assert run_command(command) == 0
    (plan,) = read_plans(tmp_path)
    assert len(plan.run_ids) == 2 and abs(plan.started - time.time()) < 60
    (tmp_path / ".sweeps" / "other.json").write_text("[")
    assert read_plans(tmp_path) == [plan]


def test_sweeps_that_start_at_once_write_the_same_plan(tmp_path: Path) -> None:
    """A writer never meets the unfinished file of another one."""
    code = "import sys, pathlib; from benchmarks.records.plans import write_plan\n"
    code += "for _ in range(300): write_plan(pathlib.Path(sys.argv[1]), ['a', 'b'])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen(command, cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [plan.run_ids for plan in read_plans(tmp_path)] == [["a", "b"]]
    assert len(list((tmp_path / ".sweeps").iterdir())) == 1


def test_many_records_are_read_quickly(tmp_path: Path) -> None:
    """10,000 records take about a second. The limit is for a busy machine."""
    for number in range(2000):
        add_record(tmp_path, f"run-{number}", oracle="x" * 4000)
    reader = StatusReader(tmp_path)
    for _ in range(2):
        start = time.process_time()
        assert len(reader.read()[0]) == 2000
        assert time.process_time() - start < 2


def test_watch_refreshes_until_it_is_interrupted(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            raise KeyboardInterrupt
        write_lease(runs_dir / f"new-{len(sleeps)}", progress=PROGRESS)

    monkeypatch.setattr("benchmarks.status.time.sleep", sleep)
    assert main([f"runs={runs_dir}", "watch=true"]) == 130
    output, error = capsys.readouterr()
    assert error == "interrupted\n" and "3 running" in output
