"""What every registered method promises, those of other packages included. A new method is tested here without a new test.

All runs are whole runs at smoke scale on a hand-made federation that holds the awkward cases: a client with one sample, one with one class, one whose last
batch has one sample, one with fewer samples than a batch.
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
import yaml
from running import PLUGIN, PLUGIN_CONF, Stopped, learnt, loop, plain, timeless
from torch import Tensor

import partition
from benchmarks.config import sweep
from benchmarks.config.schema import Component, RunConfig
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.client import LocalClient
from benchmarks.federation.worker import ClientTask, PredictionTask
from benchmarks.loop.runner import Run
from methods.core import registry
from methods.core.contract import DivergenceError, NoParams, Reply
from methods.fedavg import FedAvg
from partition.base import Partitioner
from partition.iid import IidParams

METHODS = registry.list_methods()
CONF = sweep.CONF
SIZES = {1: "one sample", 12: "one class", 11: "last batch of one", 3: "less than a batch"}
TRUTH = (
    "clients/",
    "samples/",
    "labels/",
    "memorised/",
)  # columns of the curve that are scored against the true labels

every_method = pytest.mark.parametrize("info", METHODS, ids=[info.name for info in METHODS])


class WatchedClient(LocalClient):
    """Remembers the labels that it was given: writing into them would change them for one visit and leave no trace."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.first = [(labels, labels.clone()) for labels in (self.given, self.labels)]

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        assert all(torch.equal(labels, before) for labels, before in self.first), (
            "labels were changed in place; assign a new tensor instead"
        )
        return super().reply(models, **values)


class WatchedExecutor(SerialExecutor):
    """Looks at everything that a client task is lent, before and after it."""

    def __init__(self, serial: SerialExecutor):
        super().__init__(serial._workshop)
        self.tasks: set[str] = set()

    def run(self, jobs: Sequence[ClientTask | PredictionTask]) -> list[Any]:
        results = []
        for job in jobs:
            before = self._lent(job)
            results += super().run([job])
            after = self._lent(job)
            for what in before:
                assert after[what] == before[what], f"{job} has changed {what}"
        return results

    def _lent(self, job: ClientTask | PredictionTask) -> dict[str, Any]:
        if isinstance(job, PredictionTask):
            return {"the models tested": plain(job.models)}
        self.tasks.add(job.task)
        shop = self._workshop
        data = [shop.train.images.tensor, shop.test.images.tensor, shop.parts]  # type: ignore[attr-defined]
        return {
            "the payload": plain([job.payload.models, job.payload.shared]),
            "the state or the labels kept from earlier visits": plain([job.state, job.labels]),
            "the given labels": plain(shop.noisy),
            "the data": plain(data),
            "the method": plain(vars(shop.method)),
        }


def awkward_clients(
    labels: np.ndarray, num_clients: int, seed: int, params: IidParams
) -> list[np.ndarray]:
    order = np.random.default_rng(seed).permutation(len(labels))
    one_class, others = order[labels[order] == 3][:12], order[labels[order] != 3]
    single, short, last_of_one, *rest = np.split(
        others, [1, 4, 15, *range(45, 15 + 30 * (num_clients - 4), 30)]
    )
    return [single, one_class, short, last_of_one, *(part[:30] for part in rest)]


