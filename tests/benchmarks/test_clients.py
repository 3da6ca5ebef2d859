"""What a client's task is given, what it cannot reach, and what its visit costs."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.federation.client import EPOCH_CHUNK, ImageSplit, LocalClient
from benchmarks.federation.cost import CostMeter, size_in_bytes
from benchmarks.loop.runner import Run
from methods.core.contract import Batch, Client, Payload, Reply, RoundContext


def streams(seed: int = 0) -> tuple[torch.Generator, torch.Generator]:
    return torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)


def epoch(client: LocalClient, batch_size: int, seed: int = 0, **others: Any) -> list[Batch]:
    return list(client.batches(batch_size, "train", *streams(seed), **others))


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "sizes"),
    [(23, 10, [10, 10, 3]), (21, 10, [10, 10, 1]), (20, 10, [10, 10]), (3, 10, [3]), (1, 1, [1])],
)
def test_epoch_holds_each_sample_once_and_keeps_the_last_short_batch(
    make_client: Callable[..., LocalClient], num_samples: int, batch_size: int, sizes: list[int]
) -> None:
    client = make_client(num_samples=num_samples)
    batches = epoch(client, batch_size, epoch=4)
    assert [len(batch.x) for batch in batches] == sizes
    order = torch.cat([batch.index for batch in batches])
    assert sorted(order.tolist()) == list(range(num_samples))
    assert torch.equal(torch.cat([batch.y for batch in batches]), client.labels[order])
    assert torch.equal(torch.cat([batch.x for batch in batches]), client.images(order)), (
        "digits are trained on as they are"
    )
    assert [(batch.epoch, batch.step) for batch in batches] == [
        (4, step) for step in range(len(sizes))
    ]
    assert (client.samples_trained, client.samples_scored) == (num_samples, num_samples)


def test_order_comes_from_the_generator_alone(make_client: Callable[..., LocalClient]) -> None:
    def orders(seed: int, batch_size: int) -> list[int]:
        return torch.cat([batch.index for batch in epoch(make_client(), batch_size, seed)]).tolist()

    torch.manual_seed(1)
    first = orders(0, 10)
    torch.manual_seed(2)
    assert first == orders(0, 10) == orders(0, 7), (
        "neither the global generator nor the size of a batch has a say"
    )
    assert first != orders(1, 10)
    assert first == torch.randperm(40, generator=streams()[0]).tolist()


def test_subset_is_a_shuffled_epoch_of_its_own(make_client: Callable[..., LocalClient]) -> None:
    client, subset = make_client(), torch.tensor([3, 5, 8, 13, 21])
    batches = epoch(client, 2, subset=subset)
    order = torch.cat([batch.index for batch in batches])
    assert [len(batch.x) for batch in batches] == [2, 2, 1]
    assert sorted(order.tolist()) == subset.tolist() and order.tolist() != subset.tolist()
    assert torch.equal(torch.cat([batch.y for batch in batches]), client.labels[order])
    assert client.samples_trained == 5


def test_long_epoch_is_made_in_chunks_without_a_seam(
    make_client: Callable[..., LocalClient], digits: Any
) -> None:
    """EPOCH_CHUNK + 5 samples with batches of 100: chunks of whole batches, one short batch at the very end."""
    count = EPOCH_CHUNK + 5
    positions = torch.arange(count) % len(digits.train_labels)
    labels = torch.from_numpy(digits.train_labels)[positions]
    client = LocalClient(
        0,
        positions,
        labels,
        labels,
        {},
        ImageSplit(digits.train, digits.views),
        10,
        lambda: pytest.fail("no network is needed"),
    )
    batches = epoch(client, 100)
    assert [len(batch.x) for batch in batches] == [100] * (count // 100) + [count % 100]
    assert [batch.step for batch in batches] == list(range(len(batches)))
    assert len(torch.cat([batch.index for batch in batches]).unique()) == count


def test_changed_labels_are_what_the_next_epoch_trains_on(
    make_client: Callable[..., LocalClient],
) -> None:
    client = make_client()
    given = client.given.clone()
    client.labels = torch.nn.functional.one_hot(9 - client.labels, 10).float()
    for batch in epoch(client, 10):
        assert torch.equal(batch.y.argmax(1), 9 - given[batch.index])
    assert torch.equal(client.given, given)


def test_reply_owns_its_vectors(
    make_client: Callable[..., LocalClient], initial_vector: torch.Tensor
) -> None:
    client = make_client()
    net = client.network(initial_vector)
    reply = client.reply({"model": net.vector}, loss=0.5)
    net.vector.zero_()
    assert torch.equal(reply.models["model"], initial_vector)
    assert (reply.client_id, reply.num_samples, reply.values) == (0, 40, {"loss": 0.5})


def test_lent_networks_of_one_task_are_different_and_used_again_by_the_next(
    open_run: Callable[..., Run],
) -> None:
    run = open_run("method=coteaching")
    shop = run.executor._workshop  # type: ignore[attr-defined]
    for ids in ([0], [1, 2]):
        run.fleet.ask(ids, run.method.local_update, run.method.payload, run.context("train"))
        assert (
            len(shop._networks) == 2
            and shop._networks[0].vector.data_ptr() != shop._networks[1].vector.data_ptr()
        )


def reachable(start: Any) -> list[Any]:
    """Everything that can be reached from an object through attributes, containers and closures, but not through modules and classes."""
    seen, waiting, found = {id(start)}, [start], [start]
    while waiting:
        for value in gc.get_referents(waiting.pop()):
            if (
                id(value) in seen
                or isinstance(value, (type, type(gc)))
                or (isinstance(value, dict) and "__builtins__" in value)
            ):
                continue
            seen.add(id(value))
            waiting.append(value)
            found.append(value)
    return found


def holds(objects: list[Any], labels: np.ndarray) -> bool:
    """Whether some array among the objects has these labels."""
    arrays = [
        value.numpy() if isinstance(value, torch.Tensor) else value
        for value in objects
        if isinstance(value, (torch.Tensor, np.ndarray))
    ]
    return any(
        array.dtype.kind in "iu"
        and array.size == labels.size
        and np.array_equal(array.ravel(), labels)
        for array in arrays
    )


def test_neither_client_nor_worker_nor_fleet_holds_a_true_label(
    open_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run()
    truth, test_truth, noisy = (
        run.dataset.train_labels,
        run.dataset.test_labels,
        run.scenario.noise.labels,
    )
    seen: list[Any] = []
    half = run.executor._workshop.method  # type: ignore[attr-defined]

    def look(client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        seen.extend(reachable([client, payload, ctx]))
        return client.reply({})

    monkeypatch.setattr(half, "look", look, raising=False)
    run.fleet.ask([0], look, run.method.payload, run.context("train"))
    assert holds(seen, noisy), "the search finds what is there"
    assert not holds(seen, truth) and not holds(seen, test_truth)
    for part in (
        part
        for part, rate in zip(
            run.scenario.client_indices, run.scenario.noise.client_rate, strict=True
        )
        if rate > 0
    ):
        assert not holds(seen, truth[part])
    assert not any(
        isinstance(value, (type(run.dataset), type(run.scenario), type(run.scenario.noise)))
        for value in seen
    )

    at_the_server = reachable([run.method, run.fleet])
    assert (
        holds(at_the_server, noisy)
        and not holds(at_the_server, truth)
        and not holds(at_the_server, test_truth)
    )


def test_size_on_the_wire() -> None:
    assert size_in_bytes(torch.zeros(3, 5)) == 60
    assert size_in_bytes(torch.zeros(7, dtype=torch.bool)) == 7
    assert (
        size_in_bytes(np.zeros(4)) == 32
        and size_in_bytes(np.float32(1)) == 4
        and size_in_bytes(np.int64(1)) == 8
    )
    assert size_in_bytes(
        {"a": 1, "b": 2.5, "c": [1.0, torch.zeros(2)], "d": "a word", "e": None}
    ) == 8 + 8 + (8 + 8)


def test_meter_counts_visits_models_bytes_and_samples(open_run: Callable[..., Run]) -> None:
    """One round of FedAvg by hand: 4 visits, a model of P floats each way, every sample of the four clients once per epoch."""
    run = open_run("train.local_epochs=3")
    ctx, ids = run.context("train"), [1, 2, 5, 7]
    run.fleet.ask(ids, run.method.local_update, run.method.payload, ctx, participation=True)
    size, samples = 4 * len(run.method.models["model"]), int(run.fleet.sizes[ids].sum())
    expected = CostMeter(
        participations=4,
        models_down=4,
        models_up=4,
        bytes_down=4 * size,
        bytes_up=4 * size,
        samples_trained=3 * samples,
    )
    assert run.fleet.meter == expected


def test_meter_counts_what_methods_send_besides(open_run: Callable[..., Run]) -> None:
    """PoC asks 8 candidates for their loss, one number, and scores all their samples; then four of them train."""
    run = open_run("method=poc")
    ctx = run.context("train")
    ids = run.method.select(run.fleet, ctx)
    size = 4 * len(run.method.models["model"])
    everyone = int(run.fleet.sizes.sum())
    assert run.fleet.meter == CostMeter(
        contacts=8, models_down=8, bytes_down=8 * size, bytes_up=8 * 8, samples_scored=everyone
    )
    run.fleet.ask(ids, run.method.local_update, run.method.payload, ctx, participation=True)
    assert (
        run.fleet.meter.participations,
        run.fleet.meter.contacts,
        run.fleet.meter.bytes_down,
    ) == (4, 8, 12 * size)


def test_fleet_keeps_what_clients_keep(open_run: Callable[..., Run]) -> None:
    run = open_run("method=lsg")
    run.fleet.ask(
        [2], run.method.local_update, run.method.payload, run.context("train"), participation=True
    )
    assert (
        set(run.fleet.states) == {2}
        and run.fleet.state(2)["epochs"] == 1
        and run.fleet.state(3) == {}
    )
    assert torch.equal(run.fleet.labels(2), run.fleet.given(2)) and run.fleet.changed_labels == {}
    assert np.array_equal(
        run.fleet.given(2).numpy(), run.scenario.noise.labels[run.scenario.client_indices[2]]
    )
