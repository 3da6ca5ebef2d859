"""Figures: the plotted data are those of the records, and skipped figures give one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_runs import FEDCORR, GOOD, write_run
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures.__main__ import FIGURES, main
from reports.figures.run_figures import render_figures
from reports.frame.load import load_runs, rows_of

LEVELS = (0.2, 0.4)
RATES = [0.0, 40.0, 70.0, 0.0]  # noise rates of the clients, in percent


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs for all figures at two noise levels."""
    runs = tmp_path_factory.mktemp("figures") / "runs"
    for level in LEVELS:
        rho = {"noise.rho": level}
        write_run(runs, "fedcnml", journal=[{"stage": "scoring", "eta": [3, 0, 0, 2]}], **rho)
        symmetric = {"noise.name": "symmetric", "noise.epsilon": 0.4}
        write_run(runs, "lsg", best=level, **{"method.lambda_": level}, **symmetric)
        write_run(runs, "fedavg", best=level, **rho)
        write_run(runs, "feddyn", best=level + 0.1, **rho)
        write_run(runs, "fedcorr", best=level + 0.3, **{"method.final_method": "feddyn"}, **rho)
    write_run(runs, "fedavg", best=0.6, seed=2, **{"noise.rho": 0.4})
    write_run(runs, "fedavg", **{"partition.name": "dirichlet", "partition.alpha": 0.5})
    return runs


def plot(name: str, runs: Path, **options: str) -> Figure:
    return FIGURES[name](rows_of(load_runs([runs]).done), [], **options)


def lines(axis: Axes) -> dict[str, Any]:
    """(x, y) of the labeled lines and error bars."""
    labeled = [line for line in axis.lines if not line.get_label().startswith("_")]
    found = {line.get_label(): line.get_xydata().T.tolist() for line in labeled}
    for bars in axis.containers:
        if hasattr(bars, "has_yerr"):
            found[bars.get_label()] = bars[0].get_xydata().T.tolist()
    return found


def points(axis: Axes) -> list[list[float]]:
    """All scatter points, sorted."""
    return sorted(offset for series in axis.collections for offset in series.get_offsets().tolist())


def texts(axis: Axes) -> set[str]:
    return {text.get_text() for text in axis.texts}


@pytest.mark.parametrize("name", ["fedcorr_figure3", "fedcorr_figure5"])
def test_lid_scores_against_noise_rate(name, runs):
    """Scores of the second iteration."""
    figure = plot(name, runs)
    scores = {"LID score": [1.0, 2.5, 2.0, 2.5], "cumulative LID score": [2.0, 4.5, 5.0, 4.0]}
    shown = figure.axes[2:] if name == "fedcorr_figure3" else figure.axes[1:]
    for axis, label in zip(shown, list(scores)[-len(shown) :], strict=True):
        assert axis.get_xlabel() == label
        assert points(axis) == sorted(map(list, zip(scores[label], RATES, strict=True)))
    density = figure.axes[len(shown) - 1]
    assert sum(bar.get_width() * bar.get_height() for bar in density.patches) == pytest.approx(1)
    assert set(lines(density)) == {"mixture, clean component", "mixture, noisy component"}


def test_lid_scores_of_each_iteration(runs):
    axes = plot("fedcorr_figure6", runs).axes
    assert [axis.get_title() for axis in axes[:2]] == ["iteration 1", "iteration 2"]
    areas = [sum(bar.get_width() * bar.get_height() for bar in axis.patches) for axis in axes]
    assert areas == pytest.approx([1] * 4)


def test_noise_rates_and_sample_detection(runs):
    """Clients in order of true noise rate: 0, 3, 1, 2."""
    upper, lower = plot("fedcorr_figure7", runs).axes
    shown = {label: y for label, (_, y) in lines(upper).items()}
    assert shown["true, given labels"] == [0, 0, 40, 70]
    assert shown["true, after pre-processing"] == pytest.approx([0, 20, 10, 40])
    assert shown["estimated"] == pytest.approx([0, 40, 20, 50])
    assert "noisy clients detected: 2 of 2; false positives: 1" in upper.get_title(loc="left")
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in lower.containers}
    assert heights["true positives"] == [0, 0, 2, 9]
    assert heights["true negatives"] == [0, 3, 7, 8]


