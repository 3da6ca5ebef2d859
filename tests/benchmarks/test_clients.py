"""Clients: data access and cost of client tasks; the view of the client pool."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import to_comparable

from benchmarks.federation import internals
from benchmarks.federation.client import CHUNK_BYTES, ClientImages, ImageSplit, LocalClient
from benchmarks.federation.cost import CostMeter, size_in_bytes
from benchmarks.loop.runner import Run
from methods.core.task import Batch


def streams(seed: int = 0) -> tuple[torch.Generator, torch.Generator]:
    return torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)


def epoch(client: LocalClient, batch_size: int, seed: int = 0, subset: Any = None) -> list[Batch]:
    (order, batches), *_ = client.epochs([subset], batch_size, "train", *streams(seed))
    result = list(batches)
    assert torch.equal(order, torch.cat([batch.index for batch in result]))
    assert all(torch.equal(order[batch.rows], batch.index) for batch in result)
    return result


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "sizes"),
    [(23, 10, [10, 10, 3]), (21, 10, [10, 10, 1]), (20, 10, [10, 10]), (3, 10, [3]), (1, 1, [1])],
)
def test_epoch_has_each_sample_once_and_keeps_the_last_batch(
    make_client: Callable[..., LocalClient], num_samples: int, batch_size: int, sizes: list[int]
) -> None:
    client = make_client(num_samples=num_samples)
    batches = epoch(client, batch_size)
    assert [len(batch.x) for batch in batches] == sizes
    order = torch.cat([batch.index for batch in batches])
    assert sorted(order.tolist()) == list(range(num_samples))
    assert torch.equal(torch.cat([batch.y for batch in batches]), client.labels[order])
    images = torch.cat([batch.x for batch in batches])
    assert torch.equal(images, client.images(order)), "digits are not augmented"
    steps = [(batch.epoch, batch.step) for batch in batches]
    assert steps == [(0, step) for step in range(len(sizes))]
    assert (client.samples_trained, client.samples_scored) == (num_samples, num_samples)


def test_order_depends_on_its_generator_only(make_client: Callable[..., LocalClient]) -> None:
    """Neither the global generator nor the batch size changes the order."""

    def order(seed: int, batch_size: int) -> list[int]:
        batches = epoch(make_client(), batch_size, seed)
        positions: list[int] = torch.cat([batch.index for batch in batches]).tolist()
        return positions

    torch.manual_seed(1)
    first = order(0, 10)
    torch.manual_seed(2)
    assert first == order(0, 10) == order(0, 7)
    assert first != order(1, 10)
    assert first == torch.randperm(40, generator=streams()[0]).tolist()


def test_subset_is_shuffled_without_other_samples(
    make_client: Callable[..., LocalClient],
) -> None:
    client, subset = make_client(), torch.tensor([3, 5, 8, 13, 21])
    batches = epoch(client, 2, subset=subset)
    order = torch.cat([batch.index for batch in batches])
    assert [len(batch.x) for batch in batches] == [2, 2, 1]
    assert sorted(order.tolist()) == subset.tolist() and order.tolist() != subset.tolist()
    assert torch.equal(torch.cat([batch.y for batch in batches]), client.labels[order])
    assert client.samples_trained == 5


def test_chunks_of_a_long_epoch_have_whole_batches(digits: Any) -> None:
    """More images than one chunk, in batches of 100. Only the last batch is shorter."""
    count = CHUNK_BYTES // (4 * 8 * 8) + 5
    positions = torch.arange(count) % len(digits.train_labels)
    labels = torch.from_numpy(digits.train_labels)[positions]
    client = LocalClient(
        0,
        ClientImages(ImageSplit(digits.train, digits.views), positions),
        labels,
        labels,
        {},
        10,
        lambda: pytest.fail("no model is needed"),
    )
    batches = epoch(client, 100)
    assert [len(batch.x) for batch in batches] == [100] * (count // 100) + [count % 100]
    assert [batch.step for batch in batches] == list(range(len(batches)))
    assert len(torch.cat([batch.index for batch in batches]).unique()) == count


def test_next_epoch_uses_changed_labels(make_client: Callable[..., LocalClient]) -> None:
    client = make_client()
    given = client.given_labels.clone()
    client.labels = torch.nn.functional.one_hot(9 - client.labels, 10).float()
    for batch in epoch(client, 10):
        assert torch.equal(batch.y.argmax(1), 9 - given[batch.index])
    assert torch.equal(client.given_labels, given)


def test_reply_has_copies_of_the_vectors(
    make_client: Callable[..., LocalClient], initial_vector: torch.Tensor
) -> None:
    client = make_client()
    model = client.load_model(initial_vector)
    reply = client.reply({"model": model.vector}, loss=0.5)
    model.vector.zero_()
    assert torch.equal(reply.models["model"], initial_vector)
    assert (reply.client_id, reply.num_samples, reply.values) == (0, 40, {"loss": 0.5})


def test_models_of_one_task_differ_and_are_reused_by_the_next(
    open_run: Callable[..., Run],
) -> None:
    run = open_run("method=coteaching")
    context = run.executor.context  # type: ignore[attr-defined]
    for ids in ([0], [1, 2]):
        run.pool.run_task(ids, run.method.local_update, run.method.payload, run.context("train"))
        first, second = context._models
        assert first.vector.data_ptr() != second.vector.data_ptr()


def test_size_in_bytes() -> None:
    assert size_in_bytes(torch.zeros(3, 5)) == 60
    assert size_in_bytes(torch.zeros(7, dtype=torch.bool)) == 7
    assert size_in_bytes(np.zeros(4)) == 32
    assert size_in_bytes(np.float32(1)) == 4 and size_in_bytes(np.int64(1)) == 8
    nested = {"a": 1, "b": 2.5, "c": [1.0, torch.zeros(2)], "d": "a word", "e": None}
    assert size_in_bytes(nested) == 8 + 8 + (8 + 8)


def test_meter_counts_participations_models_bytes_and_samples(
    open_run: Callable[..., Run],
) -> None:
    """One round of FedAvg: 4 participations, one model each way, every sample once per epoch."""
    run = open_run("train.local_epochs=3")
    ctx, ids = run.context("train"), [1, 2, 5, 7]
    run.pool.run_task(ids, run.method.local_update, run.method.payload, ctx, participation=True)
    size = 4 * len(run.method.state.models["model"])
    assert run.pool.meter == CostMeter(
        participations=4,
        models_down=4,
        models_up=4,
        bytes_down=4 * size,
        bytes_up=4 * size,
        samples_trained=3 * int(run.pool.client_sizes[ids].sum()),
    )


def test_meter_counts_queries(open_run: Callable[..., Run]) -> None:
    """PoC queries the loss of 8 candidates, which score all their samples. Then 4 of them train."""
    run = open_run("method=poc")
    ctx = run.context("train")
    ids = run.method.select_clients(run.pool, ctx)
    size = 4 * len(run.method.state.models["model"])
    meter = run.pool.meter
    assert meter == CostMeter(
        queries=8,
        models_down=8,
        bytes_down=8 * size,
        bytes_up=8 * 8,
        samples_scored=int(run.pool.client_sizes.sum()),
    )
    run.pool.run_task(ids, run.method.local_update, run.method.payload, ctx, participation=True)
    assert (meter.participations, meter.queries, meter.bytes_down) == (4, 8, 12 * size)


def test_pool_stores_client_states(open_run: Callable[..., Run]) -> None:
    run = open_run("method=lsg")
    pool, method = run.pool, run.method
    pool.run_task([2], method.local_update, method.payload, run.context("train"))
    assert set(pool.states) == {2} and pool.state(2)["epochs"] == 1 and pool.state(3) == {}
    assert torch.equal(pool.labels(2), pool.given_labels(2)) and pool.relabeled == {}
    indices = run.scenario.client_indices[2]
    assert np.array_equal(pool.given_labels(2).numpy(), run.scenario.noise.labels[indices])


def test_pool_view_returns_copies(open_run: Callable[..., Run]) -> None:
    run = open_run("method=lsg")
    pool, view, method = run.pool, run.pool_view, run.method
    view.run_task([2], method.local_update, method.payload, run.context("train"))
    assert view.num_clients == 8 and view.client_sizes.tolist() == pool.client_sizes.tolist()
    assert torch.equal(view.labels(2), pool.labels(2))
    assert torch.equal(view.state(2)["ensemble"], pool.state(2)["ensemble"])
    assert torch.equal(view.initial_weights(1), pool.initial_weights(1))
    pool.relabeled[2] = pool.given_labels(2)
    before = to_comparable([pool.client_sizes, pool.relabeled, pool.states])
    view.client_sizes[:] = 0
    view.labels(2)[:] = 0
    view.state(2)["ensemble"][:] = 0
    assert to_comparable([pool.client_sizes, pool.relabeled, pool.states]) == before


def test_internals_are_stored_as_long_as_their_owner_exists(
    make_client: Callable[..., LocalClient],
) -> None:
    stored = len(internals._INTERNALS)
    client = make_client()
    assert len(internals._INTERNALS) == stored + 1
    assert len(internals.internals_of(client).images) == client.num_samples
    del client
    assert len(internals._INTERNALS) == stored
