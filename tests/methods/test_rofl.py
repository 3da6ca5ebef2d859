"""RoFL: centroids by hand, sample selection and pseudo-labels."""

import math

import numpy as np
import pytest
import torch
from method_helpers import run_local_update, train_cohort

from methods.core import training
from methods.core.flat_model import FlatModel
from methods.core.task import Reply
from methods.fedavg import FedAvg
from methods.rofl import (
    RoFL,
    RoFLParams,
    aggregate_centroids,
    class_means,
    nearest_class,
    update_local_centroids,
)


def update(client, ctx, vector, centroids=None, **params):
    """Reply of a local update."""
    shared = {"centroids": torch.zeros(10, 64) if centroids is None else centroids}
    return run_local_update(RoFL(RoFLParams(**params)), client, vector, ctx, shared)


def predict(client, vector):
    """Classes that a model predicts for all samples of a client."""
    return training.predict_proba(client, client.load_model(vector))[0].argmax(1)


def test_class_means():
    """Class 0 has (1, 0) and (3, 2), class 2 has (5, 5), class 1 has no samples."""
    features = torch.tensor([[1.0, 0.0], [5.0, 5.0], [3.0, 2.0]])
    means = class_means(features, torch.eye(3)[[0, 2, 0]])
    assert torch.equal(means, torch.tensor([[2.0, 1.0], [0.0, 0.0], [5.0, 5.0]]))


@pytest.mark.parametrize(
    ("centroid", "mean", "expected"),
    [
        ([1.0, 0.0], [1.0, 1.0], [1.0, 0.5]),  # cosine squared 1/2: half of the way
        ([1.0, 2.0], [0.0, 0.0], [1.0, 2.0]),  # no samples in the batch
        ([1.0, 0.0], [0.0, 7.0], [1.0, 0.0]),  # right angle
        ([0.0, 0.0], [3.0, 4.0], [3.0, 4.0]),  # no centroid yet
        ([2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]),  # opposite direction: cosine squared 1
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_update_of_local_centroids(centroid, mean, expected):
    found = update_local_centroids(torch.tensor([centroid]), torch.tensor([mean]))
    assert torch.allclose(found, torch.tensor([expected]))


def test_local_centroids_are_weighted_by_cosine():
    """Cosines with (1, 0) are 1, 0 and r = 1/sqrt(2): ((2 + r) / (1 + r), r / (1 + r))."""
    local = torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]], [[1.0, 1.0]]])
    r = 1 / math.sqrt(2)
    expected = torch.tensor([[(2 + r) / (1 + r), r / (1 + r)]])
    assert torch.allclose(aggregate_centroids(torch.tensor([[1.0, 0.0]]), local), expected)


def test_first_centroid_is_an_unweighted_mean():
    """Clients without a centroid of the class do not count."""
    local = torch.zeros(3, 2, 2)
    local[0, 0], local[2, 0] = torch.tensor([2.0, 0.0]), torch.tensor([4.0, 2.0])
    found = aggregate_centroids(torch.zeros(2, 2), local)
    assert torch.equal(found, torch.tensor([[3.0, 1.0], [0.0, 0.0]]))


@pytest.mark.parametrize("local", [[[[1.0, 0.0]], [[-1.0, 0.0]]], [[[0.0, 5.0]], [[0.0, 0.0]]]])
def test_centroid_is_kept_if_weights_cancel(local):
    current = torch.tensor([[1.0, 0.0]])
    assert torch.equal(aggregate_centroids(current, torch.tensor(local)), current)


def test_nearest_class_is_by_angle():
    """(3, 1) is closer to (3, 3) by distance, but to (1, 0) by angle."""
    centroids = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 3.0]])
    assert nearest_class(centroids, torch.tensor([[3.0, 1.0], [1.0, 1.0]])).tolist() == [1, 2]