def test_label_confusion_after_each_stage(runs):
    axes = plot("fedcorr_figure8", runs).axes[:3]
    accuracies = [axis.get_title().splitlines()[1] for axis in axes]
    assert accuracies == ["accuracy 60.0 %", "accuracy 77.8 %", "accuracy 97.8 %"]
    assert np.asarray(axes[2].images[0].get_array())[2] == pytest.approx([100 / 17, 0, 1600 / 17])


@pytest.mark.parametrize("name", ["fedcorr_figure2", "fedcorr_figure10"])
def test_partition_bubbles(name, runs):
    """Only the run with a Dirichlet partition is non-IID."""
    axes = plot(name, runs).axes
    sizes = axes[0].collections[0].get_sizes()
    assert axes[0].get_title(loc="left") == "cifar100, dirichlet (α 0.5)"
    assert axes[0].get_title(loc="right") == "largest bubble: 10 samples"
    assert len(points(axes[0])) == 9 and sizes.max() / sizes.min() == pytest.approx(10 / 2)
    if name == "fedcorr_figure10":
        assert [bar.get_height() for bar in axes[1].patches] == [5, 10, 10, 20]


def test_captions_name_protocol_and_hyperparameters(runs):
    for name in FIGURES:
        assert "protocol fedcorr, hyperparameters common" in plot(name, runs).get_suptitle()


def test_label_transition_matrix(runs):
    axis = plot("lsg_figure4", runs).axes[0]
    shown = np.asarray(axis.images[0].get_array())
    assert shown[0].tolist() == [50, 25, 25] and shown.sum(axis=1) == pytest.approx([100] * 3)


def test_combined_methods(runs):
    (axis,) = plot("fedcorr_figure4", runs).axes
    shown = {label: y for label, (_, y) in lines(axis).items()}
    assert shown["feddyn alone"] == pytest.approx([30, 50])
    assert shown["fedcorr, then feddyn"] == pytest.approx([50, 70])


def test_points_are_means_over_seeds_with_standard_deviations(tmp_path):
    """Best accuracies 70 and 90 at lambda 1: mean 80, standard deviation 10 sqrt(2)."""
    for seed, weight, best in ((1, 0.5, 0.6), (1, 1.0, 0.7), (2, 1.0, 0.9)):
        write_run(tmp_path, "lsg", best, seed, **{"method.lambda_": weight})
    (axis,) = plot("lsg_figure5", tmp_path).axes
    ((x, y),) = lines(axis).values()
    assert (x, y) == ([0.5, 1.0], pytest.approx([60, 80]))
    (ends,) = [segment for segment in axis.collections[0].get_segments() if len(segment)]
    assert ends[:, 1] == pytest.approx([80 - 200**0.5, 80 + 200**0.5])


def test_distillation_weight(runs):
    (axis,) = plot("lsg_figure5", runs).axes
    ((x, y),) = lines(axis).values()
    assert (x, y) == (list(LEVELS), pytest.approx([20, 40]))


def test_neighbors_against_noise_rate(runs):
    expected = sorted(map(list, zip([3, 0, 0, 2], RATES, strict=True)))
    first, second = plot("fedcnml_figure2", runs).axes
    assert points(first) == expected and second.get_xlabel().startswith("LID score")
    panels = plot("fedcnml_figure3", runs).axes
    assert [points(axis) for axis in panels] == [expected] * 2


def test_learning_curves(runs):
    stages, panels = plot("fedcorr_figure9", runs).axes[0], plot("curves", runs).axes
    methods = ["fedavg", "fedcnml", "fedcorr", "feddyn"]
    assert [sorted(lines(axis)) for axis in (stages, *panels)] == [
        methods, methods, methods, ["lsg lambda_=0.2", "lsg lambda_=0.4"]
    ]  # fmt: skip
    for axis in (stages, *panels):
        for x, y in lines(axis).values():
            assert x == [100, 140, 300] and y == pytest.approx([40, 55, 60])
    assert texts(stages) == {"train"}
    assert [len(axis.collections) for axis in panels] == [0, 1, 0], "a band for two seeds"


def test_critical_difference(runs):
    """Ranks of seed 1 by best accuracy: fedcorr 1.5 and 1; fedcnml 1.5 and 2.5; fedavg last."""
    for accuracy, meaning in (("best", "(oracle)"), ("last10", "last ten evaluations")):
        (axis,) = plot("critical_difference", runs, accuracy=accuracy).axes
        shown = texts(axis)
        assert {"fedcorr  1.25 ", "fedcnml  2.00 ", " 2.75  feddyn", " 4.00  fedavg"} <= shown
        assert [text for text in shown if meaning in text]


