"""The tune command: equal budgets, resumption, shared work, data, table and figures."""

import csv
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_helpers import PLUGIN

from benchmarks import interruption
from benchmarks.config.compose import Composer, hydra_session
from benchmarks.config.schema import RunConfig
from benchmarks.run import main as run_main
from benchmarks.tune import execution
from benchmarks.tune.__main__ import main
from benchmarks.tune.space import SearchedParameter, load_space, sample_values
from benchmarks.tune.study import FIRST, FULL, Study, TuningSettings
from methods.core.registry import list_methods

optuna = pytest.importorskip("optuna")

ROOT = Path(__file__).parent.parent.parent
SMALL = ["scale=smoke", "executor=serial", "trials=4", "budget.participations=16"]
BUDGETS = {"first": 4, "full": 16}


def arguments(directory: Path, *others: str) -> list[str]:
    """Arguments of a small tuning that writes into a directory."""
    return [*SMALL, f"runs_dir={directory}", f"tuned={directory / 'tuned'}", *others]


def read_records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in directory.glob("tune/*/record.json")]


def read_data(directory: Path, method: str) -> dict[str, Any]:
    (path,) = directory.glob(f"tuned/*/*/{method}.yaml")
    data: dict[str, Any] = yaml.safe_load(path.read_text())
    return data