@pytest.mark.parametrize(("round", "selected"), [(0, 40), (1, 36), (2, 32), (3, 32)])
def test_number_of_selected_samples(make_client, make_ctx, initial_vector, round, selected):
    """tau = 0.2 over 3 of 8 rounds is 0, 0.1, 0.2, 0.2. There are 4 batches of 10."""
    client = make_client(num_samples=40)
    update(client, make_ctx(round=round), initial_vector, ramp_fraction=3 / 8)
    assert int(client.state["chosen"].sum()) == selected


def test_labels_are_kept_before_the_start(make_client, make_ctx, initial_vector):
    """T_pl is half of 8 rounds."""
    client = make_client()
    update(client, make_ctx(round=3), initial_vector, pseudo_label_start_fraction=0.5)
    assert torch.equal(client.state["targets"], client.given_labels)


def test_inconsistent_samples_get_pseudo_labels(make_client, make_ctx, initial_vector):
    """Digits have no augmentation, so the train view equals the plain view.

    A sample that is not selected in the last epoch has its given label.
    """
    client = make_client()
    predicted = predict(client, initial_vector)
    ctx = make_ctx(round=4, local_epochs=4, lr=0.1)
    update(client, ctx, initial_vector, pseudo_label_start_fraction=0.5)
    targets = client.state["targets"]
    changed = targets != client.given_labels
    assert changed.any()
    assert torch.equal(targets[changed], predicted[changed])
    assert not (changed & ~client.state["chosen"]).any()
    assert client.labels is client.given_labels


def test_consistent_samples_keep_their_label(make_client, make_ctx, initial_vector):
    """Class 4 has the only centroid, so the samples with label 4 are consistent."""
    client = make_client(labels=[4, 4, 4, 4, 5, 5, 5, 5])
    centroids = torch.zeros(10, 64)
    centroids[4] = 1.0
    ctx = make_ctx(round=7, batch_size=8, lr=1e-9)
    update(client, ctx, initial_vector, centroids, forget_rate=0.0, pseudo_label_start_fraction=0.5)
    expected = torch.where(client.given_labels == 4, 4, predict(client, initial_vector))
    assert torch.equal(client.state["targets"], expected)


@pytest.mark.parametrize(
    ("round", "detach", "has_effect"), [(6, True, False), (6, False, True), (0, False, False)]
)
def test_effect_of_the_centroid_term(
    make_client, make_ctx, initial_vector, round, detach, has_effect
):
    """Without gradients the term has no effect. Its weight ramps up from 0 in round 0."""
    centroids = torch.rand(10, 64, generator=torch.Generator().manual_seed(0))
    options = {"detach": detach, "pseudo_label_start_fraction": 0.5}
    zero, positive = (
        update(
            make_client(),
            make_ctx(round=round),
            initial_vector,
            centroids,
            lambda_cen=weight,
            **options,
        )
        for weight in (0.0, 9.0)
    )
    assert torch.equal(zero.models["model"], positive.models["model"]) != has_effect


def test_entropy_term_lowers_the_entropy(make_client, make_ctx, initial_vector):
    entropies = []
    for lambda_e in (0.0, 0.8):
        client, ctx = make_client(), make_ctx(local_epochs=5, lr=0.05)
        reply = update(
            client, ctx, initial_vector, lambda_e=lambda_e, pseudo_label_start_fraction=1.0
        )
        (p,) = training.predict_proba(client, client.load_model(reply.models["model"]))
        entropies.append(float(-(p * p.log()).sum(1).mean()))
    assert entropies[1] < entropies[0]


def test_equals_fedavg_locally_without_its_terms(make_client, make_ctx, initial_vector):
    """The mean over samples has another order, so the results are equal up to rounding."""
    ctx, off = (
        make_ctx(lr=0.05),
        {"forget_rate": 0.0, "lambda_e": 0.0, "pseudo_label_start_fraction": 1.0},
    )
    fedavg = run_local_update(FedAvg(None), make_client(), initial_vector, ctx).models["model"]
    found = update(make_client(), ctx, initial_vector, **off).models["model"]
    assert torch.allclose(found, fedavg, atol=1e-6)
    assert not torch.allclose(found, initial_vector, atol=1e-3)


