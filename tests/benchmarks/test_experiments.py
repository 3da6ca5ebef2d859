"""Experiments are lists of cells; pairs stay together, and the command line wins."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.config import experiments, sweep
from benchmarks.config.schema import RunConfig
from methods.core.errors import UserError

CONF = Path(__file__).parents[2] / "conf"
NAMES = experiments.experiment_names()


def composed(cell: list[str], scale: str) -> RunConfig:
    ((_, config),) = sweep.expand([*cell, f"scale={scale}"])
    return config


def test_pairs_of_a_published_table_are_swept_as_pairs() -> None:
    """FedCorr's Table 2 has seven pairs of rho and tau, not their product of eight."""
    cells = experiments.load_experiment("fedcorr_table2").run_overrides("paper")
    pairs = {
        tuple(sorted(text for text in cell if text.startswith(("noise.rho", "noise.tau"))))
        for cell in cells
    }
    assert len(pairs) == 7 and len(cells) == 9 * 7
    assert ("noise.rho=0.0", "noise.tau=0.5") not in pairs


def test_a_smaller_scale_takes_its_own_network_and_federation() -> None:
    paper, laptop = (
        experiments.load_experiment("lsg_table6").run_overrides(scale)
        for scale in ("paper", "laptop")
    )
    assert all("model=cnn9" in cell for cell in paper)
    assert not any(text.startswith(("model=", "federation.")) for cell in laptop for text in cell)


def test_networks_that_tell_rows_apart_stay_at_every_scale() -> None:
    assert {
        text
        for cell in experiments.load_experiment("fedcorr_table10").run_overrides("smoke")
        for text in cell
        if text.startswith("model=")
    } == {
        "model=resnet18",
        "model=vgg11",
        "model=lenet5",
    }


def test_the_command_line_wins_and_choosing_a_group_drops_what_was_set_inside_it() -> None:
    cell = ["noise=rho_tau", "noise.rho=0.4", "seed=1"]
    assert experiments.merge_overrides(cell, ["noise=symmetric", "seed=2"]) == (
        "noise=symmetric",
        "seed=2",
    )


def test_cells_compose_and_know_their_experiment() -> None:
    cells = sweep.expand(["experiment=fedcorr_table9", "scale=smoke", "seed=1,2"])
    assert len(cells) == 2 * 7
    assert {config.experiment_name for _, config in cells} == {"fedcorr_table9"}
    assert len({config.run_id for _, config in cells}) == len(cells)


def test_an_unknown_experiment_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown experiment fedcorr_table99: did you mean"):
        sweep.expand(["experiment=fedcorr_table99"])


