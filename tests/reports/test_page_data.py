"""Page data: equal to the records, and without local paths."""

import json
import math
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from fake_runs import make_unfinished, set_status, write_sweep

from benchmarks.records.readers import read_scenario
from reports.frame.load import flat_config, flatten
from reports.page import collect, traces
from reports.page.rerun import rerun, to_override_value

RECORDS = Path(__file__).parent / "records"


def entries_of(data):
    return {
        (setting["noise"], entry["label"]): entry
        for setting in data["settings"]
        for entry in setting["entries"]
    }


def test_downsampled_curves_keep_their_ends_and_share_indices():
    downsample = traces.downsample_indices
    assert downsample(0, 100) == [] and downsample(7, 100) == list(range(7))
    for length in (101, 399, 5000):
        kept = downsample(length, 100)
        assert len(kept) <= 101 and kept[0] == 0 and kept[-1] == length - 1
    assert set(downsample(3001, 100)) <= set(downsample(301, 100)) | set(range(301, 3001))


def test_curve_of_a_record():
    frame = pd.read_csv(RECORDS / "good" / "fedcorr-iid-s1" / "curve.csv")
    found = traces.curve(frame, 400)
    assert found["accuracy"] == frame["accuracy"].tolist()
    assert found["participations"] == frame["participations"].tolist()
    assert found["stages"] == [("train", len(frame))]
    assert "megabytes" not in found and found["scores"] == {}


def test_numbers_of_a_curve_are_rounded_and_missing_ones_are_null():
    columns = {"round": [1, 2], "loss": [0.12345, math.inf], "clients/f1": [math.nan, 0.123456]}
    found = traces.curve(pd.DataFrame(columns | {"bytes_down": 2e6, "bytes_up": 1e6}), 400)
    assert found == {
        "round": [1, 2],
        "loss": [0.123, None],
        "megabytes": [3.0, 3.0],
        "scores": {"clients/f1": [None, 0.1235]},
    }


def test_scenario_of_a_record():
    arrays = read_scenario(RECORDS / "good" / "fedcorr-iid-s1")
    found = traces.scenario(arrays)
    assert found["counts"] == arrays["clean_counts"].tolist()
    assert found["noise_rates"] == [0, 40, 70, 0] and found["num_noisy"] == 2
    assert [sum(row) for row in found["transition"]] == pytest.approx([100] * 3, abs=1)


def test_confusion_matrix_of_few_and_many_classes():
    assert traces.confusion([[3, 1], [0, 4]]) == {"counts": [[3, 1], [0, 4]]}
    assert traces.confusion(np.eye(100, dtype=int).tolist()) == {"recall": [100.0] * 100}
    assert [traces.confusion(wrong) for wrong in ([], [[1, 2]], [[1], [2, 3]])] == [None] * 3


def test_entries_equal_the_records(tmp_path, frozen_conf):
    run_dirs = write_sweep(tmp_path / "runs")
    data = collect.build_page_data([str(tmp_path / "runs")])[0]
    records = [json.loads((run_dir / "record.json").read_text()) for run_dir in run_dirs]
    assert [len(setting["entries"]) for setting in data["settings"]] == [4, 4]
    for (noise, label), entry in entries_of(data).items():
        own = [
            record
            for record in records
            if record["config"]["method"]["name"] == label
            and f"ρ {record['config']['noise']['rho']:g}," in noise
        ]
        assert [run["id"] for run in entry["runs"]] == [record["run_id"] for record in own]
        for name in ("best", "last10", "final"):
            values = [100 * record["summary"][name] for record in own]
            mean, std = round(np.mean(values), 4), round(np.std(values, ddof=1), 4)
            assert entry[name] == pytest.approx({"mean": mean, "std": std, "n": 2})
        forgetting = entry["best"]["mean"] - entry["last10"]["mean"]
        assert entry["forgetting"] == pytest.approx(forgetting, abs=2e-4)
        assert entry["bold"] == [], "two seeds are too few"
        assert (entry["participations"], entry["megabytes"], entry["seconds"]) == (500, 5, 10)
        assert (entry["clients_f1"] is None) == (label != "fedcorr")
    fedcorr, fedavg = (
        entries_of(data)["rho_tau (ρ 0.4, τ 0.5)", name] for name in ("fedcorr", "fedavg")
    )
    difference = fedcorr["last10"]["mean"] - fedavg["last10"]["mean"]
    assert fedcorr["versus"]["mean"] == pytest.approx(difference, abs=2e-4)
    assert fedcorr["versus"]["n"] == 2
    by_best = collect.build_page_data([str(tmp_path / "runs")], "best")[0]
    assert by_best["accuracy"] == "best" and by_best["settings"] != data["settings"]
    versus = entries_of(by_best)["rho_tau (ρ 0.4, τ 0.5)", "fedcorr"]["versus"]["mean"]
    assert versus == pytest.approx(0.5) != fedcorr["versus"]["mean"]
    run = fedcorr["runs"][1]
    curve = pd.read_csv(tmp_path / "runs" / run["id"] / "curve.csv").round(4)
    assert run["curve"]["accuracy"] == curve["accuracy"].tolist()
    assert run["curve"]["scores"]["samples/f1"] == curve["samples/f1"].tolist()
    assert len(data["scenarios"]) == 4, "equal scenarios are stored once"


