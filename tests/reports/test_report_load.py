"""Loading of run records into a frame."""

import json
import shutil
from pathlib import Path

import pytest

from reports.frame.load import flat_config, flatten, load_runs

RECORDS = Path(__file__).parent / "records"
EXPECTED_WARNINGS = {
    "bad-failed": "{}: failed: OSError: disk full; excluded",
    "bad-half-written": "cannot read {}/record.json: not a valid JSON object: EOF while parsing a "
    "string at line 19 column 9; excluded",
    "bad-no-summary": "cannot read {}/record.json: missing summary; excluded",
    "bad-not-a-record": "cannot read {}/record.json: not a valid JSON object; excluded",
    "bad-protocol": "cannot read {}/record.json: protocol version 0 is not comparable with 2; "
    "excluded",
    "bad-unfinished": "{}: unfinished, no record.json; excluded",
}


def test_one_row_per_completed_run():
    runs = load_runs([RECORDS / "good"])
    assert len(runs.done) == len(list((RECORDS / "good").iterdir())) - 1
    row = runs.done[runs.done["run_id"] == "fedprox-noniid-s2"].iloc[0]
    expected = {
        "seed": 2,
        "scale": "laptop",
        "noise.rho": 0.4,
        "method.name": "fedprox",
        "method.mu": 1.0,
        "summary.best": 0.46,
        "cost.participations": 500,
        "scenario.hash": "bern-laptop-2",
        "run_dir": RECORDS / "good" / "fedprox-noniid-s2",
    }
    assert {key: row[key] for key in expected} == expected
    assert row["config"]["noise.classes"] is None


def test_unsuccessful_runs_are_separate():
    runs = load_runs([RECORDS / "good"])
    assert list(runs.unsuccessful["run_id"]) == ["fedcorr-noniid-s2"]
    assert "fedcorr-noniid-s2" not in set(runs.done["run_id"])


def test_every_excluded_run_has_a_warning():
    runs = load_runs([RECORDS / "bad"])
    expected = [text.format(RECORDS / "bad" / name) for name, text in EXPECTED_WARNINGS.items()]
    assert list(runs.warnings) == expected
    assert list(runs.done["run_id"]) == ["bad-curve"]
    assert runs.unfinished_dirs == (RECORDS / "bad" / "bad-unfinished",)


def test_other_records_are_loaded_beside_unreadable_ones():
    both = load_runs([RECORDS])
    assert len(both.done) == len(load_runs([RECORDS / "good"]).done) + 1


def test_seeds_on_different_devices_have_a_warning(tmp_path):
    for seed in (1, 2):
        run_dir = tmp_path / f"fedavg-noniid-s{seed}"
        shutil.copytree(RECORDS / "good" / run_dir.name, run_dir)
    assert load_runs([tmp_path]).warnings == ()
    record = json.loads((run_dir / "record.json").read_text())
    record["time"]["device"] = {"type": "cuda", "name": "GPU"}
    (run_dir / "record.json").write_text(json.dumps(record))
    assert load_runs([tmp_path]).warnings == (
        "seeds of one cell ran on different devices: "
        "cpu (fedavg-noniid-s1), GPU (fedavg-noniid-s2)",
    )


@pytest.mark.parametrize(("key", "values"), [("instruction_set", "AB"), ("arithmetic", "CD")])
def test_seeds_with_different_rounding_have_a_warning(tmp_path, key, values):
    for seed, used in enumerate(values, start=1):
        run_dir = tmp_path / f"fedavg-noniid-s{seed}"
        shutil.copytree(RECORDS / "good" / run_dir.name, run_dir)
        record = json.loads((run_dir / "record.json").read_text())
        record["time"]["device"] = {"type": "cpu", key: used}
        (run_dir / "record.json").write_text(json.dumps(record))
    assert load_runs([tmp_path]).warnings == (
        "seeds of one cell ran on different devices: "
        f"cpu {values[0]} (fedavg-noniid-s1), cpu {values[1]} (fedavg-noniid-s2)",
    )


def test_copied_runs_count_once(tmp_path):
    source = RECORDS / "good" / "fedavg-noniid-s1"
    shutil.copytree(source, tmp_path / "copy")
    changed = json.loads((source / "record.json").read_text())
    changed["summary"]["best"] = 0.9
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "record.json").write_text(json.dumps(changed))
    runs = load_runs([source, tmp_path, source])
    assert list(runs.done["summary.best"]) == [0.4]
    assert list(runs.warnings) == [
        f"{tmp_path / 'copy'}: same results as {source} with the same run id; ignored",
        f"{tmp_path / 'other'}: other results than {source} with the same run id; ignored",
    ]


def test_completed_run_replaces_a_failed_copy(tmp_path):
    source = RECORDS / "good" / "fedavg-noniid-s1"
    record = json.loads((source / "record.json").read_text())
    record |= {"status": "failed", "reason": "OSError: disk full", "summary": {}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    runs = load_runs([tmp_path, source])
    assert list(runs.done["run_dir"]) == [source] and len(runs.unsuccessful) == 0


def test_missing_and_empty_directories(tmp_path):
    runs = load_runs([tmp_path / "none"])
    assert runs.warnings == (f"{tmp_path / 'none'}: no such directory",)
    assert len(runs.done) == len(runs.unsuccessful) == 0 and "summary.best" in runs.done
    assert load_runs([tmp_path]).warnings == ()


def test_precision_has_the_key_of_the_command_line():
    assert flat_config({"protocol_version": 2, "seed": 1}) == {"seed": 1}
    assert flat_config({"precision": "bf16"}) == {"executor.precision": "bf16"}
    assert set(load_runs([RECORDS / "good"]).done["executor.precision"]) == {"fp32"}


def test_flatten():
    assert flatten({"a": 1, "b": {"c": [1, [2]], "d": {}}}) == {"a": 1, "b.c": (1, (2,))}
