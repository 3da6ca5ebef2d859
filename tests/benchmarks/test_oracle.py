"""Parameters that depend on the true noise mark their runs."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from run_helpers import compose_runs

from benchmarks.config.experiments import (
    Experiment,
    Heading,
    experiment_names,
    load_experiment,
    merge_overrides,
    parse_experiment,
)
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import expand
from methods.core.errors import UserError

pytestmark = pytest.mark.no_cover


def sets_only_noise(heading: Heading) -> bool:
    return bool(heading.overrides) and all(
        text.startswith(("noise=", "noise.")) for text in heading.overrides
    )


def lines_over_noise(experiment: Experiment) -> list[list[tuple[str, str]]]:
    """Rows and columns of cells that differ in the noise only."""
    rows, columns = experiment.rows, experiment.columns
    lines = [[(row, column) for column in columns if sets_only_noise(column)] for row in rows]
    lines += [[(row, column) for row in rows if sets_only_noise(row)] for column in columns]
    return [
        [(row.label, column.label) for row, column in line]
        for line in lines
        if len(line) > 1 and not any(experiment.is_skipped(r.label, c.label) for r, c in line)
    ]


@pytest.mark.parametrize("scale", ["paper", "laptop"])
@pytest.mark.parametrize("name", experiment_names())
def test_parameters_that_differ_by_noise_are_marked(name: str, scale: str) -> None:
    """In the composed configurations of every row and column of a published table or figure."""
    experiment = load_experiment(name)
    for line in lines_over_noise(experiment):
        configs = compose_runs(
            [*experiment.overrides(*cell, scale), f"scale={scale}"] for cell in line
        )
        values: list[dict[str, Any]] = [
            {f"method.{key}": value for key, value in vars(config.method.params).items()}
            | {f"train.{key}": value for key, value in vars(config.train).items()}
            for config in configs
        ]
        differing = {key for key in values[0] if len({str(entry[key]) for entry in values}) > 1}
        for config in configs:
            assert differing <= set(config.oracle), line


MARKED = {
    "method.lambda_u": "method=dividemix",
    "method.lambda_": "method=lsg",
    "method.forget_rate": "method=coteaching",
    "method.beta": "method=jointopt",
}


def test_parameter_that_is_marked_in_one_table_is_marked_in_all_tables_of_the_paper() -> None:
    """Also in tables with one noise level. FedCorr's Table 5 has no known noise level."""
    cells = [
        (name.partition("_")[0], overrides, config.oracle)
        for name in experiment_names()
        if "table" in name and name != "fedcorr_table5"
        for overrides, config in expand([f"experiment={name}", "scale=paper"])
    ]
    for key, method in MARKED.items():
        papers = {paper for paper, _, oracle in cells if key in oracle}
        assert papers
        for paper, overrides, oracle in cells:
            if paper in papers and method in overrides:
                is_set = any(text.startswith(f"{key}=") for text in overrides)
                assert not is_set or key in oracle, overrides


def test_marked_cells_of_the_papers() -> None:
    """LSG's Tables I, V and VI; FedCorr's Tables 2 and 3, with the values of its Table 8."""
    for name, method, keys in (
        ("lsg_table1", "method=lsg", ["method.lambda_"]),
        ("lsg_table5", "method=lsg", ["method.lambda_"]),
        ("lsg_table6", "method=lsg", ["method.lambda_"]),
        ("fedcorr_table2", "method=dividemix", ["method.lambda_u"]),
        ("fedcorr_table3", "method=dividemix", ["method.lambda_u"]),
    ):
        runs = expand([f"experiment={name}", "scale=paper"])
        found = [config.oracle for overrides, config in runs if method in overrides]
        assert found and set(found) == {tuple(keys)}
    runs = expand(["experiment=fedcorr_table2", "scale=paper"])
    marks = {
        (config.partition.name, config.oracle)
        for _, config in runs
        if config.method.name == "jointopt"
    }
    assert marks == {("centralized", ("method.beta", "train.lr")), ("iid", ())}


def layout(**content: Any) -> Experiment:
    return parse_experiment("mine", {"rows": ["method=fedprox", "method=fedavg"], **content})


def oracle(experiment: Experiment) -> list[str]:
    cells = product(experiment.rows, experiment.columns)
    found = (
        dict(t.split("=", 1) for t in experiment.overrides(r.label, c.label, "paper"))
        for r, c in cells
    )
    return [overrides.get("oracle", "") for overrides in found]


def test_headings_and_extra_overrides() -> None:
    noise = ["noise.rho=0.4", "noise.rho=0.8"]
    assert oracle(layout(columns=noise)) == [""] * 4
    extra = [{"rows": ["method=fedprox"], "overrides": "method.mu=2"}]
    assert oracle(layout(columns=noise, extra=extra)) == [""] * 4
    extra = [{**extra[0], "columns": ["noise.rho=0.8"]}]
    assert oracle(layout(columns=noise, extra=extra)) == ["[method.mu]"] * 2 + [""] * 2
    both = ["noise.rho=0.4 train.lr=0.1", "noise.rho=0.8 train.lr=0.2"]
    assert oracle(layout(columns=both)) == ["[train.lr]"] * 4
    assert oracle(layout(columns=["train.lr=0.1", "train.lr=0.2"])) == [""] * 4


def test_another_method_drops_the_mark_of_its_parameters() -> None:
    given = ["method=lsg", "oracle=[method.lambda_,train.lr]"]
    assert "oracle=[train.lr]" in merge_overrides(given, ["method=fedavg"])


def test_mark_is_part_of_the_identity_and_names_existing_keys(
    configure: Callable[..., RunConfig], run_small: Callable[..., dict[str, Any]]
) -> None:
    marked = run_small("budget.participations=4", "oracle=[train.lr,budget.participations]")
    assert marked["oracle"] == ("train.lr=0.01, budget.participations=4 chosen with the true noise")
    plain = configure("budget.participations=4")
    assert plain.run_id != marked["run_id"] and "oracle" not in plain.hashed_config()
    with pytest.raises(UserError, match="^unknown key in oracle method.lamda: "):
        configure("oracle=[method.lamda]")
