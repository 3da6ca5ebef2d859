"""What a run leaves on disk, and by what it is known."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from running import SilentTracker

from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.loop import checkpoint as checkpoint_module
from benchmarks.loop.checkpoint import CheckpointFile
from benchmarks.loop.runner import as_lists, execute_run
from benchmarks.records import files
from benchmarks.records.files import atomic_write, redact_home, write_curve, write_json
from benchmarks.records.record import CorruptRecordError, read_record
from benchmarks.scenario.scenario import build_scenario
from methods.core.contract import Diagnosis
from methods.fedavg import FedAvg


def test_crash_before_the_rename_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"status": "old"})
    rename = os.replace

    def crash(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", crash)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            write_json(path, {"status": "new"})
    assert json.loads(path.read_text()) == {"status": "old"}
    monkeypatch.setattr(files.os, "replace", rename)
    write_json(path, {"status": "new"})
    assert json.loads(path.read_text()) == {"status": "new"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"], (
        "what the crashes left beside it is gone"
    )


def test_crash_while_a_checkpoint_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = CheckpointFile(tmp_path)
    checkpoint.save(b"\x80\x04K\x01.")  # the number 1
    write = atomic_write

    def half(path: Path, data: bytes) -> None:
        (path.parent / f".{path.name}.partial").write_bytes(data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_module, "atomic_write", half)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(b"\x80\x04K\x02.")
    assert checkpoint.load() == (1, [])
    monkeypatch.setattr(checkpoint_module, "atomic_write", write)
    checkpoint.save(b"\x80\x04K\x02.")
    assert checkpoint.load() == (2, [])
    checkpoint.delete()
    assert checkpoint.load() == (None, []) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"run_id": "x"}'])
def test_damaged_record_is_told(text: str, tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(
        CorruptRecordError, match=r"record\.json is damaged \(.*\); delete it to run the cell again"
    ):
        read_record(tmp_path)


def test_curve_takes_all_columns_whenever_they_appear(tmp_path: Path) -> None:
    write_curve(
        tmp_path / "curve.csv",
        [{"round": 1, "loss": 0.1}, {"round": 2, "loss": 1e-17, "clients/f1": 0.5}],
    )
    assert (tmp_path / "curve.csv").read_text() == "round,loss,clients/f1\n1,0.1,\n2,1e-17,0.5\n"


def test_arrays_become_lists() -> None:
    assert as_lists({"a": np.arange(2), 3: torch.ones(1), "c": [np.float64(0.5), (1, None)]}) == {
        "a": [0, 1],
        "3": [1.0],
        "c": [0.5, [1, None]],
    }


def test_folder_of_a_run(
    run_small: Callable[..., dict[str, Any]], configure: Callable[..., RunConfig]
) -> None:
    record = run_small("method=fedcorr")
    folder, config = record.pop("folder"), configure("method=fedcorr")
    record.pop("lines")
    assert {path.name for path in folder.iterdir()} == {
        "record.json",
        "curve.csv",
        "journal.jsonl",
        "config.yaml",
        "scene.npz",
        "log.txt",
        ".lock",
    }
    assert json.loads((folder / "record.json").read_text()) == record == read_record(folder)
    assert (record["run_id"], folder) == (config.run_id, config.run_dir) and record[
        "config"
    ] == config.science()
    assert (
        yaml.safe_load((folder / "config.yaml").read_text())["method"]["params"]["iterations"] == 5
    )
    assert (
        record["versions"].keys() >= {"python", "torch", "numpy"}
        and record["time"]["peak_memory_mb"] > 50
    )
    assert (
        record["cost"]["participations"] <= 32
        and len(json.loads((folder / "journal.jsonl").read_text().splitlines()[0])["lid"]) == 8
    )
    with np.load(folder / "scene.npz") as world:
        assert world["sizes"].sum() == len(world["parts"]) == 1437 and world[
            "flipped"
        ].mean() == pytest.approx(record["scene"]["wrong_labels"])
        assert (
            len(world["client_level"]) == 8
            and (world["client_level"] > 0).sum() == record["scene"]["noisy_clients"]
        )


def test_score_that_is_not_finite_does_not_cost_the_record(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FedAvg,
        "diagnosis",
        lambda self, fleet: Diagnosis(values={"lost": float("nan"), "kept": 1.0}),
    )
    config = configure("budget.participations=4")
    record = execute_run(config, SilentTracker(config.run_dir))
    assert (
        record["status"] == "done"
        and record["scores"]["method/kept"] == 1.0
        and "method/lost" not in record["scores"]
    )
    assert "method/lost" in (config.run_dir / "curve.csv").read_text()


def test_methods_of_a_seed_share_their_scene(
    configure: Callable[..., RunConfig], digits: Dataset
) -> None:
    def hash_of(*overrides: str) -> str:
        return build_scenario(configure(*overrides), digits).hash

    first = hash_of("method=fedavg")
    assert (
        first
        == hash_of("method=fedcorr")
        == hash_of("method=dividemix", "train.lr=0.5", "model=mlp", "evaluate.every=3")
    )
    others = [
        hash_of(change)
        for change in (
            "seed=2",
            "noise.rho=0.7",
            "noise.tau=0.1",
            "noise=none",
            "partition=shards",
            "federation.num_clients=9",
        )
    ]
    assert len({first, *others}) == 1 + len(others)


SCIENCE = """
seed=2 scale=laptop dataset=mnist model=mlp partition=shards partition.form=official noise=none noise.rho=0.61 noise.tau=0.49 noise.form=official
method=fedprox method=median train.lr=0.02 train.local_epochs=2 train.batch_size=11 train.optimizer=adam train.momentum=0.6 train.weight_decay=0.1
train.lr_decay=0.9 train.clip_norm=1 federation.num_clients=9 federation.clients_per_round=3 budget.participations=33 evaluate.every=2
evaluate.memorised_samples=10
""".split()
PLUMBING = [
    "runs_dir=elsewhere",
    "data_dir=elsewhere",
    "executor=processes",
    "checkpoint.every_seconds=7",
    "force=true",
    "dry=true",
]


def test_run_is_known_by_what_can_change_a_number(configure: Callable[..., RunConfig]) -> None:
    first = configure()
    assert configure().run_id == first.run_id and first.run_id.startswith("fedavg-digits-s1-")
    assert {change: configure(change).run_id for change in PLUMBING} == dict.fromkeys(
        PLUMBING, first.run_id
    )
    assert configure("executor=processes", "executor.workers=3").run_id == first.run_id
    changed = [configure(change).run_id for change in SCIENCE]
    assert len({first.run_id, *changed}) == 1 + len(SCIENCE)
    assert configure("method=fedprox", "method.mu=0.5").run_id != configure("method=fedprox").run_id
    assert configure("noise.rho=1").run_id == configure("noise.rho=1.0").run_id, (
        "1 and 1.0 are the same number"
    )


def test_centralized_scene_has_the_labels_of_the_federation(
    configure: Callable[..., RunConfig], digits: Dataset
) -> None:
    one = ["partition=centralized", "federation.num_clients=1", "federation.clients_per_round=1"]
    pooled = build_scenario(configure(*one, "partition.noise_clients=8"), digits)
    federation = build_scenario(configure(), digits)
    assert pooled.num_clients == 1 and federation.num_clients == 8
    assert (
        np.array_equal(pooled.noise.labels, federation.noise.labels) and pooled.noise.flipped.any()
    )
    assert not np.array_equal(
        build_scenario(configure(*one), digits).noise.labels, federation.noise.labels
    ), "by default noise is drawn for 100 clients"


def test_home_folder_is_in_no_record_and_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the folder itself is meant: not one whose name goes on, and not one of that name elsewhere."""
    monkeypatch.setenv("HOME", "/home/ursula")
    given = {
        "path": "/home/ursula/mine.npz",
        "list": ["'/home/ursula'", "file:///home/ursula/x"],
        "other": ["/home/ursula2/a", "/mnt/home/ursula/a"],
        "n": 1,
    }
    told = {"path": "~/mine.npz", "list": ["'~'", "file://~/x"], "other": given["other"], "n": 1}
    assert redact_home(given) == told
    write_json(tmp_path / "record.json", given)
    assert json.loads((tmp_path / "record.json").read_text()) == told
    SilentTracker(tmp_path).log("no file /home/ursula/mine.npz")
    assert (tmp_path / "log.txt").read_text().endswith(" no file ~/mine.npz\n")
    monkeypatch.setenv("HOME", "/")
    assert redact_home("/etc") == "/etc"
