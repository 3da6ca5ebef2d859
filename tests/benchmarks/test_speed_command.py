"""The speed command: interleaved timing, the baseline implementation, tables and figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import data, models
from benchmarks.speed import __main__ as command
from benchmarks.speed import harness, peers, suites
from benchmarks.speed.baseline import BaselineFedAvg
from benchmarks.speed.show import ratio_figure, result_tables, save_figures, scaling_figure
from benchmarks.speed.suites import count_forward_passes, linear_fit
from methods.core.flat_model import FlatModel

COMMITTED = Path(__file__).parents[2] / "reports" / "reproductions" / "speed" / "speed.json"
DIGITS = (
    "dataset=digits",
    "model=digits_cnn",
    "scale=smoke",
    "federation.num_clients=6",
    "federation.clients_per_round=2",
    "executor=serial",
)


def test_candidates_alternate_and_ratios_are_per_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times of both candidates triple from repetition 1 to 2. The ratio is 2 in both."""
    now, calls = [0.0], []

    def run(name: str, seconds: list[float]) -> None:
        calls.append(name)
        now[0] += seconds.pop(0)

    monkeypatch.setattr(harness.time, "perf_counter", lambda: now[0])
    fast, slow = [9.0, 1.0, 3.0], [9.0, 2.0, 6.0]
    candidates = {"fast": lambda: run("fast", fast), "slow": lambda: run("slow", slow)}
    result = harness.time_interleaved(candidates, "fast", 2, lambda text: None)
    assert calls == ["fast", "slow", "slow", "fast", "fast", "slow"]
    assert result["slow"] == {"seconds": 4.0, "ratio": 2.0, "ratio_low": 2.0, "ratio_high": 2.0}


