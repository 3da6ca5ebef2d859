"""Files of a run directory, and the run id."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from run_helpers import SilentTracker

from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.data import Dataset
from benchmarks.federation.devices import arithmetic_digest
from benchmarks.loop.runner import execute_run
from benchmarks.records import files, readers
from benchmarks.records.files import redact_home, write_curve, write_json
from benchmarks.records.record import CorruptRecordError, read_record, write_record
from benchmarks.scenario.scenario import build_scenario
from methods.core.contract import Diagnosis
from methods.core.errors import UserError
from methods.core.machine import process_memory_mb
from methods.fedavg import FedAvg

RUN_FILES = {"record.json", "curve.csv", "journal.jsonl", "config.yaml", "scenario.npz", "log.txt"}


def test_crash_before_the_rename_keeps_the_old_file(
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
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    """Content of a record of an earlier version."""
    path = Path(__file__).parent.parent / "reports/records/good/fedcorr-iid-s1/record.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def read_error(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "record.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(CorruptRecordError) as caught:
        read_record(tmp_path)
    assert isinstance(caught.value, UserError) and "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"cannot read {path}: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        '"text"',
        '{"protocol_version": 2, "run_',
        "[" * 10**5,
        b"\xff\x00",
        b"\0",
    ],
    ids=["empty", "brace", "list", "null", "string", "truncated", "nested", "binary", "zero"],
)
def test_other_content_is_not_a_record(text: str | bytes, tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    assert read_error(tmp_path, text).startswith("not a valid JSON object")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"protocol_version": 0}, "protocol version 0 is not comparable with 2"),
        (
            {"status": "running"},
            "invalid status='running': expected 'done', 'diverged' or 'failed'",
        ),
        ({"config": []}, "invalid config='[]': expected an object"),
        ({"config": {"seed": 1}}, "missing or invalid config.scale"),
        ({"scenario": {}}, "missing scenario.hash"),
        ({"summary": {}}, "missing summary"),
        ({"summary": {"best": "high"}}, "invalid summary.best='high': expected a valid number"),
        (
            {"summary": {"best": float("nan")}},
            "not a valid JSON object: expected value at line 1 column 1295",
        ),
        (
            {"summary": {"best": 0.2, "last10": 93.0}},
            "invalid summary.last10='93.0': expected less than or equal to 1",
        ),
        ({"metrics": {"a": None}}, "invalid metrics.a='None': expected a valid number"),
        ({"cost": {"queries": 1.5}}, "invalid cost.queries='1.5': expected a valid integer"),
        ({"time": [1]}, "invalid time='[1]': expected an object"),
    ],
)
def test_invalid_record_is_named_in_one_line(
    change: dict[str, Any], reason: str, good: dict[str, Any], tmp_path: Path
) -> None:
    assert read_error(tmp_path, json.dumps(good | change)) == reason


@pytest.mark.parametrize(
    "key", ["run_id", "config", "scenario", "rounds", "metrics", "cost", "time"]
)
def test_missing_key_is_named(key: str, good: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps({name: value for name, value in good.items() if name != key})
    assert read_error(tmp_path, text) == f"missing {key}"


def test_record_that_is_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()
    with pytest.raises(CorruptRecordError, match="record.json: Is a directory$"):
        read_record(tmp_path)


def test_record_without_optional_keys_is_read_and_written_unchanged(
    good: dict[str, Any], tmp_path: Path
) -> None:
    cost = {"participations": 500, "queries": 0, "models_down": 0, "models_up": 0}
    cost |= {"bytes_down": 0, "bytes_up": 0, "samples_trained": 0, "samples_scored": 0}
    good = good | {"cost": cost | {"dropped_models": 0}}
    write_json(tmp_path / "record.json", good)
    record = read_record(tmp_path)
    assert record is not None and record.to_dict() == good
    assert (record.scenario.hash, record.scenario.noise_rate) == ("iid-laptop-1", 0.2)
    assert (record.cost.queries, record.confusion, record.time.seconds) == (0, [], 10.0)
    write_record(tmp_path / "copy", record)
    written = (tmp_path / "copy" / "record.json").read_bytes()
    assert written == (tmp_path / "record.json").read_bytes()


def test_old_names_are_read(good: dict[str, Any], tmp_path: Path) -> None:
    """Names before version 0.2.0: those of the record, of parameters and of metrics."""
    old = {key: good[key] for key in ("run_id", "status", "rounds", "summary", "time")}
    method = good["config"]["method"] | {"final": "poc", "neighbours": 9}
    old["config"] = {
        key: good["config"][key] for key in good["config"] if key != "protocol_version"
    }
    old["config"] |= {"protocol": 2, "method": method}
    old |= {"protocol": 2, "scene": {"hash": "h", "wrong_labels": 0.3}, "cost": {"contacts": 7}}
    old["scores"] = {"memorised/wrong": 0.25, "labels/fixed": 0.5}
    write_json(tmp_path / "record.json", old)
    record = read_record(tmp_path)
    assert record is not None and record.to_dict()["protocol_version"] == 2
    assert (record.scenario.noise_rate, record.cost.queries) == (0.3, 7)
    assert record.metrics == {"memorization/wrong": 0.25, "labels/fixed": 0.5}
    method = record.config["method"]
    assert (method["final_method"], method["num_neighbors"]) == ("poc", 9)
    assert record.config["protocol_version"] == 2 and record.summary is not None
    (tmp_path / "curve.csv").write_text(
        "round,participations,accuracy,memorised/true\n1,1,0.5,0.1\n"
    )
    assert "memorization/true" in readers.read_curve(tmp_path)


def test_curve_has_all_columns(tmp_path: Path) -> None:
    rows = [{"round": 1, "loss": 0.1}, {"round": 2, "loss": 1e-17, "clients/f1": 0.5}]
    write_curve(tmp_path / "curve.csv", rows)
    assert (tmp_path / "curve.csv").read_text() == "round,loss,clients/f1\n1,0.1,\n2,1e-17,0.5\n"


@pytest.mark.parametrize(
    ("reader", "name", "content", "reason"),
    [
        (readers.read_curve, "curve.csv", None, "no such file"),
        (readers.read_curve, "curve.csv", b"", "EmptyDataError"),
        (readers.read_curve, "curve.csv", b"round,accuracy\n1,0.5\n", "no column participations"),
        (
            readers.read_curve,
            "curve.csv",
            b"round,participations,accuracy\n1,10,high\n",
            "column accuracy has values that are not numbers",
        ),
        (readers.read_journal, "journal.jsonl", b'{"round": 1, "l', "JSONDecodeError"),
        (readers.read_journal, "journal.jsonl", b"[" * 10**5, "RecursionError"),
        (readers.read_journal, "journal.jsonl", b"1\n", "a line is not a JSON object"),
        (readers.read_scenario, "scenario.npz", None, "No such file or directory"),
        (
            readers.read_scenario,
            "scenario.npz",
            b"PK\x03\x04",
            "not an .npz file of plain arrays (BadZipFile: File is not a zip file)",
        ),
    ],
)
def test_unreadable_file_is_named_in_one_line(
    reader: Callable[[Path], Any], name: str, content: bytes | None, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        reader(tmp_path)
    assert str(caught.value) == f"cannot read {tmp_path / name}: {reason}"


def test_arrays_become_lists() -> None:
    value = {"a": np.arange(2), 3: torch.ones(1), "c": [np.float64(0.5), (1, None)]}
    assert to_plain_data(value) == {"a": [0, 1], "3": [1.0], "c": [0.5, [1, None]]}


def test_files_of_a_run(
    run_small: Callable[..., dict[str, Any]], configure: Callable[..., RunConfig]
) -> None:
    record, config = run_small("method=fedcorr"), configure("method=fedcorr")
    run_dir = record.pop("run_dir")
    record.pop("lines")
    assert {path.name for path in run_dir.iterdir()} == RUN_FILES
    assert json.loads((run_dir / "record.json").read_text()) == record
    read = read_record(run_dir)
    assert read is not None and read.to_dict() == record
    assert (record["run_id"], run_dir) == (config.run_id, config.run_dir)
    assert record["config"] == config.hashed_config()
    resolved = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert resolved["method"]["params"]["iterations"] == 5
    assert record["versions"].keys() >= {"python", "torch", "numpy"}
    assert record["time"]["peak_memory_mb"] > 50 and record["cost"]["participations"] <= 32
    assert len(readers.read_journal(run_dir)[0]["lid"]) == 8
    with np.load(run_dir / "scenario.npz") as scenario:
        assert scenario["sizes"].sum() == len(scenario["parts"]) == 1437
        assert scenario["flipped"].mean() == pytest.approx(record["scenario"]["noise_rate"])
        assert (scenario["client_level"] > 0).sum() == record["scenario"]["noisy_clients"]
    assert len(readers.read_scenario(run_dir)["client_level"]) == 8


def test_peak_memory_has_no_other_children(run_small: Callable[..., dict[str, Any]]) -> None:
    """Such as the compiler of kernels. Worker processes are counted."""
    subprocess.run([sys.executable, "-c", "bytes(2**28)"], check=True)
    serial = run_small("budget.participations=4")["time"]["peak_memory_mb"]
    assert serial <= process_memory_mb()
    overrides = ["executor=processes", "executor.workers=2", "force=true"]
    record = run_small("budget.participations=4", *overrides)
    assert record["time"]["peak_memory_mb"] > serial + 50


def test_non_finite_scores_are_dropped_from_record(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = Diagnosis(values={"nan": float("nan"), "finite": 1.0})
    monkeypatch.setattr(FedAvg, "diagnose", lambda self, pool: diagnosis)
    config = configure("budget.participations=4")
    record = execute_run(config, SilentTracker(config.run_dir))
    assert record.status == "done" and record.metrics["method/finite"] == 1.0
    assert "method/nan" not in record.metrics
    assert "method/nan" in (config.run_dir / "curve.csv").read_text()


def test_methods_of_a_seed_share_the_scenario(
    configure: Callable[..., RunConfig], digits: Dataset
) -> None:
    def hash_of(*overrides: str) -> str:
        return build_scenario(configure(*overrides), digits).hash

    first = hash_of("method=fedavg")
    assert first == hash_of("method=fedcorr")
    assert first == hash_of("method=dividemix", "train.lr=0.5", "model=mlp", "evaluate.every=3")
    changes = ["seed=2", "noise.rho=0.7", "noise.tau=0.1", "noise=none", "partition=shards"]
    others = [hash_of(change) for change in [*changes, "federation.num_clients=9"]]
    assert len({first, *others}) == 1 + len(others)


HASHED_OVERRIDES = """
seed=2 scale=laptop dataset=mnist model=mlp partition=shards partition.form=official noise=none
noise.rho=0.61 noise.tau=0.49 noise.form=official method=fedprox method=median train.lr=0.02
train.local_epochs=2 train.batch_size=11 train.optimizer=adam train.momentum=0.6
train.weight_decay=0.1 train.lr_decay=0.9 train.clip_norm=1 federation.num_clients=9
federation.clients_per_round=3 budget.participations=33 evaluate.every=2
evaluate.memorization_samples=10 evaluate.validation=0.1
""".split()
UNHASHED_OVERRIDES = [
    "runs_dir=elsewhere",
    "data_dir=elsewhere",
    "executor=processes",
    "checkpoint.every_seconds=7",
    "force=true",
    "dry=true",
]


def test_run_id_depends_on_result_affecting_config_only(
    configure: Callable[..., RunConfig],
) -> None:
    first = configure().run_id
    assert configure().run_id == first and first.startswith("fedavg-digits-s1-")
    unhashed = {change: configure(change).run_id for change in UNHASHED_OVERRIDES}
    assert unhashed == dict.fromkeys(UNHASHED_OVERRIDES, first)
    assert configure("executor=processes", "executor.workers=3").run_id == first
    hashed = [configure(change).run_id for change in HASHED_OVERRIDES]
    assert len({first, *hashed}) == 1 + len(HASHED_OVERRIDES)
    assert configure("method=fedprox", "method.mu=0.5").run_id != configure("method=fedprox").run_id
    assert configure("noise.rho=1").run_id == configure("noise.rho=1.0").run_id


def test_centralized_scenario_has_the_labels_of_the_federation(
    configure: Callable[..., RunConfig], digits: Dataset
) -> None:
    """By default the noise of a centralized run is that of 100 clients."""
    one = ["partition=centralized", "federation.num_clients=1", "federation.clients_per_round=1"]
    pooled = build_scenario(configure(*one, "partition.noise_clients=8"), digits)
    federation = build_scenario(configure(), digits)
    assert pooled.num_clients == 1 and federation.num_clients == 8
    assert np.array_equal(pooled.noise.labels, federation.noise.labels)
    assert pooled.noise.flipped.any()
    default = build_scenario(configure(*one), digits)
    assert not np.array_equal(default.noise.labels, federation.noise.labels)


def test_home_directory_is_redacted_in_records_and_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a longer name nor a directory of this name elsewhere is replaced."""
    monkeypatch.setenv("HOME", "/home/ursula")
    value = {
        "path": "/home/ursula/mine.npz",
        "list": ["'/home/ursula'", "file:///home/ursula/x"],
        "other": ["/home/ursula2/a", "/mnt/home/ursula/a"],
        "n": 1,
    }
    redacted = {**value, "path": "~/mine.npz", "list": ["'~'", "file://~/x"]}
    assert redact_home(value) == redacted
    write_json(tmp_path / "record.json", value)
    assert json.loads((tmp_path / "record.json").read_text()) == redacted
    SilentTracker(tmp_path).log("no file /home/ursula/mine.npz")
    assert (tmp_path / "log.txt").read_text().endswith(" no file ~/mine.npz\n")
    monkeypatch.setenv("HOME", "/")
    assert redact_home("/etc") == "/etc"


def test_arithmetic_digest_changes_with_the_kernels_of_matrix_products() -> None:
    """The second process uses kernels of MKL that round in the same way on all processors."""
    code = "from benchmarks.federation.devices import arithmetic_digest as f; print(f())"
    found = []
    for mode in ("", "COMPATIBLE"):
        environment = {**os.environ, "MKL_CBWR": mode} if mode else {**os.environ}
        output = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            check=True,
            text=True,
        )
        found.append(output.stdout.strip())
    assert found[0] == arithmetic_digest()
    assert (found[0] != found[1]) == torch.backends.mkl.is_available()
