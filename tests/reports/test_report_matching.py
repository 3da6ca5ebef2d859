"""Matching of runs with the cells of published tables."""

import json

import pytest
from written_runs import written_config

from reports.frame.load import flatten, load_runs
from reports.published.tables import load_table
from reports.tables import matching
from reports.tables.matching import match
from reports.tables.results import collect_results

NONIID = (
    "dataset=cifar100",
    "partition=bernoulli_dirichlet",
    "partition.form=official",
    "noise.form=official",
    "noise.rho=0.4",
    "noise.tau=0.0",
)
CELL = "(0.7, 10)"


@pytest.fixture
def collected(write_run, tmp_path):
    """collected("fedcorr_table9", "laptop") returns the results of the runs written so far."""
    return lambda name, scale: collect_results(
        load_table(name), load_runs([tmp_path / "runs"]), scale
    )


@pytest.mark.parametrize(
    ("overrides", "scale"),
    [
        (("method=fedavg",), "smoke"),
        ((*NONIID, "method=fedprox"), "paper"),
        (("noise=symmetric", "noise.epsilon=0.5", "model=cnn9", "dataset=mnist"), "laptop"),
        (("dataset=cifar10", "method=fedcorr", "method.theta=0.6", "train.lr=0.03"), "laptop"),
    ],
)
def test_written_configurations_equal_composed_ones(frozen_conf, overrides, scale):
    composed = dict(matching.compose_flat(overrides, scale))
    composed.pop("dataset.content", None)  # unknown in the written ones
    assert composed == flatten(written_config(overrides, scale))


def test_unknown_content_does_not_differ():
    """Only content that both have is compared."""
    known, other, unknown = ({"dataset.content": "a"}, {"dataset.content": "b"}, {})
    assert matching.differences(known, other, ["dataset"]) == {"dataset.content": ("a", "b")}
    assert matching.differences(known, unknown, ["dataset"]) == {}
    assert matching.differences(unknown, known, ["dataset"]) == {}


def test_smaller_scale_may_change_scale_dependent_sections(write_run, collected):
    write_run(*NONIID, "method=fedavg", "budget.participations=77", "train.lr=0.5")
    cell = collected("fedcorr_table9", "laptop").cells["FedAvg", CELL]
    assert cell.notes == (
        "Model: lenet5 instead of resnet34.",
        "Training: lr 0.5 instead of 0.01.",
        "Budget: participations 77 instead of 5000.",
    )


def test_paper_scale_requires_equal_sections(write_run, collected):
    write_run(*NONIID, "method=fedavg", scale="paper", seed=1)
    write_run(*NONIID, "method=fedavg", "budget.participations=77", scale="paper", seed=2)
    results = collected("fedcorr_table9", "paper")
    assert (
        results.cells["FedAvg", CELL].values == {1: 50.0}
        and not results.cells["FedAvg", CELL].notes
    )
    assert (
        "fedcorr_table9 at scale paper: 1 run excluded for budget.participations=77 (cell: 5000)"
        in results.warnings
    )


@pytest.mark.parametrize(
    "change", ["method.mu=0.5", "partition.form=plain", "noise.form=plain", "noise.classes=10"]
)
def test_near_misses_are_reported(write_run, collected, change):
    write_run(*NONIID, "method=fedprox", change)
    results = collected("fedcorr_table9", "laptop")
    assert not results.cells
    assert any(f"1 run excluded for {change} (cell: " in line for line in results.warnings)


def test_runs_of_other_columns_are_not_near_misses(write_run, collected):
    write_run(*NONIID, "method=fedavg", "partition.p=0.3")
    results = collected("fedcorr_table9", "laptop")
    assert not results.cells and not [line for line in results.warnings if "excluded" in line]


def test_runs_of_other_scales_are_not_mixed(write_run, collected):
    for seed, scale in enumerate(("paper", "laptop", "smoke")):
        write_run(*NONIID, "method=fedavg", scale=scale, seed=seed, best=seed / 10)
    values = [
        collected("fedcorr_table9", scale).cells["FedAvg", CELL].values
        for scale in ("paper", "laptop", "smoke")
    ]
    assert values == [{0: 0.0}, {1: 10.0}, {2: 20.0}]


def test_runs_of_one_cell_have_one_configuration(write_run, collected):
    """The configuration closest to the paper is kept, although another one has more seeds."""
    for seed in (1, 2, 3):
        write_run(*NONIID, "method=fedavg", "train.lr=0.5", seed=seed, best=0.1)
    write_run(*NONIID, "method=fedavg", seed=1, best=0.4)
    cell = collected("fedcorr_table9", "laptop").cells["FedAvg", CELL]
    assert cell.values == {1: 40.0}
    assert cell.notes[-1] == "Excluded: 3 runs with another model, training, federation or budget."


