"""Shared by all tests: small real runs on digits, and clients made by hand."""

import os
import sys

os.environ["OMP_NUM_THREADS"] = (
    "1"  # before torch is imported: workers are forked, and bytes must not depend on threads
)

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import settings
from omegaconf import OmegaConf
from running import PLUGIN, SilentTracker

from benchmarks import data, models
from benchmarks.config.schema import RunConfig, parse
from benchmarks.federation.client import ImageSplit, LocalClient
from benchmarks.loop.runner import Run, execute_run
from methods.core.contract import RoundContext, TaskSpec, TrainParams
from methods.core.flat_model import FlatModel

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
torch.set_num_threads(1)
sys.path.append(
    str(PLUGIN)
)  # before methods are discovered: the package found there is tested like all the others

CONF = Path(__file__).parent.parent / "conf"


@pytest.fixture(scope="session")
def hydra_conf() -> Iterator[None]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@pytest.fixture
def configure(hydra_conf: None, tmp_path: Path) -> Callable[..., RunConfig]:
    """configure("method=fedavg", "noise.rho=0.4") -> a checked smoke-scale configuration on digits, serial, under tmp_path."""

    def make(*overrides: str) -> RunConfig:
        base = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path / 'runs'}"]
        return parse(OmegaConf.to_container(compose("config", [*base, *overrides]), resolve=True))  # type: ignore[arg-type]

    return make


@pytest.fixture
def run_small(configure: Callable[..., RunConfig]) -> Callable[..., dict[str, Any]]:
    """run_small("method=fedavg") -> the record of a real smoke run; the folder is record["folder"], lines in record["lines"]."""

    def run(*overrides: str) -> dict[str, Any]:
        config = configure(*overrides)
        tracker = SilentTracker(config.run_dir)
        return {**execute_run(config, tracker), "folder": config.run_dir, "lines": tracker.lines}

    return run


@pytest.fixture
def open_run(configure: Callable[..., RunConfig]) -> Iterator[Callable[..., Run]]:
    """open_run("method=fedcorr") -> a Run whose method, fleet, scene and executor can be driven by hand; setup() has been called."""
    runs: list[Run] = []

    def start(*overrides: str) -> Run:
        config = configure(*overrides)
        run = Run(config, SilentTracker(config.run_dir))
        run.method.setup(run.spec, run.fleet, run.context("setup"))
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
    """make_client(labels=[3, 1, 4], state={}) -> a client over the first digits images with these labels."""

    def make(
        labels: Any = None,
        num_samples: int = 40,
        state: Mapping[str, Any] | None = None,
        client_id: int = 0,
    ) -> LocalClient:
        given = torch.as_tensor(
            digits.train_labels[:num_samples] if labels is None else np.asarray(labels)
        )
        networks: list[FlatModel] = []

        def lend() -> FlatModel:
            networks.append(FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape)))
            return networks[-1]

        pictures = ImageSplit(digits.train, digits.views)
        return LocalClient(
            client_id,
            torch.arange(len(given)),
            given,
            given,
            dict(state or {}),
            pictures,
            digits.num_classes,
            lend,
        )

    return make


@pytest.fixture
def make_ctx(digits: data.Dataset) -> Callable[..., RoundContext]:
    """make_ctx(round=0, stage="train", local_epochs=1, ...) -> a RoundContext for digits; other names are TrainParams fields."""

    def make(
        round: int = 0, stage: str = "train", seed: int = 1, num_clients: int = 8, **train: Any
    ) -> RoundContext:
        probe = FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape))
        spec = TaskSpec(
            "digits",
            digits.shape,
            digits.num_classes,
            num_clients,
            4,
            32,
            int(probe.module.feature_dim),
            probe.num_trainable,
        )  # type: ignore[arg-type]
        return RoundContext(seed, round, stage, spec, TrainParams(**{"local_epochs": 1, **train}))

    return make


@pytest.fixture
def initial_vector(digits: data.Dataset) -> torch.Tensor:
    """Initial weights of the digits network under a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return FlatModel(models.build("digits_cnn", digits.num_classes, digits.shape)).vector
