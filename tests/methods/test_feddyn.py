"""FedDyn against numbers derived by hand and against the bookkeeping of its released code."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from methods.core.contract import Payload, Reply, TaskSpec
from methods.core.flat_model import FlatModel
from methods.feddyn import FedDyn, FedDynParams
from methods.toolkit.losses import cross_entropy


def server(alpha: float, start: list[float], num_trainable: int, sizes: list[int]) -> FedDyn:
    """A server of len(sizes) clients whose model is the vector `start`."""
    method = FedDyn(FedDynParams(alpha=alpha))
    world = SimpleNamespace(
        num_clients=len(sizes),
        sizes=np.array(sizes),
        initial_weights=lambda index: torch.tensor(start, dtype=torch.float64),
    )
    method.setup(TaskSpec("none", (1, 1, 1), 2, len(sizes), 2, 4, 1, num_trainable), world, None)
    return method


def reply(client_id: int, vector: list[float], num_samples: int = 10) -> Reply:
    return Reply(client_id, num_samples, {"model": torch.tensor(vector, dtype=torch.float64)}, {})


@pytest.mark.parametrize("alpha", [0.0, -0.1])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(ValueError, match=f"method.alpha={alpha} is not legal; legal: above 0"):
        FedDynParams(alpha=alpha)


def test_two_rounds_by_hand():
    """N = 3, alpha = .1, theta = 1. Round 1, replies 1.4 and .8: mean 1.1, h = -.1/3 (.4 - .2) = -.0066667, theta = 1.1 + .0666667.
    Round 2, replies 1.5 and 1.1: mean 1.3, h = -.0066667 - .1/3 (.3333333 - .0666667) = -.0155556, theta = 1.3 + .1555556.
    Tested is the mean, before the first round the start."""
    method = server(0.1, [1.0], 1, [10, 10, 10])
    assert method.serving()["model"].item() == 1.0
    for replies, mean, h, theta in (
        ([reply(0, [1.4]), reply(1, [0.8])], 1.1, -0.0066667, 1.1666667),
        ([reply(1, [1.5]), reply(2, [1.1])], 1.3, -0.0155556, 1.4555556),
    ):
        method.aggregate(replies, None)
        assert method.serving()["model"].item() == pytest.approx(mean)
        assert method._private["h"].item() == pytest.approx(h, abs=1e-7)
        assert method.models["model"].item() == pytest.approx(theta, abs=1e-7)


def test_plain_mean_of_weights_and_sample_weighted_mean_of_statistics():
    """Weights 1 and 3 of clients with 10 and 30 samples: mean 2. Statistics 1 and 3: (10 + 90) / 40 = 2.5, and no term of FedDyn on them."""
    method = server(0.1, [0.0, 0.0], 1, [10, 30])
    method.aggregate([reply(0, [1.0, 1.0], 10), reply(1, [3.0, 3.0], 30)], None)
    assert method.serving()["model"].tolist() == pytest.approx([2.0, 2.5])
    assert method.models["model"].tolist() == pytest.approx([4.0, 2.5])


def test_equals_the_sum_of_displacements_of_the_released_code():
    """theta = mean_S w_k + (1/N) sum_k s_k, s_k the sum of a client's displacements from the models it was sent."""
    rng = np.random.default_rng(0)
    method = server(0.03, [0.5, -1.0, 2.0], 3, [7, 9, 11, 20, 3])
    theta, displacements = method.models["model"].numpy().copy(), np.zeros((5, 3))
    for _ in range(6):
        cohort = rng.choice(5, 2, replace=False)
        sent = rng.standard_normal((2, 3))
        method.aggregate([reply(int(k), list(w)) for k, w in zip(cohort, sent, strict=True)], None)
        displacements[cohort] += sent - theta
        theta = sent.mean(0) + displacements.mean(0)
        assert np.allclose(method.models["model"].numpy(), theta, atol=1e-5)


def test_h_is_the_mean_gradient_of_all_clients(open_run):
    """Also of those never visited, whose g is 0; partial cohorts, unequal sizes, real training."""
    run = open_run("method=feddyn", "partition=dirichlet", "federation.clients_per_round=3")
    for _ in range(3):
        ctx = run.context("train")
        replies = run.fleet.ask(
            run.method.select(run.fleet, ctx),
            run.method.local_update,
            run.method.payload,
            ctx,
            participation=True,
        )
        run.method.aggregate(replies, ctx)
        run.round += 1
    gradients = [run.fleet.state(k)["g"] for k in run.fleet.states]
    assert 3 <= len(gradients) <= 8
    assert torch.allclose(run.method._private["h"], torch.stack(gradients).sum(0) / 8, atol=1e-6)


@pytest.mark.parametrize(("clip_norm", "clips"), [(0.0, False), (0.1, True), (10.0, False)])
def test_one_local_step(make_client, make_ctx, initial_vector, clip_norm, clips):
    """One batch of all 40 samples, mean size 80, so alpha_k = 2 alpha. With s = -g/alpha the step goes to
    theta - lr (clip(grad f + alpha_k (s - theta)) + (alpha_k + wd) theta), and g moves by -alpha (w - theta)."""
    alpha, lr, decay = 0.5, 0.02, 0.01
    ctx = make_ctx(batch_size=40, lr=lr, momentum=0.0, weight_decay=decay, clip_norm=clip_norm)
    g = 0.01 * torch.randn(ctx.spec.num_trainable, generator=torch.Generator().manual_seed(0))
    client = make_client(state={"g": g})
    method = FedDyn(FedDynParams(alpha=alpha))
    found = method.local_update(
        client, Payload({"model": initial_vector}, {"mean_samples": 80.0}), ctx
    ).models["model"]

    reference: FlatModel = make_client().network(initial_vector).train()
    (batch,) = make_client().batches(
        40, "train", ctx.generator("batches", 0), ctx.generator("augment", 0)
    )
    cross_entropy(reference(batch.x), batch.y).backward()
    theta = initial_vector[: ctx.spec.num_trainable]
    clipped = reference.grad + 2 * alpha * (-g / alpha - theta)
    assert (clip_norm > 0 and clipped.norm() > clip_norm) == clips
    if clips:
        clipped = clipped * clip_norm / clipped.norm()
    expected = theta - lr * (clipped + (2 * alpha + decay) * theta)
    assert torch.allclose(found[: len(theta)], expected, atol=1e-6)
    assert torch.allclose(client.state["g"], g - alpha * (found[: len(theta)] - theta), atol=1e-7)


def test_a_first_visit_starts_from_zero(make_client, make_ctx, initial_vector):
    payload, ctx = Payload({"model": initial_vector}, {"mean_samples": 40.0}), make_ctx()
    fresh, explicit = make_client(), make_client(state={"g": torch.zeros(ctx.spec.num_trainable)})
    method = FedDyn(FedDynParams())
    first, second = (
        method.local_update(fresh, payload, ctx),
        method.local_update(explicit, payload, ctx),
    )
    assert torch.equal(first.models["model"], second.models["model"])
    assert torch.equal(fresh.state["g"], explicit.state["g"])


def test_learns_on_digits(run_small):
    record = run_small("method=feddyn", "noise=none")
    assert record["status"] == "done"
    assert record["summary"]["final"] > 0.7
