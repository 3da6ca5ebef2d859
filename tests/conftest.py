"""Fixtures for small runs on digits and for single clients."""

import os
import signal
import sys

# Before torch is imported. Workers are forked, and results must not depend on threads.
os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from process_helpers import end_started
from run_helpers import PLUGIN, SilentTracker

from benchmarks import data, models
from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.federation.client import ClientImages, ImageSplit, LocalClient
from benchmarks.loop.runner import Run, execute_run
from methods.core.flat_model import FlatModel
from methods.core.task import RoundContext, TaskSpec, TrainParams

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
torch.set_num_threads(1)
# Files with few, long tests. They start first, so that no worker waits for them at the end.
LONG_FILES = ("kills", "circumstances", "disks", "packaging", "interruption", "ray", "resume")
LONG_FILES += ("launchers", "sweeps", "leases", "tune", "contract_runs", "frozen")
# Processes of the tests inherit ignored signals: SIGINT of background jobs, SIGHUP of nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.append(str(PLUGIN))  # Before methods are discovered: its method is tested like the others.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG_FILES)


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., RunConfig]:
    """configure("noise.rho=0.4") -> configuration at smoke scale on digits, serial, in tmp_path."""

    def make(*overrides: str) -> RunConfig:
        base = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path / 'runs'}"]
        return compose_run([*base, *overrides])

    return make


@pytest.fixture
def run_small(configure: Callable[..., RunConfig]) -> Callable[..., dict[str, Any]]:
    """run_small("method=fedavg") -> content of the record, and `run_dir` and printed `lines`."""

    def run(*overrides: str) -> dict[str, Any]:
        config = configure(*overrides)
        tracker = SilentTracker(config.run_dir)
        record = execute_run(config, tracker).to_dict()
        return {**record, "run_dir": config.run_dir, "lines": tracker.lines}

    return run


@pytest.fixture
def open_run(configure: Callable[..., RunConfig]) -> Iterator[Callable[..., Run]]:
    """open_run("method=fedcorr") -> a Run after `setup`, whose parts a test calls itself."""
    runs: list[Run] = []

    def start(*overrides: str) -> Run:
        config = configure(*overrides)
        run = Run(config, SilentTracker(config.run_dir))
        run.method.setup(run.spec, run.pool_view, run.context("setup"))
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.executor.close()


@pytest.fixture(scope="session")
def digits() -> data.Dataset:
    return data.load("digits", data.default_data_dir())


@pytest.fixture
def make_client(digits: data.Dataset) -> Callable[..., LocalClient]:
    """make_client(labels=[3, 1, 4]) -> a client with these labels and the first digits."""

    def make(
        labels: Any = None,
        num_samples: int = 40,
        state: Mapping[str, Any] | None = None,
        client_id: int = 0,
    ) -> LocalClient:
        if labels is None:
            labels = digits.train_labels[:num_samples]
        given_labels = torch.as_tensor(np.asarray(labels))

        def acquire_model() -> FlatModel:
            return FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape))

        return LocalClient(
            client_id,
            ClientImages(ImageSplit(digits.train, digits.views), torch.arange(len(given_labels))),
            given_labels,
            given_labels,
            dict(state or {}),
            digits.num_classes,
            acquire_model,
        )

    return make


@pytest.fixture
def make_ctx(digits: data.Dataset) -> Callable[..., RoundContext]:
    """make_ctx(round=0, local_epochs=1) -> a RoundContext for digits; takes TrainParams fields."""

    def make(
        round: int = 0, stage: str = "train", seed: int = 1, num_clients: int = 8, **train: Any
    ) -> RoundContext:
        model = FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape))
        spec = TaskSpec(
            dataset="digits",
            shape=digits.shape,
            num_classes=digits.num_classes,
            num_clients=num_clients,
            clients_per_round=4,
            participations=32,
            feature_dim=int(model.module.feature_dim),  # type: ignore[arg-type]
            num_trainable=model.num_trainable,
        )
        return RoundContext(seed, round, stage, spec, TrainParams(**{"local_epochs": 1, **train}))

    return make


@pytest.fixture
def initial_vector(digits: data.Dataset) -> torch.Tensor:
    """Initial weights of the model for digits, with a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape)).vector
