"""Time estimates from the records of comparable runs."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.federation.cost import CostMeter
from benchmarks.records.estimates import (
    Estimate,
    estimate,
    format_duration,
    format_total,
    load_timed_records,
)
from benchmarks.records.record import (
    DeviceSection,
    Record,
    ScenarioSection,
    Status,
    Summary,
    Time,
    write_record,
)
from benchmarks.run import main

SMALL = ["scale=smoke", "executor=serial"]  # 8 clients, 32 participations of one epoch


def make_config(*overrides: str) -> RunConfig:
    config = compose_run([*SMALL, *overrides])
    return config


def make_record(
    seconds: float, *overrides: str, participations: int = 16, status: Status = "done"
) -> Record:
    config = make_config(*overrides)
    return Record(
        protocol_version=2,
        run_id=config.run_id,
        status=status,
        config=config.hashed_config(),
        scenario=ScenarioSection(hash="0123"),
        rounds=8,
        summary=Summary(best=0.5, last10=0.5, final=0.5),
        metrics={},
        cost=CostMeter(participations=participations),
        time=Time(seconds_method=0.75 * seconds, seconds_evaluation=0.25 * seconds),
    )


def test_same_training_parameters_are_preferred() -> None:
    """32 participations took 24 s. The run with another learning rate does not count."""
    records = [make_record(8), make_record(16, "noise.rho=0.2"), make_record(1000, "train.lr=0.5")]
    assert estimate(make_config("noise.rho=0.8"), records) == Estimate(24, is_approximate=False)
    assert estimate(make_config(), records[2:]) == Estimate(2000, is_approximate=True)


def test_runs_on_another_device_do_not_count() -> None:
    record = make_record(8)
    on_gpu = record.time.model_copy(update={"device": DeviceSection(type="cuda")})
    records = [record, record.model_copy(update={"time": on_gpu})]
    assert estimate(make_config("executor.device=cpu"), records[1:]) is None
    for device in ("cpu", "cuda:1", "auto"):
        config = make_config(f"executor.device={device}")
        assert estimate(config, records) == Estimate(16, is_approximate=False)


def test_fedavg_is_used_for_a_method_without_runs() -> None:
    fedprox = make_config("method=fedprox")
    assert estimate(fedprox, [make_record(8)]) == Estimate(16, is_approximate=True)
    records = [make_record(8), make_record(10, "method=fedprox")]
    assert estimate(fedprox, records) == Estimate(20, is_approximate=False)
    assert estimate(make_config(), records[1:]) is None
    assert estimate(make_config(), [make_record(8, "model=mlp")]) is None


@pytest.mark.parametrize(
    ("overrides", "seconds", "is_approximate"),
    [
        (["federation.num_clients=16"], 8, False),
        (["train.local_epochs=2"], 32, True),
        (["budget.participations=320"], 160, False),
        (["method=jointopt", "method.budget_fraction=0.1", "method.joint_epochs=30"], 48, True),
    ],
)
def test_estimate_is_proportional_to_the_work(
    overrides: list[str], seconds: float, is_approximate: bool
) -> None:
    found = estimate(make_config(*overrides), [make_record(8)])
    assert found == Estimate(pytest.approx(seconds), is_approximate)  # type: ignore[arg-type]


def test_unfinished_and_corrupt_records_are_skipped(tmp_path: Path) -> None:
    done = make_record(8)
    write_record(tmp_path / "0", done)
    write_record(tmp_path / "1", make_record(8, status="failed"))
    write_record(tmp_path / "2", make_record(8, participations=0))
    for name, text in (("3", "{"), ("4", json.dumps({**done.to_dict(), "time": {}}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    assert load_timed_records(tmp_path) == [done]
    assert load_timed_records(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (90, "1.5 min"), (5400, "1.5 h"), (216000, "2.5 d")],
)
def test_duration_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text and str(Estimate(seconds, True)) == f"~{text}"


def test_total_counts_unknown_runs() -> None:
    known = [Estimate(60, False), Estimate(30, False)]
    assert format_total(known) == "1.5 min"
    assert format_total([*known, None]) == "1.5 min + ? for 1 run"
    assert format_total([Estimate(60, False), Estimate(30, True)]) == "~1.5 min"
    assert format_total([None, None]) == "? for 2 runs"


def test_dry_run_lists_estimated_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / make_config().run_id, make_record(8, participations=32))
    sweep_options = ["noise=none,rho_tau", "method=fedavg,fedprox", "dry=true"]
    assert main(["-m", *SMALL, f"runs_dir={tmp_path}", *sweep_options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 runs, 1 done, ~24 s remaining" in lines[0]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if "method=" in line]
    times = {
        tuple(sorted(text for text in row[0].split() if text.startswith(("method", "noise")))): (
            row[2] if len(row) == 4 else ""
        )
        for row in rows
    }
    assert times == {
        ("method=fedavg", "noise=rho_tau"): "",
        ("method=fedavg", "noise=none"): "8 s",
        ("method=fedprox", "noise=rho_tau"): "~8 s",
        ("method=fedprox", "noise=none"): "~8 s",
    }