def test_first_round_uses_class_means_of_the_global_model(make_client, make_ctx, initial_vector):
    """With a tiny learning rate the features are constant, so the batch changes no centroid."""
    client = make_client(labels=[3, 3, 7, 7, 7])
    model: FlatModel = client.load_model(initial_vector).eval()
    (features,) = training.map_client_samples(client, [model.features])
    reply = update(client, make_ctx(round=0, batch_size=5, lr=1e-9), initial_vector)
    centroids = reply.values["centroids"]
    assert torch.allclose(centroids[3], features[:2].mean(0), atol=1e-6)
    assert torch.allclose(centroids[7], features[2:].mean(0), atol=1e-6)
    assert centroids.any(1).nonzero()[:, 0].tolist() == [3, 7]


def test_aggregation_weights_are_uniform():
    replies = [Reply(k, n, {}, {}) for k, n in enumerate((1, 10, 100, 1000))]
    weights = RoFL(RoFLParams()).aggregation_weights(replies)
    assert np.array_equal(weights, np.full(4, 0.25))


def test_view_of_pseudo_labels(make_client, make_ctx, initial_vector, monkeypatch):
    views = []
    map_client_samples = training.map_client_samples
    monkeypatch.setattr(
        training,
        "map_client_samples",
        lambda client, functions, view, generator: (
            views.append(view) or map_client_samples(client, functions, view, generator)
        ),
    )
    for view in ("train", "plain"):
        update(make_client(), make_ctx(round=0), initial_vector, pseudo_label_view=view)
    # Round 1 needs neither centroids nor pseudo-labels.
    update(make_client(), make_ctx(round=1), initial_vector, pseudo_label_start_fraction=0.5)
    assert views == ["train", "plain"]


@pytest.mark.parametrize("labels", [[3], [3, 3], [5] * 11])
@pytest.mark.parametrize("round", [0, 7])
def test_tiny_clients(make_client, make_ctx, initial_vector, labels, round):
    client = make_client(labels=labels)
    reply = update(client, make_ctx(round=round), initial_vector)
    assert torch.isfinite(reply.models["model"]).all()
    assert torch.isfinite(reply.values["centroids"]).all()
    assert client.state["chosen"].any()


def test_two_rounds_on_digits(open_run):
    """A fifth of each batch is dropped in the second round."""
    run = open_run("method=rofl", "noise.rho=0.6", "noise.tau=0.5")
    method, pool = run.method, run.pool
    trained = set()
    for run.round in range(2):
        replies = train_cohort(run)
        method.aggregate(replies, run.context("train"))
        cohort = [reply.client_id for reply in replies]
        trained.update(cohort)
    centroids = method.state.shared["centroids"]
    assert centroids.shape == (10, 64) and centroids.any(1).all()
    diagnosis = method.diagnose(pool)
    assert set(diagnosis.noisy_samples) == set(diagnosis.labels) == trained
    assert all(len(diagnosis.labels[k]) == pool.client_sizes[k] for k in trained)
    assert all(0.19 < diagnosis.noisy_samples[k].mean() < 0.25 for k in cohort)
    assert not pool.relabeled


@pytest.mark.parametrize(
    ("dataset", "ramp", "start"),
    [("cifar10", 10, 100), ("cifar100", 10, 400), ("clothing1m", 10, 10)],
)
def test_published_rounds(configure, dataset, ramp, start):
    """T_pl of FedCorr, appendix B, and T_k of RoFL, in 1,000, 1,000 and 200 rounds."""
    config = configure("method=rofl", f"dataset={dataset}", "scale=paper")
    rounds = config.budget.participations // config.federation.clients_per_round
    assert round(config.method.params.ramp_fraction * rounds) == ramp
    assert round(config.method.params.pseudo_label_start_fraction * rounds) == start
