"""FedDyn against values by hand and against the update rule of its released code."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from method_helpers import first_batch, run_local_update, train_cohort

from methods.core.flat_model import FlatModel
from methods.core.task import Reply, TaskSpec
from methods.feddyn import FedDyn, FedDynParams
from methods.toolkit.losses import cross_entropy


def make_server(alpha: float, initial: list[float], num_trainable: int, sizes: list[int]) -> FedDyn:
    """The server side for clients of these sizes, with the parameter vector `initial`."""
    method = FedDyn(FedDynParams(alpha=alpha))
    pool = SimpleNamespace(
        num_clients=len(sizes),
        client_sizes=np.array(sizes),
        initial_weights=lambda index: torch.tensor(initial, dtype=torch.float64),
    )
    method.setup(TaskSpec("none", (1, 1, 1), 2, len(sizes), 2, 4, 1, num_trainable), pool, None)
    return method


def reply(client_id: int, vector: list[float], num_samples: int = 10) -> Reply:
    return Reply(client_id, num_samples, {"model": torch.tensor(vector, dtype=torch.float64)}, {})


def test_two_rounds_by_hand():
    """N = 3, alpha = .1, theta = 1.

    Round 1, replies 1.4 and .8: mean 1.1, h = -.1/3 (.4 - .2) = -.0066667, theta = 1.1 + .0666667.
    Round 2, replies 1.5 and 1.1: mean 1.3, h = -.0066667 - .1/3 (.3333333 - .0666667) = -.0155556,
    theta = 1.3 + .1555556. The mean is evaluated.
    """
    method = make_server(0.1, [1.0], 1, [10, 10, 10])
    assert method.eval_models()["model"].item() == 1.0
    for replies, mean, h, theta in (
        ([reply(0, [1.4]), reply(1, [0.8])], 1.1, -0.0066667, 1.1666667),
        ([reply(1, [1.5]), reply(2, [1.1])], 1.3, -0.0155556, 1.4555556),
    ):
        method.aggregate(replies, None)
        assert method.eval_models()["model"].item() == pytest.approx(mean)
        assert method.state.h.item() == pytest.approx(h, abs=1e-7)
        assert method.state.models["model"].item() == pytest.approx(theta, abs=1e-7)


def test_statistics_are_averaged_by_samples():
    """Clients with 10 and 30 samples.

    Weights 1 and 3: unweighted mean 2, theta = 4. Batch-norm statistics 1 and 3:
    (10 + 90) / 40 = 2.5, without a term of FedDyn.
    """
    method = make_server(0.1, [0.0, 0.0], 1, [10, 30])
    method.aggregate([reply(0, [1.0, 1.0], 10), reply(1, [3.0, 3.0], 30)], None)
    assert method.eval_models()["model"].tolist() == pytest.approx([2.0, 2.5])
    assert method.state.models["model"].tolist() == pytest.approx([4.0, 2.5])


def test_equals_the_released_update_rule():
    """theta = mean_S w_k + (1/N) sum_k s_k.

    s_k is the sum of a client's displacements from the models it received.
    """
    rng = np.random.default_rng(0)
    method = make_server(0.03, [0.5, -1.0, 2.0], 3, [7, 9, 11, 20, 3])
    theta, displacements = method.state.models["model"].numpy().copy(), np.zeros((5, 3))
    for _ in range(6):
        cohort = rng.choice(5, 2, replace=False)
        models = rng.standard_normal((2, 3))
        replies = [reply(int(k), list(w)) for k, w in zip(cohort, models, strict=True)]
        method.aggregate(replies, None)
        displacements[cohort] += models - theta
        theta = models.mean(0) + displacements.mean(0)
        assert np.allclose(method.state.models["model"].numpy(), theta, atol=1e-5)


def test_h_is_the_mean_of_g_over_all_clients(open_run):
    """g is 0 for clients that have not trained."""
    run = open_run("method=feddyn", "partition=dirichlet", "federation.clients_per_round=3")
    for _ in range(3):
        run.method.aggregate(train_cohort(run), run.context("train"))
        run.round += 1
    gradients = [run.pool.state(k)["g"] for k in run.pool.states]
    assert 3 <= len(gradients) <= 8
    assert torch.allclose(run.method.state.h, torch.stack(gradients).sum(0) / 8, atol=1e-6)


@pytest.mark.parametrize(("clip_norm", "clips"), [(0.0, False), (0.1, True), (10.0, False)])
def test_one_local_step(make_client, make_ctx, initial_vector, clip_norm, clips):
    """One batch of all 40 samples. The mean size is 80, so alpha_k = 2 alpha.

    With s = -g/alpha the new weights are
    theta - lr (clip(grad f + alpha_k (s - theta)) + (alpha_k + weight_decay) theta),
    and g changes by -alpha (w - theta).
    """
    alpha, lr, decay = 0.5, 0.02, 0.01
    ctx = make_ctx(batch_size=40, lr=lr, momentum=0.0, weight_decay=decay, clip_norm=clip_norm)
    g = 0.01 * torch.randn(ctx.spec.num_trainable, generator=torch.Generator().manual_seed(0))
    client, method = make_client(state={"g": g}), FedDyn(FedDynParams(alpha=alpha))
    sent = run_local_update(method, client, initial_vector, ctx, {"mean_samples": 80.0})
    found = sent.models["model"][: ctx.spec.num_trainable]

    reference: FlatModel = make_client().load_model(initial_vector).train()
    batch = first_batch(make_client(), 40, ctx.generator("batches", 0))
    cross_entropy(reference(batch.x), batch.y).backward()
    theta = initial_vector[: ctx.spec.num_trainable]
    clipped = reference.grad + 2 * alpha * (-g / alpha - theta)
    assert (clip_norm > 0 and clipped.norm() > clip_norm) == clips
    if clips:
        clipped = clipped * clip_norm / clipped.norm()
    expected = theta - lr * (clipped + (2 * alpha + decay) * theta)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(client.state["g"], g - alpha * (found - theta), atol=1e-7)


def test_g_starts_from_zero(make_client, make_ctx, initial_vector):
    ctx, shared, method = make_ctx(), {"mean_samples": 40.0}, FedDyn(FedDynParams())
    new, explicit = make_client(), make_client(state={"g": torch.zeros(ctx.spec.num_trainable)})
    first, second = (
        run_local_update(method, client, initial_vector, ctx, shared) for client in (new, explicit)
    )
    assert torch.equal(first.models["model"], second.models["model"])
    assert torch.equal(new.state["g"], explicit.state["g"])


def test_learns_digits(run_small):
    published = "train.lr=0.1 train.lr_decay=0.998 train.momentum=0.0 train.clip_norm=10.0".split()
    record = run_small("method=feddyn", "noise=none", *published)
    assert record["status"] == "done"
    assert record["summary"]["final"] > 0.7
