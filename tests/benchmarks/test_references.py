"""Reference runs: FedAvg on the given and on the clean labels of the same scenario."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import data
from benchmarks.config import sweep
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import Run
from benchmarks.records.record import Record, Summary, read_record
from benchmarks.records.references import References, find_references, is_reference
from benchmarks.run import main
from benchmarks.scenario.scenario import build_scenario
from methods.core.errors import UserError

SMALL = ["scale=smoke", "executor=serial", "budget.participations=8", "references=true"]
Configure = Callable[..., RunConfig]


def read_records(runs_dir: Path) -> dict[tuple[str, str], Record]:
    """Records of a directory by method and labels."""
    found = [read_record(path.parent) for path in runs_dir.glob("*/record.json")]
    records = [record for record in found if record is not None]
    return {(r.config["method"]["name"], r.config.get("labels", "given")): r for r in records}


def planned(*overrides: str) -> list[tuple[str, str, int]]:
    runs = sweep.expand([*SMALL, *overrides])
    return [(config.method.name, config.labels, config.seed) for _, config in runs]


def test_a_sweep_gets_two_references_per_setting_and_seed() -> None:
    assert planned("method=fedprox", "method.mu=0.1,1", "seed=1,2")[4:] == [
        ("fedavg", labels, seed) for seed in (1, 2) for labels in ("given", "clean")
    ]


def test_fedavg_of_the_sweep_is_shared() -> None:
    assert planned("method=fedavg,median") == [
        ("fedavg", "given", 1),
        ("median", "given", 1),
        ("fedavg", "clean", 1),
    ]
    assert len(planned("labels=clean")) == 2, "no reference of a reference"


def test_references_have_no_parameters_of_the_method() -> None:
    """Also if its parameters are marked as an oracle or are not set in the usual form."""
    options = ("++method.mu=0.1", "oracle=[method.mu]")
    assert [method for method, *_ in planned("method=fedprox", *options)] == [
        "fedprox",
        "fedavg",
        "fedavg",
    ]


def test_references_share_all_but_labels(configure: Configure, digits: data.Dataset) -> None:
    given, clean = configure("noise.rho=1.0"), configure("noise.rho=1.0", "labels=clean")
    assert given.run_id != clean.run_id and "labels" not in given.hashed_config()
    noisy, scenario = build_scenario(given, digits), build_scenario(clean, digits)
    assert noisy.hash == scenario.hash
    assert np.array_equal(scenario.noise.labels, digits.train_labels)
    assert noisy.noise_rate > 0.3 and scenario.noise_rate == 0
    assert not scenario.noise.client_level.any() and not scenario.noise.client_rate.any()
    for before, after in zip(noisy.client_indices, scenario.client_indices, strict=True):
        assert np.array_equal(before, after)


def test_clients_train_on_clean_labels(open_run: Callable[..., Run]) -> None:
    run = open_run("noise.rho=1.0", "labels=clean", "evaluate.validation=0.1")
    for client, indices in enumerate(run.scenario.client_indices):
        labels = run.pool.labels(client).numpy()
        assert np.array_equal(labels, run.dataset.train_labels[indices])
    assert not len(run.probe.mislabeled)


def test_clean_labels_must_exist(configure: Configure, digits: data.Dataset) -> None:
    with pytest.raises(UserError, match="cannot train on labels=clean: digits has no clean"):
        build_scenario(configure("labels=clean"), replace(digits, labels_are_clean=False))


def test_single_run_with_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "method=median", f"runs_dir={tmp_path}", "noise.rho=1.0"]) == 0
    shown = capsys.readouterr().out
    assert "repaired" in shown and "references" in shown
    records = read_records(tmp_path)
    assert set(records) == {("median", "given"), ("fedavg", "given"), ("fedavg", "clean")}
    assert len({record.scenario.hash for record in records.values()}) == 1
    marks = {labels: record.oracle for (_, labels), record in records.items()}
    assert marks == {"given": "", "clean": "reference run on clean labels"}
    found = find_references(records.values())
    assert set(found) == {record.run_id for record in records.values() if not is_reference(record)}
    median = found[records["median", "given"].run_id]
    assert median == (records["fedavg", "given"], records["fedavg", "clean"])


def test_references_of_another_seed_or_scenario_are_not_used(tmp_path: Path) -> None:
    assert main([*SMALL, f"runs_dir={tmp_path}"]) == 0
    records = read_records(tmp_path)
    given, clean = records["fedavg", "given"], records["fedavg", "clean"]
    assert set(find_references([given, clean])) == {given.run_id}
    null_labels = given.model_copy(update={"config": given.config | {"labels": None}})
    assert set(find_references([null_labels, clean])) == {given.run_id}
    moved = clean.scenario.model_copy(update={"hash": "other"})
    assert find_references([given, clean.model_copy(update={"scenario": moved})]) == {}
    other_seed = clean.model_copy(update={"config": clean.config | {"seed": 2}})
    assert find_references([given, other_seed]) == {}
    failed = clean.model_copy(update={"status": "diverged"})
    assert find_references([given, failed]) == {}
    assert_preferred(given, clean)


def assert_preferred(given: Record, clean: Record) -> None:
    """Of two variants, the one with the training parameters of the run is used."""

    def variant(record: Record, lr: float, run_id: str) -> Record:
        config = record.config | {"train": record.config["train"] | {"lr": lr}}
        return record.model_copy(update={"config": config, "run_id": run_id})

    slow = variant(given, 0.001, "a"), variant(clean, 0.001, "b")
    fast = variant(given, 0.5, "c"), variant(clean, 0.5, "d")
    method = {**given.config["method"], "name": "median"}
    for pair, lr in ((slow, 0.001), (fast, 0.5)):
        run = variant(given, lr, "run")
        run = run.model_copy(update={"config": run.config | {"method": method}})
        assert find_references([*slow, *fast, run])["run"] == pair


def test_damage_repaired() -> None:
    def summary(last10: float) -> Summary:
        return Summary(best=0.9, last10=last10, final=0.9)

    def of(last10: float) -> Record:
        return Record.model_construct(summary=summary(last10))

    repaired = References(of(0.4), of(0.8)).repaired
    assert repaired(summary(0.7)) == pytest.approx(0.75)
    assert repaired(summary(0.3)) == pytest.approx(-0.25)
    assert References(of(0.8), of(0.8)).repaired(summary(0.9)) is None, "no damage"
