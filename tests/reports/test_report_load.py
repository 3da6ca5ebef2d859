"""Records on disk become one frame; what cannot be used is named in one line, the rest is loaded."""

import json
import shutil
from pathlib import Path

from reports.frame.load import flatten, load_runs

RECORDS = Path(__file__).parent / "records"


def test_one_row_per_run():
    runs = load_runs([RECORDS / "good"])
    assert len(runs.done) == len(list((RECORDS / "good").iterdir())) - 1
    row = runs.done[runs.done["run_id"] == "fedprox-noniid-s2"].iloc[0]
    assert (row["seed"], row["scale"], row["noise.rho"], row["method.name"], row["method.mu"]) == (
        2,
        "laptop",
        0.4,
        "fedprox",
        1.0,
    )
    assert (row["summary.best"], row["cost.participations"], row["scene.hash"]) == (
        0.46,
        500,
        "bern-laptop-2",
    )
    assert row["run_dir"] == RECORDS / "good" / "fedprox-noniid-s2"
    assert row["config"]["noise"]["classes"] is None


def test_lost_runs_are_kept_apart():
    runs = load_runs([RECORDS / "good"])
    assert list(runs.unsuccessful["run_id"]) == ["fedcorr-noniid-s2"]
    assert "fedcorr-noniid-s2" not in set(runs.done["run_id"])


def test_every_bad_record_has_its_line():
    runs = load_runs([RECORDS / "bad"])
    said = {
        Path(line.removeprefix("cannot read ").split(":")[0])
        .relative_to(RECORDS / "bad")
        .parts[0]: line
        for line in runs.warnings
    }
    assert set(said) == {
        "bad-failed",
        "bad-half-written",
        "bad-no-summary",
        "bad-not-a-record",
        "bad-protocol",
        "bad-unfinished",
    }
    assert said["bad-failed"].endswith("failed: OSError: disk full; left out")
    assert "not a valid JSON object" in said["bad-half-written"]
    assert "missing summary" in said["bad-no-summary"]
    assert "not a valid JSON object" in said["bad-not-a-record"]
    assert said["bad-protocol"].endswith("protocol 0 is not comparable with protocol 1")
    assert said["bad-unfinished"].endswith("unfinished, no record.json yet; left out")
    assert all("\n" not in line for line in runs.warnings)
    assert list(runs.done["run_id"]) == ["bad-curve"]


def test_bad_records_do_not_hide_good_ones():
    both = load_runs([RECORDS])
    assert len(both.done) == len(load_runs([RECORDS / "good"]).done) + 1


def test_a_copied_run_counts_once(tmp_path):
    source = RECORDS / "good" / "fedavg-noniid-s1"
    shutil.copytree(source, tmp_path / "copy")
    changed = json.loads((source / "record.json").read_text())
    changed["summary"]["best"] = 0.9
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "record.json").write_text(json.dumps(changed))
    runs = load_runs([source, tmp_path, source])
    assert list(runs.done["summary.best"]) == [0.4]
    assert [line.partition(": ")[2] for line in runs.warnings] == [
        f"the same run as {source}; the latter counts",
        f"other numbers for the same run as {source}; the latter counts",
    ]


def test_no_folder_and_no_record(tmp_path):
    runs = load_runs([tmp_path / "none"])
    assert runs.warnings == (f"{tmp_path / 'none'}: no such directory",)
    assert len(runs.done) == len(runs.unsuccessful) == 0 and "summary.best" in runs.done
    assert load_runs([tmp_path]).warnings == ()


def test_flatten():
    assert flatten({"a": 1, "b": {"c": [1, [2]], "d": {}}}) == {"a": 1, "b.c": (1, (2,))}
