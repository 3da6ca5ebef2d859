"""Scenarios and the commands that show them and their components."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import components, data
from benchmarks.config.schema import RunConfig
from benchmarks.scenario.__main__ import main
from benchmarks.scenario.describe import scenario_tables
from benchmarks.scenario.scenario import Scenario, build_scenario
from noise import NoiseRecord

CLEAN = np.array([0, 1, 2, 0, 1, 2])
GIVEN = np.array([0, 1, 1, 0, 2, 2])
CLIENT_INDICES = [np.array([0, 1, 2]), np.array([4])]


@pytest.fixture
def scenario() -> Scenario:
    """Two clients with one wrong label each. Samples 3 and 5 belong to no client."""
    record = NoiseRecord(CLEAN, GIVEN, np.array([0.5, 0.0]), CLIENT_INDICES, 3, "by hand")
    return Scenario(CLIENT_INDICES, CLEAN, record, 3)


def test_statistics(scenario: Scenario) -> None:
    assert scenario.num_clients == 2 and scenario.client_sizes.tolist() == [3, 1]
    assert scenario.noise_rate == 0.5, "two of the four samples that belong to a client"
    assert scenario.class_counts(scenario.clean_labels).tolist() == [[1, 1, 1], [0, 1, 0]]
    assert scenario.class_counts(scenario.noise.labels).tolist() == [[1, 2, 0], [0, 0, 1]]


def test_hash_depends_on_clients_and_given_labels(scenario: Scenario) -> None:
    record = scenario.noise
    moved = Scenario([np.array([0, 1]), np.array([2, 4])], CLEAN, record, 3)
    clean_record = NoiseRecord(CLEAN, CLEAN, np.zeros(2), CLIENT_INDICES, 3, "none")
    clean = Scenario(CLIENT_INDICES, CLEAN, clean_record, 3)
    assert len({scenario.hash, moved.hash, clean.hash}) == 3
    assert Scenario(CLIENT_INDICES, CLEAN, record, 3).hash == scenario.hash


def test_saved_arrays(scenario: Scenario, tmp_path: Path) -> None:
    scenario.save(tmp_path / "scenario.npz")
    with np.load(tmp_path / "scenario.npz") as arrays:
        found = {key: arrays[key].tolist() for key in arrays}
    assert found == {
        "parts": [0, 1, 2, 4],
        "sizes": [3, 1],
        "held_out": [],
        "noisy_labels": GIVEN.tolist(),
        "flipped": [False, False, True, False, True, False],
        "client_level": [0.5, 0.0],
        "client_rate": [1 / 3, 1.0],
        "transition": [[1, 0, 0], [0, 1, 1], [0, 1, 0]],
        "clean_counts": [[1, 1, 1], [0, 1, 0]],
    }


def test_components_of_other_packages(
    configure: Callable[..., RunConfig], digits: data.Dataset
) -> None:
    config = configure(
        "hydra.searchpath=[pkg://example_plugin.conf]",
        "partition=quantity_skew",
        "noise=class_pair",
        "noise.epsilon=0.5",
        "noise.source=3",
        "noise.target=8",
    )
    scenario = build_scenario(config, digits)
    assert scenario.client_sizes.sum() == len(digits.train_labels)
    assert scenario.client_sizes.max() > 2 * scenario.client_sizes.min()
    flipped = scenario.noise.flipped
    assert flipped.any() and set(scenario.clean_labels[flipped]) == {3}
    assert set(scenario.noise.labels[flipped]) == {8}


def test_table_has_one_row_per_client(
    configure: Callable[..., RunConfig], scenario: Scenario
) -> None:
    _, clients = scenario_tables(configure(), scenario)
    columns = {column.header: list(column.cells) for column in clients.columns}
    assert columns["client"] == ["0", "1"] and columns["samples"] == ["3", "1"]
    assert columns["noise level"] == ["0.500", "-"]
    assert columns["noise rate, %"] == ["33.3", "100.0"]
    assert columns["samples per class (clean)"] == ["1 1 1", "0 1 0"]
    assert columns["samples per class (given)"] == ["1 2 0", "0 0 1"]


@pytest.mark.parametrize("option", ["plot", "draw"])
def test_command_prints_tables_and_saves_a_figure(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scenario.png"
    assert main(["scale=smoke", "partition=shards", f"{option}={path}"]) == 0
    shown = capsys.readouterr().out
    assert "digits, shards, rho_tau, seed 1, hash " in shown and "noise rate" in shown
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("plot=scenario.txt", "invalid plot='scenario.txt': expected a .png or .pdf file"),
        ("plot=/missing/scenario.png", "invalid plot='/missing/scenario.png': expected"),
        ("noise.rho=0.4,0.8", "cannot start one run with noise.rho=0.4,0.8: add -m"),
        ("noise.rho=1.4", "invalid noise.rho=1.4: expected a number in [0, 1]"),
    ],
)
def test_bad_command_line_is_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale=smoke", argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith(f"error: {message}")


def test_list_of_components(capsys: pytest.CaptureFixture[str]) -> None:
    assert components.main([]) == 0
    shown = capsys.readouterr().out
    for name in ("class_pair", "rho_tau", "quantity_skew", "bernoulli_dirichlet", "resnet18"):
        assert name in shown
    assert "rho: a number in [0, 1]" in shown
