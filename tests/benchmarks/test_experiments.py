"""Experiments are lists of cells; pairs stay together, and the command line wins."""

from pathlib import Path

import pytest

from benchmarks import experiments, grid
from benchmarks.errors import UserError

CONF = Path(__file__).parents[2] / "conf"


def test_pairs_of_a_published_table_are_swept_as_pairs() -> None:
    """FedCorr's Table 2 has seven pairs of rho and tau, not their product of eight."""
    cells = experiments.cells("fedcorr_table2", "paper", CONF)
    pairs = {tuple(sorted(text for text in cell if text.startswith(("noise.rho", "noise.tau")))) for cell in cells}
    assert len(pairs) == 7 and len(cells) == 9 * 7
    assert ("noise.rho=0.0", "noise.tau=0.5") not in pairs


def test_a_smaller_scale_takes_its_own_network_and_federation() -> None:
    paper, laptop = (experiments.cells("lsg_table6", scale, CONF) for scale in ("paper", "laptop"))
    assert all("model=cnn9" in cell for cell in paper)
    assert not any(text.startswith(("model=", "federation.")) for cell in laptop for text in cell)


def test_networks_that_tell_rows_apart_stay_at_every_scale() -> None:
    assert {text for cell in experiments.cells("fedcorr_table10", "smoke", CONF) for text in cell if text.startswith("model=")} == {
        "model=resnet18",
        "model=vgg11",
        "model=lenet5",
    }


def test_the_command_line_wins_and_choosing_a_group_drops_what_was_set_inside_it() -> None:
    cell = ["noise=rho_tau", "noise.rho=0.4", "seed=1"]
    assert experiments.on_top(cell, ["noise=symmetric", "seed=2"]) == ["noise=symmetric", "seed=2"]


def test_cells_compose_and_know_their_experiment() -> None:
    cells = grid.expand(["experiment=lsg_table6", "scale=smoke", "seed=1,2"])
    assert len(cells) == 2 * 8 * 3
    assert {config.part_of for _, config in cells} == {"lsg_table6"}
    assert len({config.run_id for _, config in cells}) == len(cells)


def test_an_unknown_experiment_is_one_line() -> None:
    with pytest.raises(UserError, match="experiment=fedcorr_table99 is not legal; did you mean"):
        grid.expand(["experiment=fedcorr_table99"])


def test_a_cell_that_two_rows_share_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    rows = "rows: [method=fedavg, method=fedavg, method=fedprox]"
    (tmp_path / "experiment" / "mine.yaml").write_text(f"common: dataset=digits\n{rows}\ncolumns: [noise.rho=0.4 noise.tau=0.5]\n")
    assert experiments.cells("mine", "laptop", tmp_path) == [
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedavg"],
        ["dataset=digits", "noise.rho=0.4", "noise.tau=0.5", "method=fedprox"],
    ]
