"""Experiments: layouts, runs of the published tables and figures, and their configurations."""

from pathlib import Path
from typing import Any

import pytest
from run_helpers import compose_runs

from benchmarks.config.compose import compose_run
from benchmarks.config.experiments import (
    CONF,
    experiment_names,
    load_experiment,
    merge_overrides,
    parse_experiment,
)
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import expand
from methods.core.errors import UserError

NAMES = experiment_names()
TABLES = [name for name in NAMES if "table" in name]


def list_runs(name: str, scale: str) -> list[list[str]]:
    return load_experiment(name).run_overrides(scale)


def find_run(name: str, scale: str, *overrides: str) -> list[str]:
    """The only run of an experiment with these overrides."""
    (run,) = (run for run in list_runs(name, scale) if {*overrides} <= {*run})
    return run


def compose_at(run: list[str], scale: str) -> RunConfig:
    return compose_run([*run, f"scale={scale}"])


def test_columns_keep_pairs_of_values() -> None:
    """FedCorr's Table 2 has seven pairs of rho and tau, not their eight combinations."""
    runs = list_runs("fedcorr_table2", "paper")
    pairs = {
        tuple(sorted(text for text in run if text.startswith(("noise.rho", "noise.tau"))))
        for run in runs
    }
    assert len(pairs) == 7 and len(runs) == 9 * 7
    assert ("noise.rho=0.0", "noise.tau=0.5") not in pairs


def test_smaller_scale_has_its_own_model_and_federation() -> None:
    assert all("model=cnn9" in run for run in list_runs("lsg_table6", "paper"))
    laptop = [text for run in list_runs("lsg_table6", "laptop") for text in run]
    assert not any(text.startswith(("model=", "federation.")) for text in laptop)


def test_models_of_rows_apply_at_every_scale() -> None:
    texts = {text for run in list_runs("fedcorr_table10", "smoke") for text in run}
    models = {text for text in texts if text.startswith("model=")}
    assert models == {"model=resnet18", "model=vgg11", "model=lenet5"}


def test_selecting_an_option_drops_earlier_values_of_its_group() -> None:
    run = ["noise=rho_tau", "noise.rho=0.4", "seed=1"]
    assert merge_overrides(run, ["noise=symmetric", "seed=2"]) == ("noise=symmetric", "seed=2")
    run = ["method=fedprox", "++method.mu=0.4", "~method.form"]
    assert merge_overrides(run, ["method=fedavg"]) == ("method=fedavg",)
    assert merge_overrides(["seed=1"], ["~method.mu"]) == ("seed=1", "~method.mu")


def test_runs_have_the_name_of_their_experiment() -> None:
    runs = expand(["experiment=fedcorr_table9", "scale=smoke", "seed=1,2"])
    assert len(runs) == 2 * 7 == len({run.config.run_id for run in runs})
    assert {run.config.experiment_name for run in runs} == {"fedcorr_table9"}


def test_command_line_takes_precedence_over_the_experiment() -> None:
    runs = expand(["experiment=fedcorr_table9", "scale=smoke", "method=fedavg", "noise=none"])
    assert [(run.config.method.name, run.config.noise.name) for run in runs] == [("fedavg", "none")]


def test_several_experiments() -> None:
    names = "fedcorr_figure3,fedcorr_figure6,fedcorr_figure9"
    assert len(expand([f"experiment={names}", "scale=smoke"])) == 7, "equal runs are run once"


def test_unknown_experiment_is_one_line() -> None:
    for call in (lambda: expand(["experiment=fedcorr_table99"]), lambda: load_experiment("x")):
        with pytest.raises(UserError, match="unknown experiment .*available: fedcnml_figure2, "):
            call()


