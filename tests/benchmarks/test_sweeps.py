"""The run command: single runs, sweeps, results tables and exit codes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import PLUGIN, read_reproducible

from benchmarks.config import sweep
from benchmarks.config.compose import compose_run
from benchmarks.interruption import raise_if_requested
from benchmarks.loop import runner
from benchmarks.run import main, run_from_config
from methods.core import registry
from methods.core.params import PositiveInt, parameters
from methods.core.task import Reply, RoundContext
from methods.fedavg import FedAvg

ROOT = Path(__file__).parent.parent.parent
SMALL = ["scale=smoke", "executor=serial", "budget.participations=8"]


@parameters
class FailsParams:
    round: PositiveInt = 1


class Fails(FedAvg):
    """FedAvg that raises an exception in a round."""

    name = "fails"
    params: FailsParams

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        if ctx.round == self.params.round:
            raise RuntimeError("two lines of\ntrouble")
        super().aggregate(replies, ctx)


@pytest.fixture
def failing_method(tmp_path: Path) -> Iterator[str]:
    """Register a method that fails. Returns the override of the search path of its YAML file."""
    (tmp_path / "conf" / "method").mkdir(parents=True)
    (tmp_path / "conf" / "method" / "fails.yaml").write_text("name: fails\nround: 1\n")
    registry.list_methods()
    registry.register(family="test", paper="none, 2024")(Fails)
    yield f"hydra.searchpath=[file://{tmp_path}/conf]"
    del registry.METHODS._components["fails"]


def read_records(runs: Path) -> dict[str, dict[str, Any]]:
    """Records of a directory of runs, by method."""
    found = [json.loads(path.read_text()) for path in runs.glob("*/record.json")]
    return {record["config"]["method"]["name"]: record for record in found}


def test_failed_run_does_not_stop_the_sweep(
    failing_method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fails` raises, fedprox was completed by an earlier command, median is done."""
    runs = tmp_path / "runs"
    command = [*SMALL, f"runs_dir={runs}", failing_method]
    assert main([*command, "method=fedprox"]) == 0
    capsys.readouterr()
    assert main(["-m", *command, "method=fails,fedprox,median"]) == 1
    shown = capsys.readouterr().out
    assert "1 done, 0 diverged, 1 failed, 1 skipped" in shown
    assert "test split; protocol digits, hyperparameters common" in " ".join(shown.split())
    assert f"method=fails: failed: RuntimeError: two lines of ({runs}/fails-" in shown
    rows = [
        line.split()[:2] for line in shown.splitlines() if line.startswith("  ") and line.strip()
    ]
    assert rows[-3:] == [["fails", "failed"], ["fedprox", "done"], ["median", "done"]]
    assert shown.count("(earlier)") == 1
    found = read_records(runs)
    assert {name: record["status"] for name, record in found.items()} == {
        "fails": "failed",
        "fedprox": "done",
        "median": "done",
    }
    assert found["fails"]["summary"] == {} and found["fails"]["rounds"] == 1
    log = (next(runs.glob("fails-*")) / "log.txt").read_text()
    assert "Traceback" in log and "in aggregate" in log and "trouble" in log


def test_failed_single_run_has_exit_code_1(
    failing_method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, f"runs_dir={tmp_path}/runs", failing_method, "method=fails"]) == 1
    captured = capsys.readouterr()
    assert "failed: RuntimeError: two lines of" in captured.out and captured.err == ""


def test_diverged_run_has_round_and_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    command = [*SMALL, f"runs_dir={runs}"]
    assert main(["-m", *command, "train.lr=1e12,0.01"]) == 0
    shown = capsys.readouterr().out
    assert "1 done, 1 diverged, 0 failed, 0 skipped" in shown
    records = [json.loads(path.read_text()) for path in runs.glob("*/record.json")]
    (record,) = (record for record in records if record["status"] == "diverged")
    assert record["reason"].startswith("round 0 (train): client ")
    assert record["reason"].endswith("returned NaN or Inf") and record["reason"] in shown
    assert main([*command, "train.lr=1e12"]) == 1
    assert "already completed" in " ".join(capsys.readouterr().out.split())


def test_run_without_any_finite_model_is_diverged(tmp_path: Path) -> None:
    """ARFL skips client models with NaN or Inf. The initial model alone is not a result."""
    assert main([*SMALL, f"runs_dir={tmp_path}", "method=arfl", "train.lr=1e12"]) == 1
    (record,) = read_records(tmp_path).values()
    assert record["cost"]["dropped_models"] == record["cost"]["participations"] == 8
    assert record["status"] == "diverged" and record["summary"] == {}
    assert record["reason"] == "all 8 client models had NaN or Inf"