def test_runs_of_a_setting_differ_in_method_and_training_only(frozen_conf):
    data = collect.build_page_data([str(RECORDS / "good")])[0]
    shared = ("dataset", "model", "partition", "noise", "budget", "federation", "evaluate", "scale")
    for setting in data["settings"]:
        values = [
            {key: value for key, value in entry["config"].items() if key.split(".")[0] in shared}
            for entry in setting["entries"]
        ]
        assert all(other == values[0] for other in values)
    keys = ("scale", "partition", "noise", "budget", "also")
    descriptions = {tuple(setting[key] for key in keys) for setting in data["settings"]}
    assert len(descriptions) == len(data["settings"])
    labels = {label for _, label in entries_of(data)}
    assert {"fedavg", "fedcorr"} <= labels
    assert any(label.startswith("fedprox mu=") for label in labels)


def test_unsuccessful_and_unfinished_runs_are_shown_but_not_averaged(tmp_path, frozen_conf):
    _, second, third, fourth = write_sweep(
        tmp_path / "runs", rhos=[0.4], methods=["fedavg"], seeds=[1, 2, 3, 4]
    )
    set_status(second, "diverged", "round 7: the loss is not finite")
    set_status(third, "failed", f"OSError: {tmp_path}/data/x.bin: no space left")
    make_unfinished(fourth)
    data, warnings = collect.build_page_data([str(tmp_path / "runs")])
    (entry,) = entries_of(data).values()
    assert entry["status"] == {"done": 1, "diverged": 1, "failed": 1, "running": 1}
    assert entry["best"]["n"] == 1
    runs = {run["seed"]: run for run in entry["runs"]}
    assert runs[2]["reason"] == "round 7: the loss is not finite"
    assert runs[3]["reason"] == "OSError: …/x.bin: no space left"
    assert runs[4]["curve"]["participations"] == [5, 10, 15, 20, 25, 30]
    assert not [line for line in warnings if "unfinished" in line]
    assert str(tmp_path) not in json.dumps(data)


def test_records_with_and_without_a_value_are_shown_together(tmp_path, frozen_conf):
    first, _ = write_sweep(tmp_path / "runs", rhos=[0.4], methods=["fedavg"])
    record = json.loads((first / "record.json").read_text())
    del record["scenario"]["noise_convention"]
    (first / "record.json").write_text(json.dumps(record))
    data = collect.build_page_data([str(tmp_path / "runs")])[0]
    (entry,) = entries_of(data).values()
    assert [run["scenario"]["convention"] is None for run in entry["runs"]] == [True, False]
    json.dumps(data, allow_nan=False)


def test_references_are_shown_and_do_not_compete(tmp_path, frozen_conf):
    """Eight seeds are enough for bold: FedProx is better than FedAvg, but not than clean labels."""
    runs, seeds = tmp_path / "runs", range(1, 9)
    write_sweep(runs, rhos=[0.4], methods=["fedavg", "fedprox"], seeds=seeds)
    for run_dir in write_sweep(tmp_path / "clean", rhos=[0.4], methods=["fedavg"], seeds=seeds):
        record = json.loads((run_dir / "record.json").read_text())
        record["config"]["labels"] = "clean"
        record["run_id"] = f"clean-{record['run_id']}"
        record["summary"] = {"best": 0.9, "last10": 0.9, "final": 0.9}
        (run_dir / "record.json").write_text(json.dumps(record))
    data = collect.build_page_data([str(runs), str(tmp_path / "clean")])[0]
    entries = {label: entry for (_, label), entry in entries_of(data).items()}
    assert set(entries) == {"fedavg", "fedprox", "fedavg labels=clean"}
    reference = entries["fedavg labels=clean"]
    assert reference["reference"] and reference["versus"] is None and reference["bold"] == []
    assert reference["repaired"] is None and "labels=clean" in reference["command"]
    assert not entries["fedprox"]["reference"] and "best" in entries["fedprox"]["bold"]
    fedavg, fedprox = (entries[name]["last10"]["mean"] for name in ("fedavg", "fedprox"))
    repaired = entries["fedprox"]["repaired"]
    assert repaired["share"] == pytest.approx(100 * (fedprox - fedavg) / (90 - fedavg), abs=0.01)
    low, high = repaired["interval"]
    assert low < repaired["share"] < high
    assert entries["fedavg"]["repaired"] == {"share": 0, "interval": [0, 0]}