def test_protocols_and_hyperparameters_are_not_mixed(write_run, collected, tmp_path):
    write_run(*NONIID, "method=fedavg", seed=1, best=0.5)
    write_run(*NONIID, "method=fedavg", "hyperparameters=tuned", seed=2, best=0.9)
    write_run(*NONIID, "method=fedavg", "protocol=lsg", seed=3, best=0.7)
    results = collected("fedcorr_table9", "laptop")
    assert results.cells["FedAvg", CELL].values == {1: 50.0}
    assert results.caption == "protocol fedcorr, hyperparameters common"
    (warning,) = results.warnings
    assert warning.endswith("1 run excluded for hyperparameters=tuned (cell: common)")
    tuned = collect_results(
        load_table("fedcorr_table9"), load_runs([tmp_path / "runs"]), "laptop", "", "tuned"
    )
    assert tuned.cells["FedAvg", CELL].values == {2: 90.0}
    assert tuned.caption == "protocol fedcorr, hyperparameters tuned"


def test_precisions_are_not_mixed(write_run, collected):
    write_run(*NONIID, "method=fedavg", seed=1, best=0.5)
    record_file = write_run(*NONIID, "method=fedavg", seed=1, best=0.9) / "record.json"
    record = json.loads(record_file.read_text())
    record["config"]["precision"] = "bf16"
    record_file.write_text(json.dumps(record))
    results = collected("fedcorr_table9", "laptop")
    assert results.cells["FedAvg", CELL].values == {1: 50.0}
    (warning,) = results.warnings
    assert warning.endswith("1 run excluded for executor.precision=bf16 (cell: absent)")


def test_models_distinguish_cells_of_a_table_that_compares_them(write_run, collected):
    common = (
        *("dataset=cifar10", "partition.form=official", "noise.form=official", "noise.rho=0.4"),
        *("noise.tau=0.5", "method=fedcorr", "method.theta=0.6"),
    )
    write_run(*common, "model=resnet18", "train.lr=0.03", best=0.9)
    write_run(*common, "model=lenet5", "train.lr=0.003", best=0.6)
    # The learning rate of the other models: not a cell of the table.
    write_run(*common, "model=lenet5", "train.lr=0.03", best=0.1)
    results = collected("fedcorr_table10", "laptop")
    found = {key: cell.value for key, cell in results.cells.items()}
    assert found == {
        ("ResNet-18", "rho=0.4 / tau=0.5"): 90.0,
        ("LeNet-5", "rho=0.4 / tau=0.5"): 60.0,
    }


def test_averages_use_seeds_that_all_columns_have(write_run, collected):
    """Eight columns of 10, 20, ..., 80 percent with seed 1. Seed 2 has no run in the last one."""
    table = load_table("lsg_table1")
    for index, column in enumerate(table.columns):
        for seed in (1, 2) if index < 7 else (1,):
            write_run(
                *table.overrides("MNIST / FedAvg", column.label), seed=seed, best=(index + 1) / 10
            )
    cell = collected("lsg_table1", "laptop").cells["MNIST / FedAvg", "Avg."]
    assert cell.values == {1: pytest.approx(45.0)}
    assert ("MNIST / Ours", "Avg.") not in collected("lsg_table1", "laptop").cells


def test_unsuccessful_runs_are_excluded_and_noted(write_run, collected):
    write_run(*NONIID, "method=fedavg", seed=1)
    write_run(*NONIID, "method=fedavg", seed=2, status="diverged", reason="nan", summary={})
    cell = collected("fedcorr_table9", "laptop").cells["FedAvg", CELL]
    assert (cell.value, cell.num_runs, cell.notes[-1]) == (
        50.0,
        1,
        "Excluded: seed 2 (diverged).",
    )


def test_invalid_cells_are_reported(write_run, tmp_path):
    """The small configuration has no RoFL."""
    run_dir = write_run(*NONIID, "method=fedavg")
    record = json.loads((run_dir / "record.json").read_text())
    record["config"]["method"]["name"] = "rofl"
    (run_dir / "record.json").write_text(json.dumps(record))
    cells, warnings = match(load_table("fedcorr_table9"), load_runs([tmp_path / "runs"]), "laptop")
    assert cells == {}
    assert warnings == [
        "fedcorr_table9: cell (RoFL, (0.7, 10)) not configured:"
        " unknown method rofl: available: fedavg, fedcorr, fedprox"
    ]


def test_cells_without_runs_are_not_composed(tmp_path, monkeypatch):
    monkeypatch.setattr(matching, "compose_run", None)
    assert match(load_table("fedcorr_table2"), load_runs([tmp_path]), "paper") == ({}, [])
