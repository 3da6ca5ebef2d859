"""Contract suite: attacks of a method on the clean labels.

Each attack must fail on the suite and succeed on a variant of the suite that leaks, so that the
tests can fail. docs/fairness.md says which attacks are possible in Python nevertheless.
"""

import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from object_graph import contains, integers, reachable
from run_helpers import SilentTracker
from torch import Tensor

import noise
import partition
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.data.images import FileImages, MemoryImages
from benchmarks.executors import SerialExecutor
from benchmarks.federation.client import ClientImages, ImageSplit, LocalClient
from benchmarks.federation.internals import internals_of
from benchmarks.federation.pool import ClientPool
from benchmarks.federation.worker import WorkerContext
from benchmarks.loop import evaluation, runner
from benchmarks.loop.runner import Run
from benchmarks.scenario.scenario import Scenario
from methods.core import contract
from methods.core.contract import Diagnosis
from methods.core.params import NoParams
from methods.core.task import LocalTask, Models, Reply, RoundContext, TaskSpec
from methods.fedavg import FedAvg

SEED = 918273  # unlike any other number of a run
# Objects that lead to clean labels, sample indices, file names or the seed.
SECRET_TYPES = (
    ClientPool,
    Dataset,
    FileImages,
    MemoryImages,
    noise.NoiseRecord,
    Path,
    Run,
    RunConfig,
    Scenario,
    SerialExecutor,
    WorkerContext,
)

Configure = Callable[..., RunConfig]


class Attacker(FedAvg):
    """A method that collects what its hooks receive. `seen` is cleared by `attack`."""

    seen: ClassVar[list[Any]] = []


def attack(config: RunConfig, attacker: type[Attacker], prepare: Any = lambda run: None) -> Run:
    """Run an attacker on both sides, as if it had been registered by a plug-in."""
    attacker.seen.clear()
    run = Run(config, SilentTracker(config.run_dir))
    assert isinstance(run.executor, SerialExecutor)
    run.method, run.executor.context.method = attacker(NoParams()), attacker(NoParams())
    prepare(run)
    run.run()
    assert attacker.seen
    return run


# The order of a client's samples


class PositionAttacker(Attacker):
    """Takes the most frequent given label of neighboring positions for the true label."""

    def local_update(self, task: LocalTask) -> Reply:
        given = task.client.given_labels.numpy()
        shuffled = np.random.default_rng(0).permutation(given)
        guesses = (smooth(labels, task.client.num_classes) for labels in (given, shuffled))
        self.seen.append((task.client.id, *guesses))
        return super().local_update(task)


def smooth(labels: np.ndarray, num_classes: int, width: int = 4) -> np.ndarray:
    """The most frequent label among the neighbors of each position."""
    counts = np.cumsum(np.pad(np.eye(num_classes)[labels], ((width + 1, width), (0, 0))), axis=0)
    return np.asarray((counts[2 * width + 1 :] - counts[: -2 * width - 1]).argmax(1))


def position_gain(config: RunConfig) -> float:
    """Accuracy of guesses by position, minus their accuracy if positions say nothing."""
    run = attack(config, PositionAttacker)
    correct: list[np.ndarray] = []
    for k, guess, without_positions in PositionAttacker.seen:
        clean = run.scenario.clean_labels[run.scenario.client_indices[k]]
        shuffled = np.random.default_rng(0).permutation(clean)
        correct.append((guess == clean).astype(float) - (without_positions == shuffled))
    return float(np.concatenate(correct).mean())