@pytest.mark.parametrize("key", ["dry", "dry_run"])
def test_dry_run_lists_the_runs_only(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert main(["-m", *SMALL, f"runs_dir={runs}", "seed=1,2,3", f"{key}=true"]) == 0
    shown = capsys.readouterr().out
    assert "3 runs, 0 done" in shown and shown.count("pending") == 3
    assert all(f"seed={seed}" in shown for seed in (1, 2, 3))
    assert main([*SMALL, f"runs_dir={runs}", f"{key}=true"]) == 0
    assert "1 runs, 0 done" in capsys.readouterr().out
    assert not runs.exists()


def test_scale_without_a_setting_for_the_default_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-m", "experiment=fedcorr_table9", "scale=paper", f"runs_dir={tmp_path}"]
    assert main([*command, "dry_run=true"]) == 0
    assert "7 runs, 0 done" in capsys.readouterr().out


def test_completed_runs_are_not_launched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SMALL, f"runs_dir={tmp_path}"]
    assert main(["-m", *command, "seed=1,2"]) == 0
    capsys.readouterr()
    assert main(["-m", *command, "seed=1,2,3"]) == 0
    shown = capsys.readouterr().out
    assert "1 done, 0 diverged, 0 failed, 2 skipped" in shown
    started = [line for line in shown.splitlines() if line.endswith("started")]
    assert len(started) == 1 and "seed 3" in started[0]


def test_results_of_runs_without_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`~KEY` is an override without a value."""
    command = ["-m", *SMALL, f"runs_dir={tmp_path}", "method=fedprox", "~method.mu"]
    assert main(command) == 0
    assert "1 done, 0 diverged, 0 failed, 0 skipped" in capsys.readouterr().out


def test_runs_are_in_the_order_of_the_command_line(tmp_path: Path) -> None:
    runs = sweep.expand([*SMALL, "method=fedprox,fedavg", "seed=range(1,3)"])
    found = [(run.config.method.name, run.config.seed) for run in runs]
    assert found == [("fedprox", 1), ("fedprox", 2), ("fedavg", 1), ("fedavg", 2)]
    assert len({run.config.run_id for run in runs}) == 4


@pytest.mark.parametrize("sweep_flag", [[], ["-m"]])
def test_interrupted_command_has_exit_code_130(
    sweep_flag: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise_if_requested()

    monkeypatch.setattr(runner, "execute_run", interrupt)
    assert main([*sweep_flag, *SMALL, f"runs_dir={tmp_path}"]) == 130
    error = capsys.readouterr().err
    assert error == "interrupted: rerun the same command to go on\n"


def test_exception_of_the_suite_has_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only user errors and Hydra's errors about the command line are one line."""

    def fail(*arguments: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(runner, "execute_run", fail)
    with pytest.raises(ValueError, match="a defect"):
        main([*SMALL, f"runs_dir={tmp_path}"])
    with pytest.raises(ValueError, match="a defect"):
        main(["-m", *SMALL, f"runs_dir={tmp_path}"])


def test_run_from_config_needs_no_command(tmp_path: Path) -> None:
    record = run_from_config(compose_run([*SMALL, f"runs_dir={tmp_path}"]))
    assert record is not None and record.status == "done"
    assert read_records(tmp_path) == {"fedavg": record.to_dict()}


def run_in_shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m benchmarks.run` in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.run", *arguments],
        cwd=ROOT,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin", **environment},
        capture_output=True,
        text=True,
    )


def test_method_of_an_installed_package_needs_no_search_path(tmp_path: Path) -> None:
    arguments = ["-m", *SMALL, "method=norm_clipping,fedavg", f"runs_dir={tmp_path}"]
    run = run_in_shell(*arguments, PYTHONPATH=str(PLUGIN))
    assert run.returncode == 0 and run.stderr == "", run.stderr
    assert "2 done, 0 diverged, 0 failed, 0 skipped" in run.stdout
    found = read_records(tmp_path)
    assert found["norm_clipping"]["config"]["method"] == {"name": "norm_clipping", "limit": 1.0}
    assert found["norm_clipping"]["scenario"]["hash"] == found["fedavg"]["scenario"]["hash"]


def test_joblib_launcher_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    basic, joblib = tmp_path / "basic", tmp_path / "joblib"
    assert main(["-m", *SMALL, "seed=1,2", f"runs_dir={basic}"]) == 0
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    run = run_in_shell("-m", *SMALL, "seed=1,2", f"runs_dir={joblib}", *launcher)
    assert run.returncode == 0, run.stderr
    assert "2 done, 0 diverged, 0 failed, 0 skipped" in run.stdout
    for run_dir in basic.glob("fedavg-*"):
        assert read_reproducible(joblib / run_dir.name) == read_reproducible(run_dir)