def test_unfinished_runs_are_in_the_setting_of_finished_ones(tmp_path, frozen_conf):
    """config.yaml has keys at their defaults that records leave out."""
    _, second = write_sweep(tmp_path, rhos=[0.4], methods=["fedavg"], seeds=[1, 2])
    make_unfinished(second)
    config = yaml.safe_load((second / "config.yaml").read_text())
    config["evaluate"]["validation"], config["labels"] = 0.0, "given"
    config["oracle"], config["executor"] = [], {"precision": "fp32"}
    (second / "config.yaml").write_text(yaml.safe_dump(config))
    data = collect.build_page_data([str(tmp_path)])[0]
    ((_, entry),) = entries_of(data).items()
    assert entry["status"] == {"done": 1, "running": 1}


def test_command_of_an_unfinished_run_has_its_marks_and_precision(tmp_path, frozen_conf):
    (run_dir,) = write_sweep(tmp_path, rhos=[0.4], methods=["fedavg"], seeds=[1])
    make_unfinished(run_dir)
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    config["oracle"], config["executor"] = ["train.lr"], {"precision": "bf16"}
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config))
    ((_, entry),) = entries_of(collect.build_page_data([str(tmp_path)])[0]).items()
    assert "'oracle=[train.lr]'" in entry["command"]
    assert "executor.precision=bf16" in entry["command"]


def test_command_gives_the_same_run_id():
    """Uses the real configuration."""
    from benchmarks.config.compose import compose_run

    overrides = [
        "method=fedcorr", "method.theta=0.25", "dataset=cifar10", "noise=symmetric",
        "noise.epsilon=0.7", "model=mlp", "model.hidden=[64,32]", "partition=dirichlet",
        "train.lr=0.00012345678", "seed=3", "scale=smoke",
    ]  # fmt: skip
    config = compose_run(overrides)
    found = rerun(flatten(config.hashed_config()), config.scale)
    words = shlex.split(found.command)
    same = compose_run([*words[3:], "seed=3"])
    assert same.run_id == config.run_id
    keys = {"method.theta", "noise.epsilon", "model.name", "model.hidden", "train.lr"}
    assert set(found.defaults) == keys and len(words) == 3 + 6 + 4


def test_command_has_the_protocol_if_it_is_not_the_default():
    """Uses the real configuration. Values are relative to the protocol of the command."""
    from benchmarks.config.compose import compose_run

    chosen = ["protocol=lsg", "hyperparameters=published", "method=lsg", "dataset=cifar10"]
    config = compose_run([*chosen, "train.lr=0.01", "noise=pairwise"])
    found = rerun(flatten(config.hashed_config()), config.scale)
    assert compose_run(shlex.split(found.command)[3:]).run_id == config.run_id
    assert found.command.endswith(
        "protocol=lsg hyperparameters=published scale=laptop train.lr=0.01"
    )
    assert set(found.defaults) == {"protocol", "hyperparameters", "train.lr"}


def test_command_has_the_precision():
    """Uses the real configuration."""
    from benchmarks.config.compose import compose_run

    config = compose_run(["executor.precision=bf16"])
    found = rerun(flat_config(config.hashed_config()), config.scale)
    assert compose_run(shlex.split(found.command)[3:]).run_id == config.run_id
    assert set(found.defaults) == {"executor.precision"}


def test_command_names_data_files_and_oracle_parameters(tmp_path):
    """Uses the real configuration. The record has the content of a file, not its path."""
    from benchmarks.config.compose import compose_run

    np.savez(tmp_path / "labels.npz", worse_label=np.zeros(1437, np.int64))
    file = f"noise.path={tmp_path / 'labels.npz'}"
    config = compose_run(["noise=human", file, "oracle=[train.lr]"])
    command = rerun(flatten(config.hashed_config()), config.scale).command
    assert "noise.path=FILE" in command and "content" not in command
    words = shlex.split(command.replace("noise.path=FILE", file))
    assert compose_run(words[3:]).run_id == config.run_id


def test_command_has_all_parameters_of_an_unknown_method(frozen_conf):
    config = {
        "method.name": "mine",
        "method.strength": 0.5,
        "dataset.name": "cifar10",
        "model.name": "lenet5",
        "partition.name": "iid",
        "noise.name": "rho_tau",
        "noise.classes": None,
    }
    found = rerun(config, "laptop")
    assert found.command.endswith("scale=laptop method.strength=0.5 noise.classes=null")
    assert found.defaults == {}


def test_override_values():
    values = [None, True, 0.1, 3, "kl", (512, 512), "a b", "it's"]
    expected = ["null", "true", "0.1", "3", "kl", "[512,512]", "'a b'", "'it\\'s'"]
    assert list(map(to_override_value, values)) == expected


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("/home/me/x/y.npz: no; ~/a/b.csv", "…/y.npz: no; …/b.csv"),
        ("C:\\Users\\me\\c.csv, a / b", "…/c.csv, a / b"),
        ("clients/f1, 3/4, </th></tr>", "clients/f1, 3/4, </th></tr>"),
        ("/tmp/runs/r-1/record.json", "r-1/record.json"),
    ],
)
def test_paths_are_stripped(text, stripped):
    data = {"clients/f1": [text]}
    assert collect._strip_paths(data, ["/tmp/runs", "s"]) == {"clients/f1": [stripped]}
