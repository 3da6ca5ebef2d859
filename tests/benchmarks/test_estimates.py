"""Estimated times come from the speed of comparable runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.config import sweep
from benchmarks.config.schema import RunConfig
from benchmarks.records.estimates import Estimate, duration, estimate, measured, total
from benchmarks.run import main

CELL = ["scale=smoke", "executor=serial"]  # 8 clients, 32 participations of one epoch


def configured(*overrides: str) -> RunConfig:
    ((_, config),) = sweep.expand([*CELL, *overrides])
    return config


def record(
    seconds: float, *overrides: str, participations: int = 16, status: str = "done"
) -> dict[str, Any]:
    time = {"seconds_method": 0.75 * seconds, "seconds_evaluation": 0.25 * seconds}
    return {
        "status": status,
        "config": configured(*overrides).science(),
        "cost": {"participations": participations},
        "time": time,
    }


def test_same_training_settings_are_preferred() -> None:
    """16 participations in 8 s and in 16 s: 24 s for 32, so 24 s for the 32 of a cell; the other learning rate does not count."""
    known = [record(8), record(16, "noise.rho=0.2"), record(1000, "train.lr=0.5")]
    assert estimate(configured("noise.rho=0.8"), known) == Estimate(24, rough=False)
    assert estimate(configured(), known[2:]) == Estimate(2000, rough=True)


def test_fedavg_stands_in_for_a_method_that_has_not_run() -> None:
    assert estimate(configured("method=fedprox"), [record(8)]) == Estimate(16, rough=True)
    assert estimate(
        configured("method=fedprox"), [record(8), record(10, "method=fedprox")]
    ) == Estimate(20, rough=False)
    assert estimate(configured(), [record(8, "method=fedprox")]) is None
    assert estimate(configured(), [record(8, "model=mlp")]) is None


def test_clients_epochs_and_budget_count() -> None:
    """A visit takes half as long where the data is dealt to twice as many, twice as long with twice the epochs; a tenth of the budget takes a tenth."""
    known = [record(8)]
    assert estimate(configured("federation.num_clients=16"), known) == Estimate(8, rough=False)
    assert estimate(configured("train.local_epochs=2"), known) == Estimate(32, rough=True)
    assert estimate(configured("budget.participations=320"), known) == Estimate(160, rough=False)
    share = estimate(configured("method=jointopt", "method.budget_share=0.1"), known)
    assert share is not None and share.seconds == pytest.approx(1.6)


def test_only_finished_runs_tell_a_speed(tmp_path: Path) -> None:
    good = record(8)
    others = [record(8, status="failed"), record(8, participations=0), {**good, "time": {}}]
    texts = [json.dumps(one) for one in (good, *others)] + ["{"]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "record.json").write_text(text)
    assert measured(tmp_path) == [good]
    assert measured(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (90, "1.5 min"), (5400, "1.5 h"), (216000, "2.5 d")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text and str(Estimate(seconds, True)) == f"~{text}"


def test_total_says_what_it_does_not_know() -> None:
    assert total([Estimate(60, False), Estimate(30, False)]) == "1.5 min"
    assert total([Estimate(60, False), Estimate(30, True), None]) == "~1.5 min + ? for 1 cells"
    assert total([None, None]) == "? for 2 cells"


def test_dry_run_shows_the_time_of_what_is_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = configured()
    folder = tmp_path / done.run_id
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps(record(8, participations=32)))
    assert (
        main(
            [
                "-m",
                *CELL,
                f"runs_dir={tmp_path}",
                "noise=none,rho_tau",
                "method=fedavg,fedprox",
                "dry=true",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert "4 cells, 1 done, ~24 s left" in lines[0]
    shown = {
        line.split("\u2502")[1].strip(): line.split("\u2502")[3].strip()
        for line in lines
        if "method=" in line
    }
    by_cell = {
        tuple(sorted(word for word in key.split() if word.startswith(("method", "noise")))): value
        for key, value in shown.items()
    }
    assert by_cell == {
        ("method=fedavg", "noise=rho_tau"): "",
        ("method=fedavg", "noise=none"): "8 s",
        ("method=fedprox", "noise=rho_tau"): "~8 s",
        ("method=fedprox", "noise=none"): "~8 s",
    }
