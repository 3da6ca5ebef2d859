"""Whole runs on the second device: records, resume, workers. `auto` is that device here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import second_device
import torch
import yaml
from run_helpers import SilentTracker, drop_seconds, to_comparable

from benchmarks.config.compose import compose_run
from benchmarks.config.sweep import PlannedRun
from benchmarks.loop.preflight import validate_runs
from benchmarks.loop.runner import Run
from benchmarks.records.record import Record
from benchmarks.run import main
from methods.core.errors import UserError

SMALL = ["noise.rho=0.6", "train.batch_size=50", "executor.compile=off"]


def results_of(run: Run) -> list[Any]:
    """Learning curve, journal, models, labels and client states."""
    pool, models = run.pool, run.method.state.models
    learned = to_comparable([models, dict(sorted(pool.relabeled.items())), pool.states])
    return [drop_seconds(run.curve), run.journal, learned, run.confusion.tolist()]


@pytest.fixture
def run_on(tmp_path: Any) -> Callable[..., Run]:
    """run_on("cpu", "method=lsg") -> the finished run on a device."""

    def execute(device: str, *overrides: str) -> Run:
        base = ["scale=smoke", *SMALL, "executor=serial"]
        target = [f"runs_dir={tmp_path / device}", f"executor.device={device}"]
        config = compose_run([*base, *target, *overrides])
        run = Run(config, SilentTracker(config.run_dir))
        try:
            run.run()
        finally:
            run.executor.close()
        return run

    return execute


def test_plain_record_says_which_device(run_small: Callable[..., dict[str, Any]]) -> None:
    record = run_small("executor.device=auto")
    device = record["time"]["device"]
    assert (device["type"], device["name"]) == ("fln", "second device")
    assert device["dropout_generator"] == "fln"
    assert device["nondeterministic"] == [] and device["peak_memory_mb"] >= 0
    assert run_small("executor.device=cpu", "force=true")["time"]["device"]["type"] == "cpu"


def test_spawned_workers_give_the_same_bytes(run_on: Callable[..., Run]) -> None:
    workers = ["executor=processes", "executor.workers=2"]
    found = run_on("auto", "method=fedcorr", *workers, "budget.participations=16")
    pool = found.executor._pool  # type: ignore[attr-defined]
    assert [type(worker.process).__name__ for worker in pool] == ["SpawnProcess"] * 2
    assert {str(worker.context.device) for worker in pool} == {"fln:0"}
    expected = run_on("cpu", "method=fedcorr", "budget.participations=16")
    assert results_of(found) == results_of(expected)


@pytest.mark.parametrize("devices", [("auto", "cpu"), ("cpu", "auto")])
@pytest.mark.parametrize("method", ["fedcorr", "lsg", "fedcnml"])
def test_run_resumes_on_another_device(
    run_on: Callable[..., Run], configure: Callable[..., Any], devices: Any, method: str
) -> None:
    overrides = [f"method={method}", *SMALL]
    config = configure(*overrides, f"executor.device={devices[0]}")
    stopped = Run(config, SilentTracker(config.run_dir))
    stopped.method.setup(stopped.spec, stopped.pool_view, stopped.context("setup"))
    for _ in range(3):
        stopped.run_round(str(stopped.method.stage(stopped.round)))
    stopped._save_checkpoint()
    tracker = SilentTracker(stopped.config.run_dir)
    resumed = Run(configure(*overrides, f"executor.device={devices[1]}"), tracker)
    resumed.run()
    assert any("resuming from round 3" in line for line in tracker.lines)
    assert results_of(resumed) == results_of(run_on("cpu", f"method={method}"))


def test_out_of_memory_is_one_line_and_the_sweep_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its peak, the run of mlp has 7.0 MB on the device, that of digits_cnn 4.1 MB."""
    base = ["scale=smoke", "executor=serial", "budget.participations=4", f"runs_dir={tmp_path}"]
    with second_device.memory_limit(torch.accelerator.memory_allocated() + 5_500_000):
        assert main(["-m", *base, "model=mlp,digits_cnn", "executor.device=auto"]) == 1
    assert "1 done, 0 diverged, 1 failed, 0 skipped" in capsys.readouterr().out
    records = [Record.model_validate_json(p.read_text()) for p in tmp_path.glob("*/record.json")]
    found = {str(record.config["model"]["name"]): record for record in records}
    assert found["digits_cnn"].status == "done" and found["mlp"].status == "failed"
    assert found["mlp"].reason == (
        "OutOfMemoryError: fln:0 has no memory left: lower executor.workers or train.batch_size, "
        "or use executor.device=cpu"
    )


@pytest.mark.parametrize("device", ["cuda", "mps", "cuda:1"])
def test_unavailable_device_is_one_line(configure: Callable[..., Any], device: str) -> None:
    config = configure(f"executor.device={device}")
    with pytest.raises(UserError) as error:
        validate_runs([PlannedRun([], config)])
    expected = f"invalid executor.device='{device}': expected a device of this machine: cpu, fln"
    assert str(error.value) == expected


def test_precision_is_part_of_the_run_id_only_if_it_is_not_fp32(
    configure: Callable[..., Any], run_small: Callable[..., dict[str, Any]]
) -> None:
    ids = [configure(f"executor.precision={p}").run_id for p in ("fp32", "tf32", "bf16")]
    assert len(set(ids)) == 3 and ids[0] == configure("executor.device=cpu").run_id
    assert "precision" not in configure().hashed_config()
    with pytest.raises(UserError, match="invalid executor.precision='tf32': expected fp32 or bf16"):
        validate_runs([PlannedRun([], configure("executor.precision=tf32"))])
    records = [
        run_small(f"executor.precision={p}", "executor.device=auto") for p in ("fp32", "bf16")
    ]
    assert [record["status"] for record in records] == ["done"] * 2
    assert records[1]["config"]["precision"] == "bf16" and not records[1]["time"]["compiled"]
    accuracies = [record["summary"]["final"] for record in records]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.05)


def test_tuning_finds_the_values_of_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from benchmarks.tune.__main__ import main as tune

    found = []
    for device in ("auto", "cpu"):
        target = tmp_path / device
        base = ["scale=smoke", "executor=serial", "trials=2", "budget.participations=8"]
        paths = [f"runs_dir={target}", f"tuned={target / 'tuned'}"]
        options = ["method=fedavg", "seeds=1000", f"executor.device={device}"]
        assert tune([*base, *paths, *options]) == 0
        (path,) = target.glob("tuned/*/*/fedavg.yaml")
        content = yaml.safe_load(path.read_text())
        found.append((content["overrides"], content["trials"]))
        records = [
            Record.model_validate_json(p.read_text()) for p in target.glob("*/*/record.json")
        ]
        assert {r.time.device.type for r in records} == {"fln" if device == "auto" else "cpu"}
    assert found[0] == found[1]
