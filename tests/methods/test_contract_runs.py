"""Contract suite with whole runs of every registered method, also of other packages.

All runs have smoke scale and a partition with edge cases: clients with one sample, with one class,
with a last batch of one sample, and with fewer samples than a batch.
"""

import dataclasses
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from method_helpers import METHODS, every_method
from run_helpers import (
    InterruptedRunError,
    SilentTracker,
    drop_seconds,
    learned_state,
    run_to_end,
    to_comparable,
)
from torch import Tensor

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import Component, RunConfig
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.client import LocalClient
from benchmarks.federation.tasks import DeviceTask, PredictionTask, Task
from benchmarks.loop.runner import Run, execute_run
from benchmarks.loop.state_codec import decode, encode
from methods.core import registry
from methods.core.contract import ServerState
from methods.core.params import NoParams, field_names
from methods.core.task import Reply
from methods.fedavg import FedAvg
from partition.base import PARTITIONERS, Partitioner
from partition.iid import IidParams

CLIENT_SIZES = {1, 3, 11, 12, 30}
# Columns of the learning curve that are computed with the clean labels.
TRUTH_METRIC_PREFIXES = ("clients/", "samples/", "labels/", "memorization/")

RunMethod = Callable[..., Run]
Configure = Callable[..., RunConfig]