def test_performance_profile(runs):
    """Best accuracies of fedavg with seed 1, which all methods have: 20 and 40."""
    (axis,) = plot("performance_profile", runs, accuracy="best").axes
    label = next(label for label in lines(axis) if label.startswith("fedavg"))
    x, y = lines(axis)[label]
    steps = [y[0], *(y[x.index(pytest.approx(value))] for value in (20, 40))]
    assert steps == pytest.approx([100, 50, 0])
    assert label == "fedavg (interquartile mean 30.0)"
    (axis,) = plot("performance_profile", runs).axes
    assert "fedavg (interquartile mean 25.0)" in lines(axis), "last10 is 5 points lower"


def test_command_writes_all_figures(runs, tmp_path, capsys):
    assert main([f"runs={runs}", f"out={tmp_path}"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == list(FIGURES), printed.err
    assert len(list((tmp_path / "laptop").iterdir())) == 2 * len(FIGURES)
    for name in FIGURES:
        path = tmp_path / "laptop" / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_skipped_figures_are_reported(tmp_path, capsys):
    runs = tmp_path / "runs"
    write_run(runs, "fedcorr")
    damaged = write_run(runs, "fedcorr", seed=2) / "scenario.npz"
    damaged.write_bytes((FEDCORR / "scenario.npz").read_bytes()[:300])
    (write_run(runs, "fedcorr", seed=3) / "journal.jsonl").write_text('{"round": 1, "cumul')
    names = "figure=lsg_figure5,fedcnml_figure2,fedcorr_figure3"
    assert main([names, f"runs={runs}", f"out={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split()[0] == "fedcorr_figure3"
    prefix = f"fedcorr_figure3 laptop: cannot read {runs}"
    lines = printed.err.splitlines()
    assert lines[:2] == [
        "lsg_figure5 laptop: skipped: no setting has runs of lsg with two values of method.lambda_",
        "fedcnml_figure2 laptop: skipped: no run of fedcnml with eta in its journal",
    ]
    assert lines[2].startswith(f"{prefix}/fedcorr-002/journal.jsonl: ")
    assert lines[3].startswith(f"{prefix}/fedcorr-001/scenario.npz: ") and len(lines) == 4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["figure=fedcorr_figur3"],
            "invalid figure=fedcorr_figur3: did you mean fedcorr_figure3? available: all, ",
        ),
        (
            ["figures=all"],
            "unknown key figures: did you mean figure? available: figure, runs, out, scale",
        ),
        (["scale=huge"], "invalid scale=huge: available: all, paper, laptop, smoke"),
        (["runs=/nowhere"], "cannot read /nowhere: no such directory"),
        (
            [f"runs={GOOD}", "noise.ro=0.4"],
            "unknown key noise.ro: did you mean noise.rho? available: ",
        ),
        (
            [f"runs={GOOD}", "figure=fedcorr_figure3", "out=/dev/null/x"],
            "cannot use /dev/null/x/laptop: Not a directory",
        ),
    ],
)
def test_user_errors_are_one_line_with_exit_code_2(capsys, arguments, line):
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {line}")


def test_module_prints_help():
    command = [sys.executable, "-m", "reports.figures", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=GOOD.parents[3], check=True)
    assert "python -m reports.figures [figure=NAME,...]" in done.stdout


def test_figures_and_page_do_not_import_torch():
    modules = (
        "import sys, reports.figures.__main__, reports.figures.run_figures, reports.page.__main__"
    )
    program = f"{modules}; sys.exit(bool({{'torch', 'sklearn'}} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], cwd=GOOD.parents[3], check=True)


def test_figures_of_one_run_depend_on_its_files(tmp_path):
    run_dir = write_run(tmp_path, "fedcorr")
    record = json.loads((run_dir / "record.json").read_text())
    confusion = {"confusion": [[3, 1, 0], [0, 4, 0], [1, 1, 2]]}
    (run_dir / "record.json").write_text(json.dumps(record | confusion))
    images = render_figures(run_dir)
    assert set(images) == {"partition", "lid_mixture", "confusion"}
    assert all(png.startswith(b"\x89PNG") for png in images.values())
    (run_dir / "record.json").write_text(json.dumps(record | {"confusion": []}))
    assert set(render_figures(run_dir)) == {"partition", "lid_mixture"}
    (run_dir / "journal.jsonl").write_text("{")
    assert set(render_figures(run_dir)) == {"partition"}
    (run_dir / "scenario.npz").unlink()
    assert render_figures(run_dir) == {}