def test_a_cell_that_two_rows_share_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    rows = "rows: [method=fedavg, method=fedavg, method=fedprox]"
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"common: dataset=digits\n{rows}\ncolumns: [noise.rho=0.4 noise.tau=0.5]\n"
    )
    assert experiments.load_experiment("mine", tmp_path).run_overrides("laptop") == [
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedavg"],
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedprox"],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"row": []}, "unknown key experiment.row: did you mean rows?"),
        ({"rows": 3}, "invalid experiment.rows=3: expected a list of overrides"),
        ({"extra": [{"rows": ["B"]}]}, "unknown mine: row B: available: A"),
        ({"skip": [{"columns": ["B"]}]}, "unknown mine: column B: available: "),
        ({"extra": [{"scale": "lap"}]}, "invalid experiment.extra.scale='lap': expected "),
    ],
)
def test_invalid_layout_is_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        experiments.parse_experiment("mine", {"rows": {"A": "method=fedavg"}, **content})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_every_published_table_and_every_figure_is_an_experiment() -> None:
    figures = {name for name in NAMES if "figure" in name}
    assert figures == {
        *(f"fedcorr_figure{number}" for number in range(2, 11)),
        "lsg_figure4",
        "lsg_figure5",
        "fedcnml_figure2",
        "fedcnml_figure3",
    }
    assert len(NAMES) - len(figures) == 20
    for name in figures:
        title = (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()[0]
        assert title.startswith("# ") and f"Figure {name.partition('figure')[2]}:" in title


@pytest.mark.parametrize("scale", ["paper", "laptop"])
def test_first_and_last_cell_of_every_experiment_can_be_configured(scale: str) -> None:
    ends = {
        tuple(cell)
        for name in NAMES
        for cell in (
            experiments.load_experiment(name).run_overrides(scale)[index] for index in (0, -1)
        )
    }
    configurations = [composed(list(cell), scale) for cell in sorted(ends)]
    assert {config.scale for config in configurations} == {scale}
    for cell, config in zip(sorted(ends), configurations, strict=True):
        assert {
            f"dataset={config.dataset.name}",
            f"method={config.method.name}",
            f"noise={config.noise.name}",
        } <= set(cell)


@pytest.mark.parametrize(
    ("scale", "epochs", "start_after"), [("paper", 320, 70), ("laptop", 32, 7)]
)
def test_centralized_references_have_the_epochs_of_their_papers_and_a_tenth_on_a_laptop(
    scale: str, epochs: int, start_after: int
) -> None:
    cells = experiments.load_experiment("fedcorr_table2").run_overrides(scale)
    jointopt, dividemix = (composed(cell, scale) for cell in (cells[0], cells[7]))
    assert [config.method.name for config in (jointopt, dividemix)] == ["jointopt", "dividemix"]
    assert (
        jointopt.federation == dividemix.federation
        and jointopt.federation.num_clients == 1 == jointopt.federation.clients_per_round
    )
    assert jointopt.budget.participations * jointopt.method.params.budget_share == pytest.approx(
        epochs
    )
    assert (jointopt.method.params.start_after, jointopt.partition.params.noise_clients) == (
        start_after,
        100,
    )
    rounds = dividemix.budget.participations * dividemix.method.params.budget_share
    assert rounds == pytest.approx(300 if scale == "paper" else 30)
    assert rounds * dividemix.method.params.warmup_share == pytest.approx(rounds / 30, rel=1e-3)
    assert dividemix.train.local_epochs == dividemix.method.params.divide_epochs == 1


def test_protocol_of_lsg_on_cifar10_is_its_own() -> None:
    cells = experiments.load_experiment("lsg_table1").run_overrides("paper")
    fedavg, coteaching, ours = (
        next(c for c in cells if f"method={name}" in c and "dataset=cifar10" in c)
        for name in ("fedavg", "coteaching", "lsg")
    )
    configurations = [composed(cell, "paper") for cell in (fedavg, coteaching, ours)]
    for config in configurations:
        assert (config.model.name, config.budget.participations) == ("cnn9", 1000)
        assert (config.train.optimizer, config.train.lr, config.train.batch_size) == (
            "adam",
            0.001,
            128,
        )
    assert (
        configurations[1].method.params.forget_rate,
        configurations[1].method.params.forget_rate_is_oracle,
    ) == (0.3, True)
    assert configurations[2].method.params.lambda_ == 0.4


def test_cells_that_a_paper_does_not_give_are_not_run() -> None:
    """FedCorr's Table 5 quotes two of seven methods on one machine."""
    cells = experiments.load_experiment("fedcorr_table5").run_overrides("paper")
    assert len(cells) == 7 + 2
    assert {
        text
        for cell in cells
        if "partition=centralized" in cell
        for text in cell
        if text.startswith("method=")
    } == {"method=jointopt", "method=dividemix"}


@pytest.mark.parametrize("scale", ["paper", "laptop"])
def test_a_figure_shares_its_run_with_the_table_that_has_it(scale: str) -> None:
    (figure,) = experiments.load_experiment("fedcorr_figure6").run_overrides(scale)
    (cell,) = [
        c
        for c in experiments.load_experiment("fedcorr_table2").run_overrides(scale)
        if {"method=fedcorr", "noise.rho=0.6", "noise.tau=0.5"} <= set(c)
    ]
    assert composed(figure, scale).run_id == composed(cell, scale).run_id