@pytest.fixture(scope="module")
def stored_by_class(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits in a file whose samples are sorted by class, like a directory of class directories."""
    path = tmp_path_factory.mktemp("data") / "sorted.npz"
    order = np.argsort(digits.train_labels, kind="stable")
    np.savez(
        path,
        train_images=digits.train.fetch(torch.from_numpy(order)).numpy(),
        train_labels=digits.train_labels[order],
        test_images=digits.test.fetch(torch.arange(len(digits.test))).numpy(),
        test_labels=digits.test_labels,
    )
    return path


PARTITIONS = {
    "classes_per_client": ["partition.classes=3"],
    "shards": [],
    "dirichlet": ["partition.alpha=1.0", "partition.min_size=10"],
    "bernoulli_dirichlet": ["partition.p=0.7", "partition.alpha=5.0"],
    "iid": ["partition.form=stratified"],
    "centralized": ["federation.num_clients=1", "federation.clients_per_round=1"],
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_positions_say_nothing_about_labels(
    name: str, configure: Configure, stored_by_class: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = 1 if name == "centralized" else 8
    config = configure(
        *("dataset=npz", f"dataset.path={stored_by_class}", f"partition={name}"),
        *PARTITIONS[name],
        *("noise=symmetric", "noise.epsilon=0.5", f"budget.participations={2 * clients}"),
    )
    assert abs(position_gain(config)) < 0.1
    monkeypatch.setattr(partition, "_shuffle_clients", lambda indices, seed, params: indices)
    assert position_gain(config) > 0.2, "the attack succeeds on clients that are not shuffled"


# The seed


class ReplayAttacker(Attacker):
    """Collects the integers that server-side and client-side hooks can reach."""

    def after_round(self, pool: contract.ClientPool, ctx: RoundContext) -> None:
        self.seen.extend(integers(reachable([self, pool, ctx])))

    def local_update(self, task: LocalTask) -> Reply:
        self.seen.extend(integers(reachable([self, task])))
        self.seen.append(torch.initial_seed())
        return super().local_update(task)


def best_replay(run: Run, candidates: set[int]) -> float:
    """Best correlation of replayed and true noise masks over all candidates for the seed.

    Label noise depends on positions, so the attacker replays it on clients of the same sizes.
    """
    scenario, name, params = run.scenario, run.config.noise.name, run.config.noise.params
    sizes = scenario.client_sizes
    positions = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    labels, classes = np.zeros(sizes.sum(), dtype=np.int64), scenario.num_classes
    truth = scenario.noise.flipped[np.concatenate(scenario.client_indices)]
    scores = []
    for seed in {candidate % 2**32 for candidate in candidates}:
        record = noise.apply_noise(name, labels, positions, classes, seed, params)
        scores.append(abs(np.corrcoef(record.flipped, truth)[0, 1]))
    return max(scores)


@pytest.mark.parametrize(
    "options",
    [
        ("noise=rho_tau", "noise.rho=1.0", "noise.tau=0.4"),
        ("noise=symmetric", "noise.epsilon=0.5", "noise.scope=client"),
    ],
    ids=["rho_tau", "symmetric"],
)
def test_noise_cannot_be_replayed(
    options: Sequence[str], configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(f"seed={SEED}", "budget.participations=8", *options)
    run = attack(config, ReplayAttacker)
    candidates = set(ReplayAttacker.seen)
    assert run.context("train").stream_root in candidates and SEED not in candidates
    assert best_replay(run, candidates) < 0.35
    monkeypatch.setattr(runner, "derive_seed", lambda seed, *key: seed)
    leaky = attack(config, ReplayAttacker)
    assert best_replay(leaky, set(ReplayAttacker.seen)) > 0.7, "the attack succeeds with the seed"


# The memorization probe


class ProbeAttacker(Attacker):
    """Recognizes training images among the images that `predict` receives."""

    known: ClassVar[dict[bytes, tuple[int, int]]] = {}  # image -> client and position

    def local_update(self, task: LocalTask) -> Reply:
        images = task.client.images(torch.arange(task.client.num_samples))
        for position, image in enumerate(images):
            self.known[image.numpy().tobytes()] = (task.client.id, position)
        return super().local_update(task)

    def predict(self, models: Models, x: Tensor) -> Tensor:
        self.seen.append([image.numpy().tobytes() for image in x])
        return super().predict(models, x)


def probe_attack(config: RunConfig) -> tuple[float, float, float]:
    """Noise rate, precision of "is in the probe", and precision of "is early in the probe"."""
    ProbeAttacker.known.clear()
    run = attack(config, ProbeAttacker)
    scenario, known = run.scenario, ProbeAttacker.known
    evaluated = [image for batch in ProbeAttacker.seen for image in batch]
    # The last evaluation: by then, every client has trained.
    per_evaluation = len(evaluated) // len(run.curve)
    samples = [known[image] for image in evaluated[-per_evaluation:] if image in known]
    wrong = [scenario.noise.flipped[scenario.client_indices[k][i]] for k, i in samples]
    early = wrong[: max(1, round(len(wrong) * scenario.noise_rate))]
    return scenario.noise_rate, float(np.mean(wrong)), float(np.mean(early))


def test_predict_cannot_recognize_mislabeled_samples(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(
        *("noise=symmetric", "noise.epsilon=0.4", "evaluate.memorization_samples=200"),
        *("federation.clients_per_round=8", "budget.participations=16"),
    )
    rate, in_probe, is_early = probe_attack(config)
    assert in_probe == pytest.approx(rate, abs=0.02) and is_early == pytest.approx(rate, abs=0.12)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "MAX_CORRECT_PER_MISLABELED", 0)
        _, in_probe, _ = probe_attack(config)
        assert in_probe == 1, "the attack succeeds on a probe of mislabeled samples"
    unshuffled = types.SimpleNamespace(
        permutation=lambda values: np.arange(values) if isinstance(values, int) else values
    )
    monkeypatch.setattr(evaluation, "numpy_generator", lambda *key: unshuffled)
    _, _, is_early = probe_attack(config)
    assert is_early > 0.9, "the attack succeeds on a probe in a fixed order"


def test_held_out_samples_look_like_test_images(configure: Configure) -> None:
    """No client has the images that `predict` receives beside those of the probe."""
    config = configure(
        *("noise=symmetric", "noise.epsilon=0.4", "evaluate.validation=0.2"),
        *("federation.clients_per_round=8", "budget.participations=16"),
    )
    rate, in_probe, is_early = probe_attack(config)
    assert in_probe == pytest.approx(rate, abs=0.02) and is_early == pytest.approx(rate, abs=0.12)
    run = attack(config, ProbeAttacker)
    per_evaluation = len(run.probe.mislabeled) + len(run.probe.correct)
    evaluated = {image for batch in ProbeAttacker.seen for image in batch}
    known = evaluated & ProbeAttacker.known.keys()
    assert len(known) == per_evaluation, "the digits have no image twice"
    held_out = run.dataset.train.fetch(torch.from_numpy(run.scenario.held_out))
    images = {image.numpy().tobytes() for image in run.dataset.views(held_out, "plain", None)}
    assert len(images) == 288 and images <= evaluated - known


def test_batches_of_predict_have_one_size(configure: Configure) -> None:
    """360 test images and 1437 training images: three batches of 500 and the rest."""
    attack(configure("noise=symmetric", "noise.epsilon=0.4"), ProbeAttacker)
    sizes = [len(batch) for batch in ProbeAttacker.seen]
    assert sizes == [500, 500, 500, 297] * (len(sizes) // 4)


# Attributes


class GraphAttacker(Attacker):
    """Searches everything that its hooks receive."""

    def setup(self, spec: TaskSpec, pool: contract.ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, pool, ctx)
        self.seen.extend(reachable([self, spec, pool, ctx]))

    def select_clients(self, pool: contract.ClientPool, ctx: RoundContext) -> Sequence[int]:
        ids = super().select_clients(pool, ctx)
        self.seen.extend(reachable([self, ids, pool, pool.run_task, pool.initial_weights, ctx]))
        return ids

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        self.seen.extend(reachable([self, list(replies), ctx]))
        super().aggregate(replies, ctx)

    def diagnose(self, pool: contract.ClientPool) -> Diagnosis:
        self.seen.extend(reachable([self, pool, pool.state(0), pool.labels(0), pool.client_sizes]))
        return Diagnosis()

    def local_update(self, task: LocalTask) -> Reply:
        streams = task.generator("a"), task.generator("b")
        ((order, batches),) = task.client.epochs([None], 4, "train", *streams)
        model = task.client.load_model(task.payload.models["model"])
        image = task.client.images(torch.arange(1))
        self.seen.extend(reachable([self, task, next(batches), batches, order, model, image]))
        self.seen.extend(reachable([task.client.images, task.client.load_model]))
        self.seen.extend(reachable(task.client.upload_later(order)))
        return super().local_update(task)

    def predict(self, models: Models, x: Tensor) -> Tensor:
        self.seen.extend(reachable([self, models, x]))
        return super().predict(models, x)


def find_secrets(run: Run, objects: Sequence[Any]) -> set[str]:
    """Names of the secrets among the objects."""
    scenario, dataset, record = run.scenario, run.dataset, run.scenario.noise
    arrays = {
        "clean labels": [dataset.train_labels, dataset.test_labels],
        "given labels of all clients": [record.labels],
        "noise": [record.flipped],
        "sample indices": scenario.client_indices,
    }
    for k in np.flatnonzero(record.client_rate):
        indices = scenario.client_indices[k]
        arrays["clean labels"].append(dataset.train_labels[indices])
        arrays["noise"].append(record.flipped[indices])
    found = {name for name, secrets in arrays.items() if any(contains(objects, s) for s in secrets)}
    found |= {type(value).__name__ for value in objects if isinstance(value, SECRET_TYPES)}
    texts = {value for value in objects if isinstance(value, str)}
    directories = (str(run.config.run_dir), str(run.config.data_dir))
    found |= {text for text in texts if text.startswith(directories)}
    return found | ({"seed"} if run.config.seed in integers(objects) else set())


@pytest.fixture
def graph_config(configure: Configure) -> RunConfig:
    return configure(f"seed={SEED}", "noise.rho=1.0", "budget.participations=8")


def test_attributes_do_not_lead_to_secrets(graph_config: RunConfig) -> None:
    run = attack(graph_config, GraphAttacker)
    assert find_secrets(run, GraphAttacker.seen) == set()
    assert contains(GraphAttacker.seen, run.pool.labels(0).numpy()), "given labels are found"


class LeakyClient(LocalClient):
    """Keeps its internals in an attribute."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._internals = internals_of(self)


def test_search_finds_secrets_of_a_leaky_client(
    graph_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.federation.worker.LocalClient", LeakyClient)
    run = attack(graph_config, GraphAttacker)
    expected = {"sample indices", "given labels of all clients", "MemoryImages", "WorkerContext"}
    assert expected <= find_secrets(run, GraphAttacker.seen)


def test_search_finds_secrets_of_a_leaky_pool(graph_config: RunConfig) -> None:
    def give_the_pool(run: Run) -> None:
        run.pool_view = run.pool  # type: ignore[assignment]

    run = attack(graph_config, GraphAttacker, give_the_pool)
    expected = {"sample indices", "ClientPool", "SerialExecutor", "given labels of all clients"}
    assert expected | {"seed"} <= find_secrets(run, GraphAttacker.seen)


def file_client(directory: Path, cls: type[LocalClient], digits: Dataset) -> LocalClient:
    """A client whose images are files in class directories."""
    images = FileImages(directory, ["cat/1.png", "dog/2.png"], (3, 8, 8), 8, False)
    labels, split = torch.zeros(2, dtype=torch.int64), ImageSplit(images, digits.views)
    images = ClientImages(split, torch.arange(2))
    return cls(0, images, labels, labels, {}, 2, lambda: pytest.fail("no model"))


@pytest.mark.parametrize(("cls", "is_leaky"), [(LocalClient, False), (LeakyClient, True)])
def test_file_names_are_not_attributes_of_a_client(
    cls: type[LocalClient], is_leaky: bool, tmp_path: Path, digits: Dataset
) -> None:
    objects = reachable(file_client(tmp_path, cls, digits))
    assert any(isinstance(value, FileImages | Path) for value in objects) == is_leaky
    names = [
        value for value in objects if isinstance(value, np.ndarray) and value.dtype.kind == "S"
    ]
    assert bool(names) == is_leaky