def compose(*overrides: str) -> RunConfig:
    with hydra_session():
        return Composer().compose_run(overrides)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a finished tuning of two methods with two seeds."""
    directory = tmp_path_factory.mktemp("tuning")
    assert main(arguments(directory, "method=fedavg,fedprox", "seeds=1000,1001")) == 0
    return directory


def test_all_methods_have_equal_trials_and_budgets(tuned: Path) -> None:
    records = read_records(tuned)
    found = Counter(
        (record["config"]["method"]["name"], record["config"]["seed"], budget)
        for record in records
        if (budget := record["config"]["budget"]["participations"])
    )
    assert found == {
        (method, seed, budget): count
        for method in ("fedavg", "fedprox")
        for seed in (1000, 1001)
        for budget, count in ((4, 4), (16, 2))
    }
    assert {record["cost"]["participations"] for record in records} == {4, 16}
    assert {record["config"]["evaluate"]["validation"] for record in records} == {0.05}


def test_data_has_the_best_trial_and_its_provenance(tuned: Path) -> None:
    data = read_data(tuned, "fedprox")
    trials = data["trials"]
    assert list(data["space"]) == ["train.lr", "method.mu"]
    assert trials[0]["values"] == {"train.lr": 0.01, "method.mu": 1.0}  # the recipe
    best = max(trials[1:], key=lambda trial: trial["first"])
    assert [trial for trial in trials if trial["full"] is not None] == [trials[0], best]
    assert data["overrides"] == max(trials[0], best, key=lambda trial: trial["full"])["values"]
    assert data["seeds"] == [1000, 1001] and data["participations"] == BUDGETS
    assert data["oracle"] is False and "given labels" in data["judged_by"]
    assert data["noise"]["rho"] == 0.6 and data["noise"]["tau"] == 0.5
    assert data["command"].startswith("fln tune scale=smoke") and "optuna" in data["versions"]


def test_score_is_the_mean_over_evaluations_and_seeds(tuned: Path) -> None:
    """The first trial of FedAvg, computed from the learning curves of its two runs."""
    means = []
    for record in read_records(tuned):
        config = record["config"]
        if config["method"]["name"] != "fedavg" or config["train"]["lr"] != 0.01:
            continue
        if config["budget"]["participations"] == BUDGETS["first"]:
            with open(tuned / "tune" / record["run_id"] / "curve.csv") as file:
                rows = [float(row["validation_accuracy"]) for row in csv.DictReader(file)]
            means.append(sum(rows[-10:]) / len(rows[-10:]))
    assert len(means) == 2
    score = read_data(tuned, "fedavg")["trials"][0]["first"]
    assert score == pytest.approx(sum(means) / 2, abs=1e-6)


def test_finished_trials_are_not_repeated(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in tuned.glob("tune/*/record.json")}
    content = read_data(tuned, "fedavg")
    assert main(arguments(tuned, "method=fedavg,fedprox", "seeds=1000,1001")) == 0
    assert "started" not in capsys.readouterr().out
    after = {path: path.stat().st_mtime_ns for path in tuned.glob("tune/*/record.json")}
    assert after == before
    content["command"] = read_data(tuned, "fedavg")["command"]
    assert read_data(tuned, "fedavg") == content


def test_runs_use_the_tuned_values(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--config-dir", str(tuned), "method=fedprox", "scale=smoke", "--cfg", "job"]
    assert run_main(options) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    values = read_data(tuned, "fedprox")["overrides"]
    assert config["hyperparameters"] == "tuned"
    assert (config["train"]["lr"], config["method"]["mu"]) == tuple(values.values())
    assert run_main([*options, "hyperparameters=common"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["train"]["lr"] == 0.01
    assert run_main([*options[:-2], "seed=1000", "dry_run=true"]) == 2
    assert "invalid seed=1000: expected less than 1000 with" in capsys.readouterr().err


def test_journal_has_the_trials(tuned: Path) -> None:
    (path,) = tuned.glob("tune/fedavg-*.journal")
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name=None, storage=storage)
    states = Counter(trial.state.name for trial in study.trials)
    assert states == {"PRUNED": 2, "COMPLETE": 2}
    assert study.best_params == read_data(tuned, "fedavg")["overrides"]


def test_report_is_written_from_the_data(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["report=true", "scale=smoke", f"tuned={tuned / 'tuned'}", f"out={tmp_path}"]
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert "fedavg" in shown and "held-out samples with given labels" in " ".join(shown.split())
    (table,) = tmp_path.glob("*.md")
    assert "| fedprox | train.lr=" in table.read_text()
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_interrupted_tuning_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []
    original = execution.run_from_config

    def run(config: RunConfig) -> Any:
        if len(executed) == 2:
            raise KeyboardInterrupt
        executed.append(config.run_id)
        return original(config)

    command = arguments(tmp_path, "method=fedavg")
    monkeypatch.setattr(execution, "run_from_config", run)
    assert main(command) == 130
    assert len(read_records(tmp_path)) == 2 and not (tmp_path / "tuned").exists()
    monkeypatch.setattr(
        execution, "run_from_config", lambda c: executed.append(c.run_id) or original(c)
    )
    assert main(command) == 0
    assert len(executed) == len(set(executed)) == 6


def test_two_commands_share_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them with two processes. Every round of every run is executed once.

    A run of the other command is named once, however long this one waits for it.
    """
    monkeypatch.setattr(execution, "POLL_SECONDS", 0.05)
    command = arguments(tmp_path, "method=fedavg,median")
    other = [
        sys.executable,
        "-m",
        "benchmarks.tune",
        *command,
        "jobs=2",
        "tuned=" + str(tmp_path / "other" / "tuned"),
    ]
    with subprocess.Popen(other, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        assert main(command) == 0
        assert process.wait(120) == 0
    named = [line for line in capsys.readouterr().out.splitlines() if "skipped: " in line]
    assert len(named) == len(set(named))
    for method in ("fedavg", "median"):
        first, second = read_data(tmp_path, method), read_data(tmp_path / "other", method)
        assert first | {"command": ""} == second | {"command": ""}
    for record in read_records(tmp_path):
        log = (tmp_path / "tune" / record["run_id"] / "log.txt").read_text()
        rounds = [line.split()[3] for line in log.splitlines() if " accuracy " in line]
        assert len(rounds) == len(set(rounds)) == record["rounds"]


def test_processes_that_start_ignore_signals_and_may_die(tmp_path: Path) -> None:
    pools = execution._make_pools(2, tmp_path / "stop")
    first, second = sorted(process.pid or 0 for process in multiprocessing.active_children())
    for number in interruption.SIGNALS:
        os.kill(first, number)
    os.kill(second, signal.SIGKILL)
    results: list[int | None] = []
    for pool in pools:
        with pool:
            try:
                results.append(pool.submit(os.getpid).result(60))
            except BrokenProcessPool:
                results.append(None)
    assert results == [first, None]


def test_plugin_is_tuned_by_the_same_command(tmp_path: Path) -> None:
    """It has no search space of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.tune",
        *arguments(tmp_path, "method=norm_clipping"),
    ]
    environment = {"PYTHONPATH": str(PLUGIN), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(read_data(tmp_path, "norm_clipping")["space"]) == ["train.lr"]


def test_clean_judge_is_marked_oracle(tmp_path: Path) -> None:
    assert main(arguments(tmp_path, "method=fedavg", "trials=2", "judge=clean")) == 0
    data = read_data(tmp_path, "fedavg")
    assert data["oracle"] is True and "clean labels" in data["judged_by"]


def test_diverged_trials_do_not_win(tmp_path: Path) -> None:
    assert main(arguments(tmp_path, "method=fedavg", "train.lr=1e12")) == 1
    assert not (tmp_path / "tuned").exists()


def test_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, "method=fedavg", "dry_run=true")) == 0
    shown = capsys.readouterr().out
    assert "4 runs, 0 done" in shown and "the recipe and the best 1 other trials" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", [info.name for info in list_methods()])
def test_search_space_contains_the_recipe(method: str) -> None:
    """And has the learning rate and at most two parameters of the method."""
    with hydra_session():
        config = Composer().compose_run([f"method={method}", "dataset=cifar10"])
        space = load_space(config)
    assert space[0].key == "train.lr" and len(space) <= 3
    assert space[0].high / space[0].low == pytest.approx(100)
    values = sample_values(space, 8)
    assert values[0] == {parameter.key: parameter.recipe for parameter in space}
    assert len({tuple(each.values()) for each in values}) == 8
    assert values == sample_values(space, 8)
    for parameter in space:
        assert all(parameter.low <= each[parameter.key] <= parameter.high for each in values)


def test_integers_are_searched_within_the_bounds() -> None:
    parameter = SearchedParameter("train.local_epochs", 0.5, 2.5, True, 1)
    assert parameter.distribution == optuna.distributions.IntDistribution(1, 2, log=True)


def test_finalists_are_the_best_of_the_first_stage() -> None:
    with hydra_session():
        settings = TuningSettings(("scale=smoke",), 8, (1000,), "clean")
        study = Study("fedavg", settings, Composer())

        def set_score(stage: int, trial: int, score: float) -> None:
            (run,) = study.runs(stage, trial)
            study._scores[run.config.run_id] = score

        for trial, score in enumerate([0.1, 0.5, float("-inf"), 0.3, 0.5, 0.2, 0.0, 0.4]):
            assert study.trials(FULL) == []
            set_score(FIRST, trial, score)
        assert study.trials(FULL) == [0, 1, 4] and study.best is None
        set_score(FULL, 1, 0.0)
        assert study.best == 1
        set_score(FULL, 0, 0.65)
        set_score(FULL, 1, 0.6)
        set_score(FULL, 4, 0.7)
        assert study.best == 4
        set_score(FULL, 0, 0.7)
        assert study.best == 0  # the recipe, if it is as good


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["trails=3"], "unknown key trails: did you mean trials?"),
        ([], "missing method: set method=NAME,... or method=all"),
        (["method=fedavgg"], "invalid method=fedavgg: did you mean fedavg?"),
        (["method=fedavg", "seeds=1000,7"], "invalid seeds='1000,7': expected integers of at"),
        (["method=fedavg", "seed=1"], "invalid seed='1': expected seeds=1000"),
        (["method=fedavg", "hyperparameters=tuned"], "invalid hyperparameters='tuned': expected c"),
        (["method=fedavg", "evaluate.validation=0"], "invalid evaluate.validation=0.0: expected a"),
        (["method=fedavg", "trials=0"], "invalid trials='0': expected an integer of at least 1"),
        (["method=fedavg", "judge=best"], "invalid judge=best: available: noisy, clean"),
        (["method=fedavg", "report=yes"], "invalid report=yes: available: true, false"),
        (["method=fedprox", "method.mu=5"], "invalid method.mu=5.0: expected a value within the"),
        (["method=fedavg", "noise.rhoo=1"], "unknown key noise.rhoo: did you mean rho?"),
        (["report=true", "tuned=nowhere"], "no tuned data found in nowhere/"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, *options)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("method.deltaa: {low: 0.1, high: 1.0}", "unknown key method.deltaa: did you mean"),
        ("train.optimizer: {low: 0.1, high: 1.0}", "invalid train.optimizer='sgd': expected a num"),
        ("method.delta: {low: 0.0, high: 1.0, log: true}", "invalid search space of method.delta="),
        ("method.delta: {low: 0.1}", "missing search/arfl.yaml: method.delta.high"),
        ("method.delta: 3", "invalid search/arfl.yaml: method.delta=3: expected keys low, high"),
        (
            "{a: &x {low: 1, high: 2}, b: *x, c: *x}",
            "invalid search/arfl.yaml='a, b, c': expected at most 2 parameters",
        ),
    ],
)
def test_invalid_search_space_is_one_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "arfl.yaml").write_text(content)
    search_path = f"hydra.searchpath=[file://{tmp_path}]"
    assert main(arguments(tmp_path, "method=arfl", search_path)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
