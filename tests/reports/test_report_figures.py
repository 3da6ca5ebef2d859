"""Figures: the numbers drawn are those of the records, and what cannot be drawn is said in one line.

The frozen run fedcorr-iid-s1 has four clients of 10, 10, 20 and 5 samples and three classes; clients 1 and 2 are noisy.
"""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from methods.core.errors import UserError
from reports.figures import accuracy, select
from reports.figures.__main__ import FIGURES, main
from reports.figures.extract import (
    band,
    fitted_mixture,
    iterations,
    label_confusions,
    mixture_densities,
    noise_estimate,
    over_seeds,
    partition_counts,
    ranks,
    read_journal,
    read_scene,
    stage_ends,
    transition_shares,
)
from reports.figures.run_figures import pictures
from reports.frame.load import load_runs

GOOD = Path(__file__).parent / "records" / "good"
FEDCORR = GOOD / "fedcorr-iid-s1"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write("lsg", best=0.5, **{"method.lambda_": 0.2}) -> folder of a run like fedcorr-iid-s1 with other keys."""

    def run(
        method: str, best: float = 0.5, journal: list[dict[str, Any]] | None = None, **keys: Any
    ) -> Path:
        folder = tmp_path / "runs" / f"{method}-{len(list(tmp_path.glob('runs/*'))):03d}"
        shutil.copytree(FEDCORR, folder)
        record = json.loads((FEDCORR / "record.json").read_text())
        record["run_id"], record["summary"]["best"] = folder.name, best
        record["config"]["method"] = {"name": method}
        record["config"]["seed"] = keys.pop("seed", 1)
        for key, value in keys.items():
            section, name = key.split(".")
            record["config"].setdefault(section, {})[name] = value
        (folder / "record.json").write_text(json.dumps(record))
        if journal is not None:
            (folder / "journal.jsonl").write_text(
                "".join(json.dumps(entry) + "\n" for entry in journal)
            )
        return folder

    return run


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return select.rows_of(load_runs([tmp_path / "runs"]).done)


def test_partition_in_either_order():
    scene = read_scene(FEDCORR)
    assert partition_counts(scene).sum(axis=1).tolist() == [10, 10, 20, 5]
    assert partition_counts(scene, by_size=True).tolist() == [
        [0, 5, 0],
        [4, 3, 3],
        [2, 4, 4],
        [10, 0, 10],
    ]


def test_transitions_are_shares_of_the_true_class():
    assert transition_shares([[3, 1], [0, 0]]).tolist() == [[75, 25], [0, 0]]


def test_iterations_are_told_from_other_entries():
    journal = read_journal(FEDCORR)
    assert [entry["iteration"] for entry in iterations(journal)] == [1, 2]
    many = [{"iteration": number, "cumulative_lid": []} for number in range(1, 11)]
    assert [entry["iteration"] for entry in iterations(many, at_most=4)] == [1, 4, 7, 10]


def test_mixture_densities():
    """At its mean a component of variance v and weight w is w / sqrt(2 pi v); one deviation off, exp(-1/2) of that."""
    fit = {"means": [2.0, 4.0], "variances": [1.0, 4.0], "weights": [0.25, 0.75]}
    low, high = mixture_densities(np.array([2.0, 3.0, 4.0]), fit)
    peak = 1 / math.sqrt(2 * math.pi)
    assert low[:2] == pytest.approx([0.25 * peak, 0.25 * peak * math.exp(-0.5)])
    assert high[[0, 2]] == pytest.approx([0.375 * peak * math.exp(-0.5), 0.375 * peak])
    flat = {"means": [1.0, 1.0], "variances": [0.0, 0.0], "weights": [1.0, 0.0]}
    assert mixture_densities(np.array([1.0, 2.0]), flat).tolist() == [[0, 0], [0, 0]]


def test_fitted_mixture():
    """Two tight groups, a quarter of the values in the upper one; the fit adds 1e-6 to the variances of 1 and 4."""
    values = np.array([9.0, 11.0, 9.0, 11.0, 9.0, 11.0, 98.0, 102.0])
    fit = fitted_mixture(values, seed=1)
    assert fit["means"] == pytest.approx([10, 100]) and fit["weights"] == pytest.approx(
        [0.75, 0.25]
    )
    assert fit["variances"] == pytest.approx([1, 4], rel=1e-4)
    assert fitted_mixture(np.full(5, 3.0), seed=1)["variances"].tolist() == [0, 0]


def test_estimated_beside_true_noise():
    """The last iteration took clients 1, 2 and 3 for noisy; 3 is clean. In order of true noise: 0, 3, 1, 2."""
    told = noise_estimate(read_journal(FEDCORR), read_scene(FEDCORR))
    assert told.clients.tolist() == [0, 3, 1, 2]
    assert told.before == pytest.approx([0, 0, 40, 70]) and told.estimated == pytest.approx(
        [0, 40, 20, 50]
    )
    assert told.after == pytest.approx([0, 20, 10, 40])
    assert (told.found, told.noisy, told.mistaken) == (2, 2, 1)
    assert told.detection == {1: [2, 0, 1, 7], 2: [9, 1, 2, 8], 3: [0, 2, 0, 3]}


def test_noise_after_correction_may_be_unknown():
    plain = [
        {key: value for key, value in entry.items() if not key.startswith(("label", "sample"))}
        for entry in read_journal(FEDCORR)
    ]
    told = noise_estimate(plain, read_scene(FEDCORR))
    assert told.after is None and told.detection == {}


def test_label_confusions_after_each_stage():
    """The later of two pre-processing iterations counts: 27, then 35, then 44 of 45 labels are right."""
    told = label_confusions(read_journal(FEDCORR), read_scene(FEDCORR))
    assert [title for title, _ in told] == ["as given", "after preprocessing", "after finetuning"]
    assert [int(np.trace(counts)) for _, counts in told] == [27, 35, 44]
    assert {int(counts.sum()) for _, counts in told} == {45}


def test_stages_of_a_curve():
    curve = pd.DataFrame(
        {"stage": ["a", "a", "b"], "participations": [10, 20, 25], "accuracy": [0.1, 0.2, 0.3]}
    )
    assert stage_ends(curve) == [("a", 20), ("b", 25)]


def test_band_over_the_tests_that_all_seeds_have():
    """At 10 the seeds have 0.1 and 0.3: mean 20 %, deviation sqrt(2) * 10 %. Tests at 15 and 20 are not shared."""
    first = pd.DataFrame({"participations": [10, 15, 30], "accuracy": [0.1, 0.9, 0.5]})
    second = pd.DataFrame({"participations": [10, 20, 30], "accuracy": [0.3, 0.9, 0.5]})
    both = band([first, second])
    assert both.x.tolist() == [10, 30] and both.centre == pytest.approx([20, 50])
    assert both.spread == pytest.approx([10 * math.sqrt(2), 0])
    assert band([first]).spread is None and band([first]).centre == pytest.approx([10, 90, 50])


def test_points_over_seeds():
    x, centre, spread = over_seeds([(1.0, 80.0), (0.5, 70.0), (1.0, 90.0)])
    assert (x, centre) == ([0.5, 1.0], [70, 85])
    assert math.isnan(spread[0]) and spread[1] == pytest.approx(math.sqrt(50))


def test_ranks_over_the_cells_that_all_methods_have():
    """c ran in one cell and is dropped. b wins twice and a once, so that their ranks are 4/3 and 5/3."""
    cells = {
        1: {"a": [0.5, 0.7], "b": [0.7], "c": [0.9]},
        2: {"a": [0.5], "b": [0.4]},
        3: {"a": [0.1], "b": [0.3]},
    }
    found = ranks(cells)
    assert found is not None
    assert (found.methods, found.dropped, found.ranking.num_settings) == (("b", "a"), ("c",), 3)
    assert found.ranks == pytest.approx([4 / 3, 5 / 3]) and found.cliques == [(0, 1)]
    assert ranks({1: {"a": [0.5], "b": [0.4]}}) is None


def test_methods_far_apart_are_not_joined():
    """Twenty cells in one order: ranks 1, 2, 3; by Nemenyi 3.31 / sqrt(2) * sqrt(12 / 120) = 0.74 apart differ."""
    found = ranks({cell: {"a": [0.9], "b": [0.8], "c": [0.7]} for cell in range(20)})
    assert found is not None and found.ranks == (1, 2, 3) and found.cliques == []
    assert found.ranking.critical_difference == pytest.approx(0.741, abs=2e-3)


def test_variants_are_named_by_what_is_unusual(write, tmp_path):
    write("fedavg")
    write("fedcorr", **{"method.mixup": True, "method.pi": 0.5})
    write("fedcorr", **{"method.mixup": False, "method.pi": 0.5})
    write("fedcorr", **{"method.mixup": True, "method.pi": 0.9})
    assert select.variants(rows(tmp_path)) == [
        "fedavg",
        "fedcorr",
        "fedcorr mixup=false",
        "fedcorr pi=0.9",
    ]
    write("fedavg", **{"train.lr": 0.1})
    assert select.variants(rows(tmp_path))[:2] == ["fedavg lr=0.01", "fedavg lr=0.1"], (
        "no majority: both say it"
    )


def test_the_nearest_run_is_of_the_paper_and_whole(write, tmp_path):
    write("fedcorr", **{"dataset.name": "cifar10", "noise.rho": 0.6, "method.finetuning": False})
    write("fedcorr", **{"dataset.name": "cifar10", "noise.rho": 0.8, "method.finetuning": True})
    assert select.nearest(rows(tmp_path))["run_id"] == "fedcorr-000", "the setting comes first"
    write(
        "fedcorr",
        seed=2,
        **{"dataset.name": "cifar10", "noise.rho": 0.6, "method.finetuning": True},
    )
    assert select.nearest(rows(tmp_path))["run_id"] == "fedcorr-002"


def test_combinations_need_both_halves(write, tmp_path):
    """feddyn ran alone and after fedcorr, median never alone, poc never after it; an ablation is not taken."""
    for final in ("feddyn", "median"):
        write("fedcorr", **{"method.final": final, "method.mixup": True})
    write("fedcorr", **{"method.final": "feddyn", "method.mixup": False})
    write("feddyn")
    write("poc")
    found = accuracy.combinations(rows(tmp_path))
    names = {key: [row["run_id"] for row in group] for key, group in found.items()}
    assert names == {("feddyn", False): ["fedcorr-000"], ("feddyn", True): ["feddyn-003"]}


@pytest.mark.parametrize(
    "name", ["fedcorr_figure3", "fedcorr_figure7", "fedcorr_figure8", "critical_difference"]
)
def test_frozen_records_are_drawn(name, tmp_path, capsys):
    assert main([f"figure={name}", f"runs={GOOD}", f"out={tmp_path}", "scale=laptop"]) == 0
    assert capsys.readouterr().out == f"{name} laptop -> {tmp_path}/laptop/{name}.png, .pdf\n"
    assert (tmp_path / "laptop" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "laptop" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_every_figure_is_drawn_when_its_runs_are_there(write, tmp_path, capsys):
    journal = [{"stage": "scoring", "eta": [3, 0, 0, 2]}]
    for level in (0.2, 0.4):
        write("fedcnml", journal=journal, **{"noise.rho": level})
        write(
            "lsg",
            best=level,
            **{"method.lambda_": level, "noise.name": "symmetric", "noise.epsilon": 0.4},
        )
        for best, method in ((level, "fedavg"), (level + 0.1, "feddyn")):
            write(method, best=best, **{"noise.rho": level})
        write("fedcorr", **{"method.final": "feddyn", "noise.rho": level})
    write("fedavg", seed=2, **{"noise.rho": 0.4})
    write("fedavg", **{"partition.name": "dirichlet", "partition.alpha": 0.5})
    assert main([f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == list(FIGURES), said.err
    assert len(list((tmp_path / "out" / "laptop").iterdir())) == 2 * len(FIGURES)


def test_what_cannot_be_drawn_is_said_and_the_rest_is_drawn(write, tmp_path, capsys):
    write("fedcorr")
    (write("fedcorr", seed=2) / "scene.npz").write_bytes((FEDCORR / "scene.npz").read_bytes()[:300])
    (write("fedcorr", seed=3) / "journal.jsonl").write_text('{"round": 1, "cumul')
    options = [f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'out'}"]
    assert main(["figure=lsg_figure5,fedcnml_figure2,fedcorr_figure3", *options]) == 0
    said = capsys.readouterr()
    assert said.out.split()[0] == "fedcorr_figure3"
    assert said.err.splitlines() == [
        "lsg_figure5 laptop: not drawn: no setting has runs of lsg with two values of method.lambda_",
        "fedcnml_figure2 laptop: not drawn: no run of fedcnml with eta in its journal",
        f"fedcorr_figure3 laptop: {tmp_path}/runs/fedcorr-001/scene.npz: damaged (BadZipFile); left out",
        f"fedcorr_figure3 laptop: {tmp_path}/runs/fedcorr-002/journal.jsonl: damaged (JSONDecodeError); left out",
    ]


def test_a_missing_scene_is_named(tmp_path):
    with pytest.raises(UserError, match=r"scene\.npz: missing; left out$"):
        read_scene(tmp_path)


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
        (["runs=/nowhere"], "no finished run below /nowhere"),
        (
            [f"runs={GOOD}", "noise.ro=0.4"],
            "unknown key noise.ro: did you mean noise.rho? available: ",
        ),
        (
            [f"runs={GOOD}", "figure=fedcorr_figure3", "out=/dev/null/x"],
            "/dev/null/x/laptop: Not a directory",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(capsys, arguments, line):
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {line}")


def test_the_module_runs():
    command = [sys.executable, "-m", "reports.figures", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=GOOD.parents[3], check=True)
    assert done.stdout.startswith("python -m reports.figures [figure=NAME,...]")


def test_pictures_of_one_run_are_those_that_its_files_allow(write: Callable[..., Path]) -> None:
    folder = write("fedcorr")
    record = json.loads((folder / "record.json").read_text())
    assert all(png.startswith(b"\x89PNG") for png in pictures(folder).values())
    (folder / "record.json").write_text(
        json.dumps(record | {"confusion": [[3, 1, 0], [0, 4, 0], [1, 1, 2]]})
    )
    assert set(pictures(folder)) == {"partition", "lid_mixture", "confusion"}
    (folder / "record.json").write_text(json.dumps(record | {"confusion": []}))
    assert set(pictures(folder)) == {"partition", "lid_mixture"}
    (folder / "journal.jsonl").write_text("{")
    assert set(pictures(folder)) == {"partition"}
    (folder / "scene.npz").unlink()
    assert pictures(folder) == {}
