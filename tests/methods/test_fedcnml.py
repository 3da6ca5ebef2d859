"""Fed-CNML: scores, divergences, losses and local updates against values derived by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from method_helpers import make_task, run_local_update
from torch import nn

from methods.core.flat_model import FlatModel
from methods.fedcnml.method import FedCNML
from methods.fedcnml.params import FedCNMLParams
from methods.fedcnml.scoring import (
    count_neighbors,
    divergence_cutoff,
    jensen_shannon,
    sample_weights,
    select_clean_clients,
    triplet,
)
from methods.toolkit.losses import cross_entropy

SCORES = np.array([[np.nan, 0.6, 0.3], [0.8, np.nan, 0.2], [0.7, 0.5, np.nan]])  # [client, model]

# Divergences and cutoffs


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (1.0, 0.0), (0.9, 0.0519), (0.7, 0.1692), (0.5, 0.3113),
        (0.3, 0.4934), (0.1, 0.7583), (0.01, 0.9595), (0.0, 1.0),
    ],
)  # fmt: skip
def test_divergence_values(a, expected):
    assert jensen_shannon(torch.tensor([a])).item() == pytest.approx(expected, abs=5e-5)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12), st.integers(0, 11))
def test_divergence_equals_definition(masses, label):
    """JSD(y, p) = KL(y | m) / 2 + KL(p | m) / 2 with m = (y + p) / 2, base 2."""
    p, label = np.array(masses) / np.sum(masses), label % len(masses)
    m = (np.eye(len(p))[label] + p) / 2
    expected = 0.5 * np.log2(1 / m[label]) + 0.5 * np.sum(p * np.log2(p / m))
    assert jensen_shannon(torch.tensor([p[label]])).item() == pytest.approx(expected, abs=1e-9)


def test_cutoff():
    """The mean below J_u = 0.7. Above: 0.8 - (0.8 - 0.1) / 5 = 0.66 and 0.7 - 0.5 / 5 = 0.6."""
    means, minima = np.array([0.69, 0.8, 0.7]), np.array([0.0, 0.1, 0.2])
    cutoffs = divergence_cutoff(means, minima, tau2=5.0, limit=0.7)
    assert cutoffs == pytest.approx([0.69, 0.66, 0.6])


# Clean clients


@pytest.mark.parametrize(
    ("tau1", "threshold", "eta"),
    [(1.0, 3.1 / 6, [2, 1, 0]), (2.0, 0.8 - (0.8 - 3.1 / 6) / 2, [2, 0, 0]), (1e9, 0.8, [1, 0, 0])],
)
def test_threshold_and_neighbors(tau1, threshold, eta):
    """Off the diagonal, the maximum is 0.8 and the mean 3.1 / 6."""
    found_threshold, found_eta = count_neighbors(SCORES, tau1)
    assert found_threshold == pytest.approx(threshold)
    assert found_eta.tolist() == eta


@pytest.mark.parametrize("diagonal", [0.0, 1.0])
def test_diagonal_is_ignored(diagonal):
    scores = SCORES.copy()
    np.fill_diagonal(scores, diagonal)
    assert count_neighbors(scores, 2.0)[0] == count_neighbors(SCORES, 2.0)[0]
    assert count_neighbors(scores, 2.0)[1].tolist() == [2, 0, 0]


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1.0])
def test_equal_scores_make_all_clients_clean(value):
    _, eta = count_neighbors(np.full((7, 7), value), 2.0)
    assert eta.tolist() == [6] * 7
    clean = select_clean_clients(eta, np.full(7, value), mu2=1, least=3)
    assert clean.tolist() == list(range(7))


@pytest.mark.parametrize(
    ("eta", "received", "mu2", "least", "expected"),
    [
        ([3, 0, 1, 1, 4], [0.1, 0.9, 0.2, 0.3, 0.1], 0, 1, [0, 2, 3, 4]),
        ([3, 0, 1, 1, 4], [0.1, 0.9, 0.2, 0.3, 0.1], 1, 1, [0, 4]),
        ([3, 0, 1, 1, 4], [0.1, 0.9, 0.2, 0.3, 0.1], 1, 3, [0, 3, 4]),  # 3 received more than 2
        ([0] * 5, [0.1, 0.9, 0.2, 0.3, 0.1], 1, 2, [1, 3]),
        ([0] * 5, [0.0] * 5, 1, 2, [0, 1]),
    ],
)
def test_select_clean_clients(eta, received, mu2, least, expected):
    clean = select_clean_clients(np.array(eta), np.array(received), mu2, least)
    assert clean.tolist() == expected


# Losses


def test_triplet_by_hand():
    """|Y - own|^2 - |Y - other|^2 = 9 - 1 = 8 with gradient 2 (other - own) = (8, 0).

    The second row is closer to its own model: 1 - 9 < 0.
    """
    own, other = torch.zeros(2, 2), torch.tensor([[4.0, 0.0], [4.0, 0.0]])
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0]], requires_grad=True)
    hinge = triplet(logits, own, other, margin=0.0)
    assert hinge.tolist() == [8.0, 0.0]
    hinge.sum().backward()
    assert logits.grad.tolist() == [[8.0, 0.0], [0.0, 0.0]]
    assert triplet(logits, own, other, margin=10.0).tolist() == [18.0, 2.0]


def test_sample_weights():
    """Losses 1, 2, 3 (clean) and 10 (noisy): 2 + 10 = 12 as two means, 16 / 4 = 4 as one."""
    losses, noisy = torch.tensor([1.0, 2.0, 10.0, 3.0]), torch.tensor([[False, False, True, False]])
    assert (sample_weights(noisy, 4, "subsets") * losses).sum().item() == pytest.approx(12)
    assert (sample_weights(noisy, 4, "batch") * losses).sum().item() == pytest.approx(4)
    for single in (torch.zeros_like(noisy), torch.ones_like(noisy)):
        assert (sample_weights(single, 4, "subsets") * losses).sum().item() == pytest.approx(4)


def test_sample_weights_of_an_epoch_are_those_of_its_batches():
    noisy = torch.rand(2, 23, generator=torch.Generator().manual_seed(0)) < 0.3
    for mean_over in ("subsets", "batch"):
        weights = sample_weights(noisy, 10, mean_over).split(10, 1)
        for found, batch in zip(weights, noisy.split(10, 1), strict=True):
            assert torch.equal(found, sample_weights(batch, batch.shape[1], mean_over))


# Local updates


@pytest.fixture
def vectors(open_run):
    """Two models with different weights."""
    pool = open_run("method=fedcnml").pool
    return {"a": pool.initial_weights(0), "b": pool.initial_weights(1)}


@pytest.fixture
def ctx(make_ctx):
    return make_ctx(1, "federation")


def measure(method, client, ctx, vectors):
    """The reply to the query that precedes a local update."""
    return method.measure(make_task(client, vectors, ctx, {"trains": True}))


def update(method, client, ctx, *cutoffs):
    """A local update of the federation stage. `measure` has sent the models."""
    return run_local_update(method, client, {}, ctx, {"cutoffs": np.array(cutoffs)})


@pytest.mark.parametrize("labels", [None, [3], [3, 3, 3], list(range(10)) * 2])
def test_measured_divergences(make_client, ctx, vectors, labels):
    client, method = make_client(labels), FedCNML(FedCNMLParams())
    reply = measure(method, client, ctx, vectors)
    x = client.images(torch.arange(client.num_samples))
    for i, vector in enumerate(vectors.values()):
        with torch.no_grad():
            p = client.load_model(vector).eval()(x).softmax(1)
        divergences = jensen_shannon(p[torch.arange(client.num_samples), client.labels])
        assert reply.values["sums"][i] == pytest.approx(divergences.sum().item(), rel=1e-5)
        assert reply.values["minima"][i] == pytest.approx(divergences.min().item(), rel=1e-5)
    trained = update(method, client, ctx, *reply.values["sums"] / client.num_samples)
    assert all(torch.isfinite(vector).all() for vector in trained.models.values())
    assert set(client.state) == {"noisy"}


def test_models_select_for_each_other(make_client, ctx, vectors):
    """Sample 0 is noisy for a, sample 1 for b. Model a is trained with the selection of b."""
    client, method = make_client([1, 2]), FedCNML(FedCNMLParams())
    measure(method, client, ctx, vectors)
    client.state["divergences"] = np.array([[0.9, 0.1], [0.1, 0.9]])
    update(method, client, ctx, 0.5, 0.5)
    assert client.state["noisy"].tolist() == [False, True]


def test_tie_at_cutoff_is_clean(make_client, ctx, vectors):
    client, method = make_client([4] * 7), FedCNML(FedCNMLParams())
    measure(method, client, ctx, vectors)
    client.state["divergences"] = np.full((2, 7), 0.1)
    update(method, client, ctx, *[sum([0.1] * 7) / 7] * 2)
    assert not client.state["noisy"].any()


@pytest.mark.parametrize("mean_over", ["subsets", "batch"])
def test_without_noisy_samples_it_is_cross_entropy(make_client, make_ctx, vectors, mean_over):
    """The local update equals one of the warm-up in the same round."""
    method = FedCNML(FedCNMLParams(view="train", mean_over=mean_over))
    client, ctx = make_client(), make_ctx(1, "federation")
    measure(method, client, ctx, vectors)
    reply = update(method, client, ctx, 2.0, 2.0)
    warmup = run_local_update(method, make_client(), vectors, make_ctx(1, "warmup"))
    assert reply.values == {"judged": 0, "active": 0}
    for name, vector in vectors.items():
        assert torch.allclose(reply.models[name], warmup.models[name], atol=1e-6)
        assert not torch.equal(reply.models[name], vector)


def test_noisy_samples_do_not_use_given_labels(make_client, ctx, vectors):
    """Two clients with the same images and different labels train the same models."""
    method = FedCNML(FedCNMLParams(view="train"))
    replies = []
    for labels in (list(range(10)), list(range(10))[::-1]):
        client = make_client(labels)
        measure(method, client, ctx, vectors)
        replies.append(update(method, client, ctx, -1.0, -1.0))
        assert client.state["noisy"].all()
        assert replies[-1].values["judged"] == 20
    assert torch.equal(replies[0].models["a"], replies[1].models["a"])


def test_pseudo_labels_are_sharpened_mean(make_client, ctx, vectors):
    """p^(1/T) / sum with T = 0.5, where p is the mean probability of both models."""
    client = make_client()
    measure(FedCNML(FedCNMLParams()), client, ctx, vectors)
    with torch.no_grad():
        x = client.images(torch.arange(client.num_samples))
        mean = (
            sum(client.load_model(vector).eval()(x).softmax(1) for vector in vectors.values()) / 2
        )
    expected = mean**2 / (mean**2).sum(1, keepdim=True)
    assert torch.allclose(client.state["pseudo"], expected, atol=1e-6)


@pytest.mark.parametrize(("margin", "fraction_active"), [(0.0, 0.0), (1e3, 1.0)])
def test_triplet_loss_is_zero_without_drift(
    make_client, make_ctx, vectors, margin, fraction_active
):
    """At the first step Y = Y_own, so the hinge is max(0, margin - |Y_own - Y_other|^2).

    The learning rate is too small to move the models.
    """
    client, ctx = make_client(), make_ctx(1, "federation", lr=1e-30)
    method = FedCNML(FedCNMLParams(margin=margin))
    measure(method, client, ctx, vectors)
    values = update(method, client, ctx, -1.0, -1.0).values
    assert values["active"] / values["judged"] == fraction_active


def test_warmup_trains_models_independently(make_client, make_ctx, vectors):
    method, ctx = FedCNML(FedCNMLParams()), make_ctx(1, "warmup")
    both = run_local_update(method, make_client(), vectors, ctx).models["b"]
    alone = run_local_update(method, make_client(), {"b": vectors["b"]}, ctx).models["b"]
    assert torch.equal(both, alone)
    client = make_client()
    x = client.images(torch.arange(40))
    before, after = (
        cross_entropy(client.load_model(vector)(x), client.labels).item()
        for vector in (vectors["b"], both)
    )
    assert after < before


def test_prediction_averages_probabilities():
    """(0.9, 0.1) and (0.2, 0.8) have the mean (0.55, 0.45). The mean logits favor class 1."""
    models = {
        name: FlatModel(nn.Linear(1, 2)).load(torch.cat([torch.zeros(2), torch.tensor(p).log()]))
        for name, p in (("a", [0.9, 0.1]), ("b", [0.2, 0.8]))
    }
    mean = FedCNML(FedCNMLParams()).predict(models, torch.zeros(1, 1))
    assert torch.allclose(mean, torch.tensor([[0.55, 0.45]]))