@pytest.mark.parametrize("processes", [1, 2])
def test_baseline_learns(digits: data.Dataset, processes: int) -> None:
    indices = torch.arange(len(digits.train_labels)).tensor_split(10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        work = harness.ReferenceWork(
            digits,
            indices,
            lambda: models.build("digits_cnn", 10, digits.shape),
            clients_per_round=4,
            lr=0.1,
        )
        baseline = BaselineFedAvg(work, processes)
        accuracies = [baseline.run_round() for _ in range(4)]
        baseline.close()
    assert accuracies[-1] > 0.8 and not any(worker.is_alive() for worker in baseline.workers)


def test_training_pass_counts_as_three_forward_passes() -> None:
    model = FlatModel(models.build("digits_cnn", 10, (1, 8, 8)))
    with count_forward_passes() as counter:
        model.train()(torch.zeros(4, 1, 8, 8))
        model.eval()(torch.zeros(5, 1, 8, 8))
        with torch.no_grad():
            model.train().head(model.features(torch.zeros(6, 1, 8, 8)))
    assert counter["passes"] == 3 * 4 + 5 + 6


def test_rounds_of_clients_with_few_samples() -> None:
    with harness.open_run(*DIGITS, samples=15) as run:
        harness.run_rounds(run, 3)
        meter = run.pool.meter
        assert run.round == 3 and meter.participations == 6
        assert meter.samples_trained == 6 * 15 * 5


def test_reference_work_is_that_of_the_configuration() -> None:
    work = harness.ReferenceWork.load(*DIGITS, "train.lr=0.2", harness.NO_EVALUATION, samples=15)
    assert [len(index) for index in work.client_indices] == [15] * 6
    assert (work.clients_per_round, work.epochs, work.batch_size) == (2, 5, 10)
    assert (work.lr, work.momentum, work.evaluates) == (0.2, 0.5, False)


def test_linear_fit() -> None:
    fit = linear_fit([1, 2, 3], [3, 5, 7])
    assert list(fit.values()) == pytest.approx([2, 1, 0], abs=1e-9)
    fit = linear_fit([0, 1, 2], [0, 0, 3])
    assert fit == pytest.approx({"slope": 1.5, "offset": -0.5, "largest_distance": 0.3333})


def cells(results: dict[str, Any]) -> list[list[str]]:
    """Rows of all tables."""
    return [
        list(row)
        for table in result_tables(results)
        for row in zip(*(column.cells for column in table.columns), strict=True)
    ]


def timing(seconds: float, ratio: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "ratio": ratio,
        "ratio_low": ratio - 0.1,
        "ratio_high": ratio + 0.2,
    }


SERIES = {"x": [1, 2], "seconds": [2.0, 4.0], "slope": 2.0, "offset": 0.0, "largest_distance": 0.01}


def test_tables() -> None:
    results = {
        "evaluation": {"bare": timing(2, 1), "ours": timing(3, 1.5), "all": {"slow": timing(9, 3)}},
        "methods": {"lsg": {"ratio": 1.109, "passes": 1.0}},
        "growth": {
            "clients per round": SERIES,
            "memory": {"fedavg": [{"clients": 100, "own_mb": 4.2, "state_mb": 0.1}]},
        },
    }
    assert cells(results) == [
        ["bare", "2.00", "1.00", "0.90 - 1.20"],
        ["ours", "3.00", "1.50", "1.40 - 1.70"],
        ["  slow", "9.00", "3.00", "2.90 - 3.20"],
        ["lsg", "1.11", "1.00"],
        ["clients per round", "1: 2.000  2: 4.000", "1.0 %"],
        ["fedavg", "100: 4.2 (0.1)"],
    ]


def test_bars_are_sorted_ratios() -> None:
    (axes,) = ratio_figure({"bare": timing(2, 1), "ours, serial": timing(3, 1.5)}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours, serial", "bare"]
    assert [bar.get_width() for bar in axes.patches] == [1.5, 1.0]
    assert [text.get_text() for text in axes.texts] == ["1.50", "1.00"]


def test_points_and_linear_fit_are_plotted() -> None:
    (axes,) = scaling_figure({"clients per round": SERIES, "memory": {}}).axes
    points, fit = (line.get_xydata().tolist() for line in axes.lines)
    assert points == fit == [[1, 2], [2, 4]] and axes.get_xlabel() == "clients per round"


def test_committed_results_have_tables_and_figures(tmp_path: Path) -> None:
    results = json.loads(COMMITTED.read_text())["parts"]
    assert set(results) <= set(suites.SUITES)
    rows = cells(results)
    assert len(rows) > 40 and all(text for row in rows for text in row)
    paths = save_figures(results, tmp_path)
    assert [path.name for path in paths] == ["speed.png", "peers.png", "growth.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_results_of_other_suites_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "speed.json").write_text(json.dumps({"parts": {"methods": {}}}))
    monkeypatch.setitem(suites.SUITES, "threads", lambda repeats, log: {"a": timing(repeats, 1)})
    assert command.main(["parts=threads", "repeats=2", f"out={tmp_path}"]) == 0
    written = json.loads((tmp_path / "speed.json").read_text())
    assert written["parts"] == {"methods": {}, "threads": {"a": timing(2, 1)}}
    assert {"cores", "versions"} < set(
        written
    ) and "threads: finished in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("parts=warp", "invalid parts=warp: available: all, reference, peers, ray, one_process"),
        ("repeats=0", "invalid repeats='0': expected an integer of at least 1"),
        ("fast", "invalid argument 'fast': expected key=value; available: parts, repeats, out"),
    ],
)
def test_bad_input_is_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1


def test_missing_peers_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda package: None)
    assert command.main(["parts=peers", f"out={tmp_path}"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "error: missing packages of the peers: run pip install '.[peers]'\n"
    assert "Flower, 2 processes is not installed" in shown.out


def test_work_of_a_peer_is_one_epoch_of_a_client(digits: data.Dataset) -> None:
    indices = [torch.arange(0, 25), torch.arange(25, 60)]
    work = harness.ReferenceWork(digits, indices, lambda: torch.nn.Flatten())
    epoch = list(work.batches(1))
    assert [len(y) for _, y in epoch] == [10, 10, 10, 5]
    labels = torch.cat([y for _, y in epoch])
    expected = torch.from_numpy(digits.train_labels[25:60])
    assert torch.equal(labels.bincount(), expected.bincount()) and not torch.equal(labels, expected)
    assert [len(y) for _, y in work.test_batches(range(7), size=4)] == [4, 3]


def test_help_lists_all_suites(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    listed = re.search(r"suites: (.*?);", capsys.readouterr().out, re.DOTALL)
    assert listed is not None
    assert re.findall(r"\w+", listed[1]) == list(suites.SUITES)