@pytest.fixture(scope="module", autouse=True)
def awkward_federation() -> Iterator[None]:
    partitioner = Partitioner(
        "awkward", IidParams, awkward_clients, "made by hand", disjoint=True, uses_all_samples=False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(partition.PARTITIONERS._components, "awkward", partitioner)
        yield


@pytest.fixture(scope="module")
def configure(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunConfig]:
    """configure("fedprox", "seed=2") -> a configuration in a folder of its own."""

    def make(method: str, *overrides: str) -> RunConfig:
        world = [
            "scale=smoke",
            "executor=serial",
            "partition.name=awkward",
            f"runs_dir={tmp_path_factory.mktemp('runs')}",
        ]
        ((_, config),) = sweep.expand([f"method={method}", PLUGIN_CONF, *world, *overrides])
        return config

    return make


@pytest.fixture(scope="module")
def run_whole(configure: Callable[..., RunConfig]) -> Callable[..., Run]:
    """run_whole("fedprox", "seed=2") -> the finished Run; each is made once."""
    return cache(lambda method, *overrides: loop(configure(method, *overrides)))


@pytest.fixture(scope="module")
def run_watched(configure: Callable[..., RunConfig]) -> Callable[[str], Run]:
    """The same under a WatchedExecutor: the run that the others are compared with."""

    def run(method: str) -> Run:
        def watch(run: Run) -> None:
            assert isinstance(run.executor, SerialExecutor)
            run.executor = run.fleet.executor = WatchedExecutor(run.executor)

        before = str(np.random.get_state()), random.getstate()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("benchmarks.federation.worker.LocalClient", WatchedClient)
            finished = loop(configure(method), watch)
        assert (str(np.random.get_state()), random.getstate()) == before, (
            "a global generator was used"
        )
        return finished

    return cache(run)


@every_method
def test_parameters_are_those_of_the_yaml(info: registry.MethodInfo) -> None:
    (path,) = (
        path
        for folder in (CONF, PLUGIN / "example_plugin" / "conf")
        if (path := folder / "method" / f"{info.name}.yaml").exists()
    )
    given = yaml.safe_load(path.read_text())
    assert given.pop("name") == info.name
    assert given == dataclasses.asdict(info.params())
    assert registry.build(info.name, given).params == info.params()


@every_method
def test_docstring_says_what_and_where_it_departs_from_the_paper(info: registry.MethodInfo) -> None:
    assert re.fullmatch(r"[A-Z].{20,150}\.", info.summary), "the first line is one sentence"
    assert re.search(r"\n\n +Deviations: \S", info.cls.__doc__ or ""), (
        "a paragraph `Deviations:`, `none` if there are none"
    )
    assert info.family and re.search(r"\d{4}", info.paper)


@every_method
def test_whole_run_is_finite_and_keeps_to_the_budget(
    info: registry.MethodInfo, run_watched: Callable[[str], Run]
) -> None:
    run = run_watched(info.name)
    assert {len(part) for part in run.scenario.client_indices} == {*SIZES, 30}
    assert run.method.stage(run.round) is None and len(run.curve) >= 2
    assert all(
        torch.isfinite(vector).all()
        for vector in [*run.method.models.values(), *run.method.serving().values()]
    )
    assert all(
        np.isfinite(value)
        for row in run.curve
        for value in row.values()
        if not isinstance(value, str)
    )
    assert run.curve[-1]["participations"] == run.fleet.meter.participations
    assert (
        0
        < run.fleet.meter.participations
        <= run.method.planned_participations
        <= run.config.budget.participations
    )


@every_method
def test_client_tasks_change_nothing_but_their_reply_and_their_client(
    info: registry.MethodInfo, run_watched: Callable[[str], Run]
) -> None:
    """The watching executor has compared payload, data, given labels, earlier state and the method around every task of the run."""
    run = run_watched(info.name)
    assert isinstance(run.executor, WatchedExecutor)
    assert "local_update" in run.executor.tasks
    assert set(vars(run.executor._workshop.method)) == {"params"}


@every_method
def test_same_seed_gives_the_same_bytes_in_one_process_and_in_two(
    info: registry.MethodInfo, run_watched: Callable[[str], Run], run_whole: Callable[..., Run]
) -> None:
    serial, spread = (
        run_watched(info.name),
        run_whole(info.name, "executor=processes", "executor.workers=2"),
    )
    assert timeless(spread.curve) == timeless(serial.curve)
    assert learnt(spread) == learnt(serial)
    assert spread.fleet.meter == serial.fleet.meter and spread.journal == serial.journal


@every_method
def test_another_seed_gives_another_curve(
    info: registry.MethodInfo,
    run_watched: Callable[[str], Run],
    configure: Callable[..., RunConfig],
) -> None:
    first = run_watched(info.name).curve[0]
    runs: list[Run] = []
    with pytest.raises(Stopped):
        loop(configure(info.name, "seed=2"), runs.append, stops=[first["round"]])
    assert runs[0].curve[0]["round"] == first["round"] and runs[0].curve[0]["loss"] != first["loss"]


@every_method
def test_resumed_run_equals_an_uninterrupted_one(
    info: registry.MethodInfo,
    run_watched: Callable[[str], Run],
    configure: Callable[..., RunConfig],
) -> None:
    whole = run_watched(info.name)
    config = configure(info.name, "checkpoint.every_seconds=0")
    for stop in sorted(
        {2, max(2, whole.round // 2), whole.round}
    ):  # each loses one round: the checkpoint is of the one before
        with pytest.raises(Stopped):
            loop(config, stops=[stop])
    resumed = loop(config)
    assert "goes on from round" in " ".join(resumed.tracker.lines)  # type: ignore[attr-defined]
    assert timeless(resumed.curve) == timeless(whole.curve)
    assert learnt(resumed) == learnt(whole)
    assert resumed.fleet.meter == whole.fleet.meter and resumed.journal == whole.journal


@every_method
def test_nothing_that_is_learnt_depends_on_the_true_labels(
    info: registry.MethodInfo,
    run_watched: Callable[[str], Run],
    configure: Callable[..., RunConfig],
) -> None:
    """Once the noise is drawn, the truth is replaced by nonsense: scores change, models do not."""

    def lie(run: Run) -> None:
        for truth in (run.dataset.train_labels, run.scenario.clean_labels):
            truth[:] = 0
        noise = run.scenario.noise
        noise.flipped[:], noise.client_level[:], noise.client_rate[:], noise.transition[:] = (
            True,
            1,
            1,
            0,
        )

    honest, misled = run_watched(info.name), loop(configure(info.name), lie)
    assert learnt(misled) == learnt(honest)
    assert untrue(misled.curve) == untrue(honest.curve)
    assert misled.curve[-1].get("memorised/true") != honest.curve[-1]["memorised/true"]


def untrue(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith(TRUTH)}
        for row in timeless(curve)
    ]


@pytest.mark.parametrize(
    "info",
    [info for info in METHODS if info.cls.fedavg_equivalent_params is not None],
    ids=lambda info: info.name,
)
def test_null_parameters_give_fedavg(
    info: registry.MethodInfo, configure: Callable[..., RunConfig]
) -> None:
    assert info.cls.fedavg_equivalent_params
    values = {name: str(value).lower() for name, value in info.cls.fedavg_equivalent_params.items()}
    config = configure(info.name, *(f"method.{name}={value}" for name, value in values.items()))
    ours, fedavg = (
        loop(config),
        loop(dataclasses.replace(config, method=Component(FedAvg.name, NoParams()))),
    )
    assert plain(ours.method.serving()) == plain(fedavg.method.serving())
    for name in ("round", "participations", "accuracy", "loss", "samples_trained"):
        assert [row[name] for row in ours.curve] == [row[name] for row in fedavg.curve]


@every_method
def test_hopeless_learning_rate_diverges_and_does_not_fail(
    info: registry.MethodInfo, configure: Callable[..., RunConfig]
) -> None:
    try:
        run = loop(configure(info.name, "train.lr=1e12"))
    except DivergenceError as error:
        assert re.match(r"round \d+ \(\w+\): ", str(error))
    else:
        assert all(torch.isfinite(vector).all() for vector in run.method.serving().values())


@every_method
def test_composes_for_every_data_set(info: registry.MethodInfo) -> None:
    """At the paper's scale where there is one. A key of conf/method_dataset that does not exist would be refused."""
    scales: dict[str, set[str]] = {}
    for path in (CONF / "scale_dataset").glob("*.yaml"):
        scale, _, dataset = path.stem.partition("_")
        scales.setdefault(dataset, set()).add(scale)
    for scale in ("paper", "laptop"):
        datasets = [
            name for name, known in scales.items() if ("paper" in known) == (scale == "paper")
        ]
        cells = sweep.expand(
            [
                PLUGIN_CONF,
                f"method={info.name}",
                f"scale={scale}",
                f"dataset={','.join(datasets)}",
                "++dataset.path=null",
            ]
        )
        assert {config.dataset.name for _, config in cells} == set(datasets)
        assert all(config.method.name == info.name and config.scale == scale for _, config in cells)


def test_values_of_a_pair_belong_to_a_method_and_a_data_set() -> None:
    pairs = {
        f"{info.name}_{path.stem}" for info in METHODS for path in (CONF / "dataset").glob("*.yaml")
    }
    assert {path.stem for path in (CONF / "method_dataset").glob("*.yaml")} <= pairs
