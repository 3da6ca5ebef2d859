"""The speed command: fair turns, bare loops that do the same work, one-line errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import data, models
from benchmarks.speed import clock, harness
from benchmarks.speed.__main__ import main
from benchmarks.speed.baseline import BaselineFedAvg
from benchmarks.speed.show import draw, tables
from benchmarks.speed.suites import counted_passes
from methods.core.flat_model import FlatModel


def test_candidates_take_turns_and_ratios_are_taken_within_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock: the slow one takes 2 s in turn 1 and 6 s in turn 2, the fast one 1 s and 3 s: the ratio is 2 in each, though the times double and treble."""
    now, calls = [0.0], []

    def task(name: str, seconds: list[float]) -> None:
        calls.append(name)
        now[0] += seconds.pop(0)

    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    fast, slow = [9.0, 1.0, 3.0], [9.0, 2.0, 6.0]
    result = clock.take_turns(
        {"fast": lambda: task("fast", fast), "slow": lambda: task("slow", slow)},
        "fast",
        2,
        lambda text: None,
    )
    assert calls == ["fast", "slow", "slow", "fast", "fast", "slow"]
    assert result["slow"] == {"seconds": 4.0, "ratio": 2.0, "ratio_low": 2.0, "ratio_high": 2.0}


@pytest.mark.parametrize("processes", [1, 2])
def test_the_bare_federation_learns(digits: data.Dataset, processes: int) -> None:
    parts = np.array_split(np.arange(len(digits.train_labels)), 10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bare = BaselineFedAvg(
            digits,
            parts,
            lambda: models.build("digits_cnn", 10, digits.shape),
            processes=processes,
            clients_per_round=4,
            lr=0.1,
        )
        accuracies = [bare.round() for _ in range(4)]
        bare.close()
    assert accuracies[-1] > 0.8 and not any(worker.is_alive() for worker in bare.workers)


def test_passes_are_counted_three_for_training_and_one_for_looking() -> None:
    net = FlatModel(models.build("digits_cnn", 10, (1, 8, 8)))
    with counted_passes() as counter:
        net.train()(torch.zeros(4, 1, 8, 8))
        net.eval()(torch.zeros(5, 1, 8, 8))
        with torch.no_grad():
            net.train().head(net.features(torch.zeros(6, 1, 8, 8)))
    assert counter["passes"] == 3 * 4 + 5 + 6


def test_a_run_is_played_round_by_round_on_cut_clients() -> None:
    overrides = (
        "dataset=digits",
        "model=digits_cnn",
        "scale=smoke",
        "federation.num_clients=6",
        "federation.clients_per_round=2",
        "executor=serial",
    )
    with harness.opened(*overrides, samples=15) as run:
        harness.play(run, 3)
        assert (
            run.round == 3
            and run.fleet.meter.participations == 6
            and run.fleet.meter.samples_trained == 6 * 15 * 5
        )


def test_straightness_of_a_line_and_of_a_bend() -> None:
    assert harness.straightness([1, 2, 3], [3, 5, 7]) == pytest.approx((2, 1, 0), abs=1e-9)
    assert harness.straightness([1, 2, 3], [1, 1, 4])[2] > 0.2


def test_tables_and_figures_of_the_committed_measurement(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "reports" / "reproductions" / "speed" / "speed.json"
    results = json.loads(path.read_text())["parts"]
    assert len(list(tables(results))) == len(results) + ("growth" in results)
    assert all(picture.stat().st_size > 10_000 for picture in draw(results, tmp_path))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["parts=warp"], "error: parts=warp is not legal; legal: all, reference"),
        (["repeats=0"], "error: repeats=0 is not legal; legal: a whole number, at least 1"),
        (["fast"], "error: 'fast' is not legal; legal: parts=, repeats=, out="),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(line) and err.count("\n") == 1


def test_help_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "reference, one_process, resnet18, evaluation" in capsys.readouterr().out
