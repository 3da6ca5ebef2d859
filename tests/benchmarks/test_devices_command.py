"""The command for devices where there is only the CPU, and the count of operations."""

import os

import pytest

from benchmarks.config.compose import compose_run
from benchmarks.devices.__main__ import main
from benchmarks.devices.cost import count_pass, count_run
from methods.core.machine import available_cores


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "cpu\n"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("compare=cuda", "invalid executor.device='cuda': expected a device of this machine: cpu"),
        ("cost=no_such", "invalid cost=no_such"),
        ("methods=no_such", "invalid methods=no_such"),
    ],
)
def test_errors_are_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument, *(["compare=cpu"] if argument.startswith("methods") else [])]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_operations_of_a_training_pass() -> None:
    """Two operations per product of the layers of digits_cnn."""
    operations = count_pass("digits_cnn", 10, (1, 8, 8))
    convolutions = [(9 * 1 * 16, 64), (9 * 16 * 32, 16)]
    linear = [(32 * 2 * 2 * 64, 1), (64 * 10, 1)]
    products = [weights * positions for weights, positions in (*convolutions, *linear)]
    # Forward, gradient of the weights, and gradient of the input except for the first layer.
    assert operations == 2 * (3 * sum(products) - products[0])


def test_operations_of_a_run() -> None:
    common = ["dataset=cifar10", "model=lenet5", "scale=paper", "federation.num_clients=100"]
    run = [*common, "budget.participations=1000", "train.local_epochs=5"]
    per_sample = count_pass("lenet5", 10, (3, 32, 32))
    for method, num_models in (("fedavg", 1), ("coteaching", 2)):
        config = compose_run([*run, f"method={method}"])
        assert count_run(config) == 1000 * 5 * 500 * num_models * per_sample


def test_cores_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no os.sched_getaffinity."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_cores() == os.cpu_count()