class CheckedClient(LocalClient):
    """Checks that a client task does not modify its labels in place."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.originals = [(labels, labels.clone()) for labels in (self.given_labels, self.labels)]

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        assert all(torch.equal(labels, before) for labels, before in self.originals), (
            "labels were modified in place; assign a new tensor instead"
        )
        return super().reply(models, **values)


class CheckedExecutor(SerialExecutor):
    """Checks that a task modifies none of its inputs."""

    def __init__(self, serial: SerialExecutor):
        super().__init__(serial.context)
        self.task_names: set[str] = set()

    def run(self, jobs: Sequence[Task]) -> list[Any]:
        results = []
        for job in jobs:
            before = self._inputs(job)
            results += super().run([job])
            after = self._inputs(job)
            changed = [name for name in before if after[name] != before[name]]
            assert not changed, f"{job} has modified {changed}"
        return results

    def _inputs(self, job: Task) -> dict[str, Any]:
        if isinstance(job, PredictionTask):
            return {"models": to_comparable(job.models)}
        if isinstance(job, DeviceTask):
            return {}
        self.task_names.add(job.task)
        context = self.context
        images = [context.train.images.tensor, context.test.images.tensor]  # type: ignore[attr-defined]
        return {
            "payload": to_comparable(job.payload),
            "client state": to_comparable([job.state, job.labels]),
            "given labels": to_comparable(context.all_given_labels),
            "data": to_comparable([images, context.client_indices]),
            "method": to_comparable(vars(context.method)),
        }


def edge_case_clients(
    labels: np.ndarray, num_clients: int, seed: int, params: IidParams
) -> list[np.ndarray]:
    """Clients of 1, 12 (one class), 3 and 11 samples; the others have 30."""
    order = np.random.default_rng(seed).permutation(len(labels))
    one_class, others = order[labels[order] == 3][:12], order[labels[order] != 3]
    single, short, last_of_one, *rest = np.split(
        others, [1, 4, 15, *range(45, 15 + 30 * (num_clients - 4), 30)]
    )
    return [single, one_class, short, last_of_one, *(part[:30] for part in rest)]


@pytest.fixture(scope="module", autouse=True)
def edge_case_partition() -> Iterator[None]:
    partitioner = Partitioner("edge_cases", IidParams, edge_case_clients, uses_all_samples=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PARTITIONERS._components, partitioner.name, partitioner)
        yield


@pytest.fixture(scope="module")
def device() -> str:
    """The tests of the second device have another one."""
    return "cpu"


@pytest.fixture(scope="module")
def configure(tmp_path_factory: pytest.TempPathFactory, device: str) -> Configure:
    """configure("fedprox", "seed=2") -> a configuration with its own run directory."""

    def make(method: str, *overrides: str) -> RunConfig:
        runs_dir = f"runs_dir={tmp_path_factory.mktemp('runs')}"
        setting = ["scale=smoke", "executor=serial", "partition.name=edge_cases", runs_dir]
        setting += [f"executor.device={device}"]
        if "budget_fraction" in field_names(registry.METHODS.get(method).params):
            # At least one round of each stage.
            setting += ["method.budget_fraction=0.6", "method.warmup_fraction=0.5"]
        return compose_run([f"method={method}", *setting, *overrides])

    return make


@pytest.fixture(scope="module")
def checked_run(configure: Configure) -> RunMethod:
    """checked_run("fedprox") -> the finished run under CheckedExecutor; cached."""

    def run(method: str) -> Run:
        def check(run: Run) -> None:
            assert isinstance(run.executor, SerialExecutor)
            run.executor = run.pool.executor = CheckedExecutor(run.executor)

        before = str(np.random.get_state()), random.getstate()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("benchmarks.federation.worker.LocalClient", CheckedClient)
            finished = run_to_end(configure(method), check)
        after = str(np.random.get_state()), random.getstate()
        assert after == before, "a global random generator was used"
        return finished

    return cache(run)


def assert_same_run(run: Run, expected: Run) -> None:
    """Learning curve, server state, client states, cost and journal are equal, byte for byte."""
    assert drop_seconds(run.curve) == drop_seconds(expected.curve)
    assert learned_state(run) == learned_state(expected)
    assert run.pool.meter == expected.pool.meter
    assert run.journal == expected.journal


@every_method
def test_run_is_finite_and_within_budget(info: registry.MethodInfo, checked_run: RunMethod) -> None:
    run = checked_run(info.name)
    method = run.method
    assert {len(part) for part in run.scenario.client_indices} == CLIENT_SIZES
    assert method.stage(run.round) is None and len(run.curve) >= 2
    vectors = [*method.state.models.values(), *method.eval_models().values()]
    assert all(torch.isfinite(vector).all() for vector in vectors)
    numbers = [value for row in run.curve for value in row.values() if not isinstance(value, str)]
    assert np.isfinite(numbers).all()
    participations = run.pool.meter.participations
    assert run.curve[-1]["participations"] == participations
    budget = run.config.budget.participations
    assert 0 < participations <= method.planned_participations <= budget


@every_method
def test_client_tasks_modify_only_reply_and_client(
    info: registry.MethodInfo, checked_run: RunMethod
) -> None:
    """CheckedExecutor has compared the inputs of every task. The client side has only `params`."""
    executor = checked_run(info.name).executor
    assert isinstance(executor, CheckedExecutor)
    assert "local_update" in executor.task_names
    assert set(vars(executor.context.method)) == {"params"}


@every_method
def test_checkpoint_stores_all_states(info: registry.MethodInfo, checked_run: RunMethod) -> None:
    """Without code of the file: no method, model, client or generator objects."""
    run = checked_run(info.name)
    assert isinstance(run.method.state, ServerState)
    stored = decode(encode(run._state()))
    assert to_comparable(stored) == to_comparable(run._state())
    assert type(stored["method"]) is type(run.method.state)


@every_method
def test_process_executor_gives_same_bytes(
    info: registry.MethodInfo, checked_run: RunMethod, configure: Configure
) -> None:
    parallel = run_to_end(configure(info.name, "executor=processes", "executor.workers=2"))
    assert_same_run(parallel, checked_run(info.name))


@every_method
def test_resumed_run_gives_same_bytes(
    info: registry.MethodInfo, checked_run: RunMethod, configure: Configure
) -> None:
    """Each interruption loses one round, because the checkpoint is from the round before."""
    whole = checked_run(info.name)
    config = configure(info.name, "checkpoint.every_seconds=0")
    for stop in sorted({2, max(2, whole.round // 2), whole.round}):
        with pytest.raises(InterruptedRunError):
            run_to_end(config, stops=[stop])
    resumed = run_to_end(config)
    assert f"from round {whole.round - 1}" in " ".join(resumed.tracker.lines)  # type: ignore[attr-defined]
    assert_same_run(resumed, whole)


@every_method
def test_nan_is_recorded_and_named(info: registry.MethodInfo, configure: Configure) -> None:
    """No accuracy is recorded, also if the method skips models with NaN."""
    config = configure(info.name, "train.lr=1e12")
    record = execute_run(config, SilentTracker(config.run_dir))
    assert record.status == "diverged" and record.summary is None
    assert re.fullmatch(
        r"round \d+ \(\w+\): .*(NaN or Inf|is not finite).*|all \d+ client models had NaN or Inf",
        record.reason,
    )


@every_method
def test_seed_changes_learning_curve(
    info: registry.MethodInfo, checked_run: RunMethod, configure: Configure
) -> None:
    first = checked_run(info.name).curve[0]
    runs: list[Run] = []
    with pytest.raises(InterruptedRunError):
        run_to_end(configure(info.name, "seed=2"), runs.append, stops=[first["round"]])
    assert runs[0].curve[0]["round"] == first["round"]
    assert runs[0].curve[0]["loss"] != first["loss"]


@every_method
def test_training_is_independent_of_clean_labels(
    info: registry.MethodInfo, checked_run: RunMethod, configure: Configure
) -> None:
    """Wrong clean labels and noise statistics change the metrics, but nothing that is learned."""

    def falsify_truth(run: Run) -> None:
        for labels in (run.dataset.train_labels, run.scenario.clean_labels):
            labels[:] = 0
        noise = run.scenario.noise
        noise.flipped[:] = True
        for statistic in (noise.client_level, noise.client_rate):
            statistic[:] = 1
        noise.transition[:] = 0

    run, falsified = checked_run(info.name), run_to_end(configure(info.name), falsify_truth)
    assert learned_state(falsified) == learned_state(run)
    assert drop_truth_scores(falsified.curve) == drop_truth_scores(run.curve)
    assert falsified.curve[-1].get("memorization/true") != run.curve[-1]["memorization/true"]


def drop_truth_scores(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A learning curve without times and without metrics that use clean labels."""
    return [
        {name: value for name, value in row.items() if not name.startswith(TRUTH_METRIC_PREFIXES)}
        for row in drop_seconds(curve)
    ]


@pytest.mark.parametrize(
    "info",
    [info for info in METHODS if info.cls.fedavg_equivalent_params is not None],
    ids=lambda info: info.name,
)
def test_fedavg_equivalent_params(info: registry.MethodInfo, configure: Configure) -> None:
    params = info.cls.fedavg_equivalent_params or {}
    config = configure(info.name, *(f"method.{k}={str(v).lower()}" for k, v in params.items()))
    fedavg_config = dataclasses.replace(config, method=Component(FedAvg.name, NoParams()))
    run, fedavg = run_to_end(config), run_to_end(fedavg_config)
    assert to_comparable(run.method.eval_models()) == to_comparable(fedavg.method.eval_models())
    for name in ("round", "participations", "accuracy", "loss", "samples_trained"):
        assert [row[name] for row in run.curve] == [row[name] for row in fedavg.curve]
