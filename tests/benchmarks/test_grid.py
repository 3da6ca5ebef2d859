"""A grid from its command line: every cell has its turn whatever happens to the others, and the table says how each one ended."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import PLUGIN, read_reproducible

from benchmarks.config import sweep
from benchmarks.run import main, run_experiment
from methods.core import registry
from methods.core.task import Reply, RoundContext
from methods.fedavg import FedAvg

ROOT = Path(__file__).parent.parent.parent
SMALL = ["scale=smoke", "executor=serial", "budget.participations=8"]


@dataclasses.dataclass(frozen=True)
class FailsParams:
    round: int = 1


class Fails(FedAvg):
    """FedAvg with a fault in it.

    Deviations: it stops.
    """

    name = "fails"
    Params = FailsParams
    params: FailsParams

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        if ctx.round == self.params.round:
            raise RuntimeError("two lines of\ntrouble")
        super().aggregate(replies, ctx)


@pytest.fixture
def failing_method(tmp_path: Path) -> Iterator[str]:
    """Registered as another package's method would be; gives the override by which its YAML is found."""
    (tmp_path / "conf" / "method").mkdir(parents=True)
    (tmp_path / "conf" / "method" / "fails.yaml").write_text("name: fails\nround: 1\n")
    registry.list_methods()
    registry.register(family="test", paper="none, 2024")(Fails)
    yield f"hydra.searchpath=[file://{tmp_path}/conf]"
    del registry.METHODS._components["fails"]


def records(folder: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder.glob("*/record.json")]
    return {record["config"]["method"]["name"]: record for record in found}


def test_diverged_and_failed_cells_do_not_stop_the_grid(
    failing_method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fedavg diverges for its learning rate, `fails` raises, fedprox has finished before, median is done now."""
    runs = tmp_path / "runs"
    command = [*SMALL, f"runs_dir={runs}", failing_method]
    assert main([*command, "method=fedprox"]) == 0
    capsys.readouterr()
    assert main(["-m", *command, "method=fails,fedprox,median"]) == 1
    shown = capsys.readouterr().out
    assert "1 done, 0 diverged, 1 failed, 1 skipped" in shown
    assert f"method=fails: failed: RuntimeError: two lines of ({runs}/fails-" in shown
    assert [line.split()[3] for line in shown.splitlines() if line.startswith("│ f")] == [
        "failed",
        "done",
    ] and "(earlier)" in shown
    found = records(runs)
    assert {name: record["status"] for name, record in found.items()} == {
        "fails": "failed",
        "fedprox": "done",
        "median": "done",
    }
    assert found["fails"]["summary"] == {} and found["fails"]["rounds"] == 1
    log = (next(runs.glob("fails-*")) / "log.txt").read_text()
    assert "Traceback" in log and "in aggregate" in log and "trouble" in log


def test_divergence_is_a_result_with_round_and_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    command = [*SMALL, f"runs_dir={runs}"]
    assert main(["-m", *command, "train.lr=1e12,0.01"]) == 0
    shown = capsys.readouterr().out
    assert "1 done, 1 diverged, 0 failed, 0 skipped" in shown
    (record,) = (
        record
        for path in runs.glob("*/record.json")
        if (record := json.loads(path.read_text()))["status"] == "diverged"
    )
    assert record["reason"].startswith("round 0 (train): client ") and record["reason"].endswith(
        "returned NaN or Inf"
    )
    assert record["reason"] in shown
    assert main([*command, "train.lr=1e12"]) == 1, (
        "a single run that is not done says so to the shell"
    )
    assert "already completed" in " ".join(capsys.readouterr().out.split())


def test_method_that_may_drop_models_goes_on_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, f"runs_dir={tmp_path}", "method=arfl", "train.lr=1e12"]) == 0
    (record,) = records(tmp_path).values()
    assert record["cost"]["dropped_models"] == record["cost"]["participations"] == 8


def test_dry_run_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    assert main(["-m", *SMALL, f"runs_dir={runs}", "seed=1,2,3", "dry=true"]) == 0
    shown = capsys.readouterr().out
    assert (
        "3 runs, 0 done" in shown
        and shown.count("pending") == 3
        and all(f"seed={seed}" in shown for seed in (1, 2, 3))
    )
    assert not runs.exists()


def test_configuration_is_printed_and_nothing_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, f"runs_dir={tmp_path / 'runs'}", "method=fedprox", "--cfg"]) == 0
    shown = capsys.readouterr().out
    assert (
        "method:\n  name: fedprox\n  params:\n    mu: 1.0\n" in shown
        and "participations: 8\n" in shown
    )
    assert not (tmp_path / "runs").exists()


def test_cells_come_in_the_order_of_the_command(tmp_path: Path) -> None:
    cells = sweep.expand(
        [*SMALL, "method=fedprox,fedavg", "seed=range(1,3)", f"runs_dir={tmp_path}"]
    )
    assert [(config.method.name, config.seed) for _, config in cells] == [
        ("fedprox", 1),
        ("fedprox", 2),
        ("fedavg", 1),
        ("fedavg", 2),
    ]
    assert len({config.run_id for _, config in cells}) == 4
    assert sweep.sweeps(["seed=1,2", "noise.rho=0.4", "model.hidden=[1,2]"]) == ["seed=1,2"]


def test_experiment_can_be_imported_and_run(tmp_path: Path) -> None:
    from hydra import compose

    with sweep._hydra():
        raw = compose("config", [*SMALL, f"runs_dir={tmp_path}"])
    record = run_experiment(raw)
    assert record is not None and record.status == "done"
    assert records(tmp_path) == {"fedavg": record.to_dict()}


def test_whoever_had_set_up_hydra_finds_it_as_it_was(hydra_conf: None) -> None:
    from hydra.core.global_hydra import GlobalHydra

    before = GlobalHydra.instance().hydra
    sweep.expand(SMALL)
    assert before is not None and GlobalHydra.instance().hydra is before


@pytest.mark.parametrize(
    "place", ["pkg://example_plugin.conf", f"file://{PLUGIN}/example_plugin/conf"]
)
def test_method_of_another_package_runs_from_the_shell(place: str, tmp_path: Path) -> None:
    """Not installed: its folder with the entry point is on the path. Its YAML is found where hydra.searchpath says."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.run",
        "-m",
        *SMALL,
        "method=norm_clipping,fedavg",
        f"hydra.searchpath=[{place}]",
        f"runs_dir={tmp_path}",
    ]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": str(PLUGIN), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and run.stderr == "", run.stderr
    assert "2 done, 0 diverged, 0 failed, 0 skipped" in run.stdout
    found = records(tmp_path)
    assert found["norm_clipping"]["config"]["method"] == {"name": "norm_clipping", "limit": 1.0}
    assert found["norm_clipping"]["scene"]["hash"] == found["fedavg"]["scene"]["hash"]


def test_cells_run_side_by_side_through_another_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    one, other = tmp_path / "one", tmp_path / "other"
    grid_of_two = ["-m", *SMALL, "seed=1,2"]
    assert main([*grid_of_two, f"runs_dir={one}"]) == 0
    joblib = [
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "hydra.launcher.backend=multiprocessing",
    ]
    assert main([*grid_of_two, f"runs_dir={other}", *joblib]) == 0
    assert capsys.readouterr().out.count("2 done, 0 diverged, 0 failed, 0 skipped") == 2
    for run_dir in one.glob("fedavg-*"):
        assert read_reproducible(other / run_dir.name) == read_reproducible(run_dir)
