"""Reference runs in comparisons: FedAvg on given and on clean labels."""

import json

import pytest

from reports import compare
from reports.frame.load import load_runs


@pytest.fixture
def write_sweep(write_run):
    """write_sweep({"fedprox": [0.7]}, given=[0.4], clean=[0.8]) writes runs with one seed each."""

    def write(methods, given, clean, rho="0.6"):
        accuracies = {**methods, "fedavg": given}
        for name, values in [*accuracies.items(), ("fedavg", clean)]:
            for seed, last10 in enumerate(values, start=1):
                summary = {"best": 0.9, "last10": last10, "final": 0.9, "selected": last10 - 0.1}
                overrides = ("dataset=cifar100", f"method={name}", f"noise.rho={rho}")
                run_dir = write_run(*overrides, seed=seed, summary=summary)
                if values is clean:
                    record = json.loads((run_dir / "record.json").read_text())
                    record["config"]["labels"] = "clean"
                    (run_dir / "record.json").write_text(json.dumps(record))

    return write


def compared(tmp_path, *arguments):
    out = tmp_path / "table.md"
    assert compare.main([f"runs={tmp_path / 'runs'}", f"out={out}", *arguments]) == 0
    return out.read_text(encoding="utf-8")


def test_runs_on_clean_labels_are_references_only(write_sweep, tmp_path):
    write_sweep({"fedprox": [0.7]}, given=[0.4], clean=[0.8])
    runs = load_runs([tmp_path / "runs"])
    assert sorted(runs.done["method.name"]) == ["fedavg", "fedprox"]
    assert list(runs.references["summary.last10"]) == [0.8]
    assert set(runs.done["reference.given.last10"]) == {0.4}
    assert set(runs.done["reference.clean.last10"]) == {0.8}


def test_comparison_shows_damage_repaired_and_reference_rows(write_sweep, capsys, tmp_path):
    """Gains 0.3 and 0.1 of damages 0.4 and 0.2."""
    write_sweep({"fedprox": [0.7, 0.5]}, given=[0.4, 0.4], clean=[0.8, 0.6])
    text = compared(tmp_path)
    header = "| selected | last10 | best (oracle) | forgetting | damage repaired, last10 | 95 % |"
    assert header in text
    line = "| fedprox | 0.6 | 50.00 ± 14.14 (2) | 60.00 ± 14.14 (2) | 90.00 ± 0.00 (2) |"
    assert f"{line} 30.00 ± 14.14 (2) | 66.7 | 50.0 to 75.0 |" in text
    reference = "| reference: fedavg, clean labels | 0.6 | 60.00 ± 14.14 (2) | 70.00 ± 14.14 (2) |"
    assert f"{reference} 90.00 ± 0.00 (2) | – | – | – |" in text
    assert "last10: mean of the last ten evaluations" in text
    ranks = text.partition("## Average ranks")[2]
    assert "| fedprox | 1.00 |\n| fedavg | 2.00 |" in ranks and "reference" not in ranks


def test_damage_is_that_of_the_compared_accuracy(write_sweep, capsys, tmp_path):
    write_sweep({"fedprox": [0.7]}, given=[0.4], clean=[0.8])
    assert "damage repaired, selected" in compared(tmp_path, "metric=summary.selected")
    best = compared(tmp_path, "metric=summary.best")
    assert "## summary.best (oracle) in percent" in best
    assert "90.00 (1) | 20.00 (1) | – | – |" in best, "all have the same best accuracy"
    assert "damage" not in compared(tmp_path, "metric=cost.participations")


def test_damage_over_settings(write_sweep, capsys, tmp_path):
    write_sweep({"fedprox": [0.7]}, given=[0.4], clean=[0.8], rho="0.4")
    write_sweep({"fedprox": [0.3]}, given=[0.2], clean=[0.4], rho="0.8")
    over = compared(tmp_path).partition("## Over settings")[2].partition("##")[0]
    assert "| damage repaired, last10 | 95 % |" in over
    assert next(line for line in over.splitlines() if line.startswith("| fedprox")).endswith(
        "| 66.7 | – |"
    )


def test_ranks_compare_the_seeds_that_all_rows_have(write_sweep, capsys, tmp_path):
    """FedAvg has the higher mean only because of seed 2."""
    write_sweep({"fedprox": [0.5]}, given=[0.4, 0.9], clean=[0.8, 0.9])
    ranks = compared(tmp_path).partition("## Average ranks")[2]
    assert "| fedprox | 1.00 |\n| fedavg | 2.00 |" in ranks
    assert "- noise.rho 0.6: only the 1 of 2 seeds that all rows have\n" in ranks


def test_without_references_there_is_no_damage(write_run, capsys, tmp_path):
    write_run("dataset=cifar100", "method=fedavg")
    text = compared(tmp_path)
    assert "damage" not in text and "selected" not in text and "| last10 |" in text
