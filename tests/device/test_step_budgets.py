"""Work of one training step on the second device: kernel launches, transfers, scalar reads.

Launches are those of a whole client task with 50 steps per epoch, divided by its steps. They do not
depend on the batch size. Transfers and scalar reads must not depend on the number of steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import to_comparable
from second_device import Counts, counting

from benchmarks import models
from benchmarks.data.images import MemoryImages
from benchmarks.data.registry import CIFAR_AUGMENTATION
from benchmarks.data.transforms import ImageTransforms
from benchmarks.executors.pool import PoolExecutor, TaskServer
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.tasks import ClientTask
from benchmarks.federation.worker import WorkerContext
from benchmarks.loop.runner import Run
from methods.core import registry
from methods.core.task import Payload, RoundContext, TaskSpec, TrainParams

SHAPE, CLASSES = (3, 32, 32), 10
SPEC = TaskSpec("cifar10", SHAPE, CLASSES, 10, 2, 40, 84, 62006)
TRANSFORMS = ImageTransforms(SHAPE, ((0.5,) * 3, (0.25,) * 3), CIFAR_AUGMENTATION)


@dataclass(frozen=True)
class Case:
    """A local update in round 15 of 20 and its limit of launches per step."""

    method: str
    launches: float
    stage: str = "train"
    shared: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    model: str = "lenet5"

    def __str__(self) -> str:
        return "-".join((self.method, self.stage, self.model, *map(str, self.shared)))


CASES = [
    Case("fedavg", 36),
    Case("fedprox", 38),
    Case("fedcorr", 46, "preprocessing", {"noise_level": 0.0}),
    Case("fedcorr", 54, "preprocessing", {"noise_level": 0.5, "noisy": True}),
    Case("fedcorr", 46, "training"),
    Case("lsg", 62),
    Case("rofl", 96, shared={"centroids": torch.ones(CLASSES, 84)}),
    Case("fedcnml", 172, "federation", {"cutoffs": np.array([0.5, 0.5])}),
    Case("dividemix", 155, "divide", params={"divide_epochs": 2}),
    Case("fedavg", 145, model="resnet18"),
    Case("fedavg", 84, model="cnn9"),
    Case("coteaching", 84),
    Case("jointopt", 74, "joint", params={"joint_epochs": 1}),
    Case("symmetric_ce", 57),
    Case("feddyn", 45, shared={"mean_samples": 100.0}),
    Case("fedlsr", 152),
    Case("arfl", 36),
    Case("median", 36),
    Case("poc", 36),
]


def work_of(case: Case, num_samples: int, **train: int) -> tuple[Counts, int]:
    """Counts of a local update, and the number of its steps. The client has trained before."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (num_samples, *SHAPE), generator=generator, dtype=torch.uint8)
    split = ImageSplit(MemoryImages(pixels), TRANSFORMS)
    labels = torch.randint(CLASSES, (num_samples,), generator=generator)
    method = registry.build(case.method, case.params)
    context = WorkerContext(
        split,
        split,
        CLASSES,
        [np.arange(num_samples)],
        labels,
        method,
        lambda: models.build(case.model, CLASSES, SHAPE),
        device=torch.device("fln:0"),
    )
    context.start()
    params = TrainParams(**{"local_epochs": 1, "batch_size": 10, **train})
    ctx = RoundContext(1, 15, case.stage, SPEC, params)
    vector = context.acquire_model().vector.cpu()
    vectors = {name: vector.clone() for name in method.model_names}
    shared, state = dict(case.shared), {}
    for _ in range(2 if case.model == "lenet5" else 1):
        if case.stage == "federation":
            measure = Payload(vectors, {"trains": True})
            state = context.execute(ClientTask("measure", 0, measure, ctx, None, state)).state
        payload = Payload({} if case.stage == "federation" else vectors, shared)
        with counting() as counts:
            result = context.execute(ClientTask("local_update", 0, payload, ctx, None, state))
        state = result.state
    return counts, -(-result.samples_trained // params.batch_size)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_work_per_step(case: Case) -> None:
    """Of launches at most the limit, of transfers and scalar reads nothing."""
    size = 10 if case.model == "lenet5" else 2
    counts, steps = work_of(case, 50 * size, batch_size=size)
    assert counts.launches / steps <= case.launches, counts.operators.most_common()
    few, few_steps = work_of(case, 6 * size, batch_size=size)
    assert few_steps < steps
    assert (few.uploads, few.downloads, few.scalar_reads) == (
        counts.uploads,
        counts.downloads,
        counts.scalar_reads,
    )


def test_one_upload_per_participation() -> None:
    """It holds labels, positions of the images, order, crops, flips and mixup draws.

    The other one is the payload.
    """
    for method, stage in (("fedavg", "train"), ("fedcorr", "training")):
        for epochs in (1, 3):
            (counts, steps) = work_of(Case(method, 0, stage), 20, local_epochs=epochs)
            assert (counts.uploads, counts.downloads, steps) == (2, 1, 2 * epochs)


class LocalWorker:
    """A worker in this process, so that the counters see its work."""

    def __init__(self, context: WorkerContext):
        self.server = TaskServer(context)

    def send(self, task: bytes) -> None:
        self.reply = self.server.reply_to(task)

    def receive(self) -> bytes:
        return self.reply

    def end(self) -> None:
        pass


class LocalPool(PoolExecutor[LocalWorker]):
    def __init__(self, context: WorkerContext, workers: int):
        self.context = context
        super().__init__(workers)

    def _start_worker(self) -> None:
        self._pool.append(LocalWorker(self.context))

    def _wait(self, running: Sequence[LocalWorker]) -> Sequence[LocalWorker]:
        return running


def test_payload_of_a_cohort_is_uploaded_once_per_worker(open_run: Callable[..., Run]) -> None:
    run = open_run("executor.device=auto")
    ids, method, serial = list(range(6)), run.method, run.pool.executor
    replies = []
    for workers, executor in ((1, serial), (1, serial), (2, LocalPool(serial.context, 2))):  # type: ignore[attr-defined]
        run.pool.executor = executor
        with counting() as counts:
            found = run.pool.run_task(
                ids, method.local_update, method.payload, run.context("train")
            )
        replies.append(to_comparable(found))
        if len(replies) > 1:  # The first time, constants are uploaded, too.
            assert (counts.uploads, counts.downloads) == (workers + len(ids), len(ids))
            assert counts.scalar_reads == 0
    assert replies[0] == replies[1] == replies[2]


def test_every_method_has_a_case() -> None:
    modules = {
        info.name for info in registry.list_methods() if info.cls.__module__[:8] == "methods."
    }
    assert modules == {case.method for case in CASES}


def test_transfers_of_dividemix_per_epoch_and_network() -> None:
    cases = (Case("dividemix", 0, "divide", params={"divide_epochs": n}) for n in (2, 3))
    (two, _), (three, _) = (work_of(case, 60) for case in cases)
    assert three.transfers - two.transfers <= 2 * 2
    assert three.scalar_reads == two.scalar_reads