def test_equal_rows_are_run_once(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    rows = "rows: [method=fedavg, method=fedavg, method=fedprox]"
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"common: dataset=digits\n{rows}\ncolumns: [noise.rho=0.4 noise.tau=0.5]\n"
    )
    assert load_experiment("mine", tmp_path).run_overrides("laptop") == [
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedavg"],
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedprox"],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"row": []}, "unknown key experiment.row: did you mean rows?"),
        (
            {"common": ["method=fedavg"]},
            "invalid experiment.common=['method=fedavg']: expected a str",
        ),
        ({"extra": None}, "invalid experiment.extra=null: expected a list"),
        ({"rows": 3}, "invalid experiment.rows=3: expected a list of overrides"),
        ({"extra": [{"rows": ["B"]}]}, "unknown mine: row B: available: A"),
        ({"skip": [{"columns": ["B"]}]}, "unknown mine: column B: available: "),
        ({"extra": [{"scale": "lap"}]}, "invalid experiment.extra.scale='lap': expected "),
    ],
)
def test_invalid_layout_is_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_experiment("mine", {"rows": {"A": "method=fedavg"}, **content})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_every_published_table_and_figure_is_an_experiment() -> None:
    figures = {*NAMES} - {*TABLES}
    assert figures == {
        *(f"fedcorr_figure{number}" for number in range(2, 11)),
        "lsg_figure4",
        "lsg_figure5",
        "fedcnml_figure2",
        "fedcnml_figure3",
    }
    assert len(TABLES) == 20
    for name in NAMES:
        title = (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()[0]
        kind, number = ("Figure", "figure") if name in figures else ("Table", "table")
        assert title.startswith("# ") and f", {kind} " in title and number in name


def test_experiments_with_the_same_layout_have_the_same_runs() -> None:
    for name in ("fedcorr_figure6", "fedcorr_figure7", "fedcorr_figure8"):
        assert list_runs(name, "paper") == list_runs("fedcorr_figure3", "paper")
    assert list_runs("fedcorr_figure10", "laptop") == list_runs("fedcorr_figure2", "laptop")
    assert len(expand(["experiment=fedcorr_figure10"])) == 3


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.no_cover
def test_models_of_published_tables(name: str) -> None:
    """Runs have the model of the layout, with the parameters of its dataset at scale=paper."""
    runs = list_runs(name, "paper")
    datasets = sorted({text for run in runs for text in run if text.startswith("dataset=")})
    usual = dict(
        zip(datasets, compose_runs([text, "scale=paper"] for text in datasets), strict=True)
    )
    for run, config in zip(runs, compose_runs([*run, "scale=paper"] for run in runs), strict=True):
        (model,) = (text.removeprefix("model=") for text in run if text.startswith("model="))
        assert config.model.name == model
        (dataset,) = (text for text in run if text.startswith("dataset="))
        if usual[dataset].model.name == model:
            assert config.model == usual[dataset].model


@pytest.mark.parametrize(
    ("name", "num_runs", "expected"),
    [
        ("fedcorr_table2", 63, {"name": "resnet18", "stem": "cifar"}),
        ("fedcorr_table3", 36, {"name": "resnet34", "stem": "cifar"}),
        ("fedcorr_table5", 9, {"name": "resnet50", "pretrained": True}),
        ("lsg_table2", 18, {"name": "resnet18", "stem": "imagenet"}),
        ("lsg_table4", 7, {"name": "resnet50", "pretrained": True}),
        ("lsg_table6", 24, {"name": "cnn9", "dropout_in_eval": False}),
    ],
)
def test_models_as_printed(name: str, num_runs: int, expected: dict[str, object]) -> None:
    """FedCorr, Table 1 and Section 4.1; LSG, Section V-A."""
    configs = compose_runs([*run, "scale=paper"] for run in list_runs(name, "paper"))
    assert [config.hashed_config()["model"] for config in configs] == num_runs * [expected]


@pytest.mark.parametrize("scale", ["paper", "laptop"])
@pytest.mark.no_cover
def test_first_and_last_run_of_every_experiment_compose(scale: str) -> None:
    runs = [list_runs(name, scale)[index] for name in NAMES for index in (0, -1)]
    for run, config in zip(runs, compose_runs([*r, f"scale={scale}"] for r in runs), strict=True):
        components = {"dataset": config.dataset, "method": config.method, "noise": config.noise}
        assert {f"{group}={entry.name}" for group, entry in components.items()} <= {*run}
        assert config.scale == scale


@pytest.mark.parametrize(
    ("scale", "epochs", "min_predictions"), [("paper", 320, 70), ("laptop", 32, 7)]
)
def test_centralized_references_have_the_epochs_of_their_papers(
    scale: str, epochs: int, min_predictions: int
) -> None:
    """At scale=laptop a tenth of the epochs."""
    runs = list_runs("fedcorr_table2", scale)
    jointopt, dividemix = (compose_at(run, scale) for run in (runs[0], runs[7]))
    assert [config.method.name for config in (jointopt, dividemix)] == ["jointopt", "dividemix"]
    assert jointopt.federation == dividemix.federation
    assert jointopt.federation.num_clients == 1 == jointopt.federation.clients_per_round
    rounds = jointopt.budget.participations * jointopt.method.params.budget_fraction
    assert rounds == pytest.approx(epochs)
    assert jointopt.method.params.min_predictions == min_predictions
    assert jointopt.partition.params.noise_clients == 100
    rounds = dividemix.budget.participations * dividemix.method.params.budget_fraction
    assert rounds == pytest.approx(300 if scale == "paper" else 30)
    assert rounds * dividemix.method.params.warmup_fraction == pytest.approx(rounds / 30, rel=1e-3)
    assert dividemix.train.local_epochs == dividemix.method.params.divide_epochs == 1


def test_lsg_on_cifar10_has_its_own_training() -> None:
    column = ("dataset=cifar10", "noise=symmetric", "noise.epsilon=0.3")
    fedavg, coteaching, lsg = (
        compose_at(find_run("lsg_table1", "paper", f"method={name}", *column), "paper")
        for name in ("fedavg", "coteaching", "lsg")
    )
    for config in (fedavg, coteaching, lsg):
        assert (config.model.name, config.budget.participations) == ("cnn9", 1000)
        train = config.train
        assert (train.optimizer, train.lr, train.batch_size) == ("adam", 0.001, 128)
    assert (coteaching.method.params.forget_rate, lsg.method.params.lambda_) == (0.3, 0.4)
    assert (coteaching.oracle, lsg.oracle) == (("method.forget_rate",), ("method.lambda_",))


def test_cells_that_are_not_printed_are_skipped() -> None:
    """FedCorr's Table 5 has two of seven methods in the centralized setting."""
    runs = list_runs("fedcorr_table5", "paper")
    assert len(runs) == 7 + 2
    centralized = [run for run in runs if "partition=centralized" in run]
    methods = {text for run in centralized for text in run if text.startswith("method=")}
    assert methods == {"method=jointopt", "method=dividemix"}


@pytest.mark.parametrize("scale", ["paper", "laptop"])
def test_figure_and_table_share_a_run(scale: str) -> None:
    (figure,) = list_runs("fedcorr_figure6", scale)
    cell = find_run("fedcorr_table2", scale, "method=fedcorr", "noise.rho=0.6", "noise.tau=0.5")
    assert compose_at(figure, scale).run_id == compose_at(cell, scale).run_id
