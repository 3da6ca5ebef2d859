"""RoFL: centroids by hand, small-loss counts, when labels may be replaced."""

import math

import numpy as np
import pytest
import torch

from methods.core import training
from methods.core.contract import Payload, Reply
from methods.core.flat_model import FlatModel
from methods.fedavg import FedAvg
from methods.rofl import RoFL, RoFLParams, class_means, follow, merge, nearest


def visit(client, ctx, vector, centroids=None, **params):
    shared = {"centroids": torch.zeros(10, 64) if centroids is None else centroids}
    return RoFL(RoFLParams(**params)).local_update(client, Payload({"model": vector}, shared), ctx)


def test_class_means():
    """Class 0 has (1, 0) and (3, 2), class 2 has (5, 5), class 1 nothing."""
    means = class_means(
        torch.tensor([[1.0, 0.0], [5.0, 5.0], [3.0, 2.0]]), torch.tensor([0, 2, 0]), 3
    )
    assert torch.equal(means, torch.tensor([[2.0, 1.0], [0.0, 0.0], [5.0, 5.0]]))


def test_client_centroids_follow_batch_means():
    """cos((1,0), (1,1))^2 = 1/2, so (1,0) goes half of the way; an absent class (mean 0) stays; right angles stay; without a centroid: the mean.

    The cosine is squared, so a batch mean that points the other way is taken whole.
    """
    centroids = torch.tensor(
        [[1.0, 0.0], [1.0, 2.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]
    )
    means = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 7.0], [3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]])
    expected = torch.tensor(
        [[1.0, 0.5], [1.0, 2.0], [1.0, 0.0], [3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]]
    )
    assert torch.allclose(follow(centroids, means), expected)


def test_server_centroids_are_weighted_by_cosine():
    """Cosines with (1,0) are 1, 0 and r = 1/sqrt(2): ((2 + r) / (1 + r), r / (1 + r)) = (1.5858, 0.4142)."""
    merged = merge(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]], [[1.0, 1.0]]])
    )
    r = 1 / math.sqrt(2)
    assert torch.allclose(merged, torch.tensor([[(2 + r) / (1 + r), r / (1 + r)]]))


def test_server_centroids_start_as_plain_mean_of_those_who_have_one():
    merged = merge(
        torch.zeros(2, 2),
        torch.tensor(
            [[[2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[4.0, 2.0], [0.0, 0.0]]]
        ),
    )
    assert torch.equal(merged, torch.tensor([[3.0, 1.0], [0.0, 0.0]]))


@pytest.mark.parametrize("replies", [[[[1.0, 0.0]], [[-1.0, 0.0]]], [[[0.0, 5.0]], [[0.0, 0.0]]]])
def test_server_centroid_stays_where_weights_cancel(replies):
    current = torch.tensor([[1.0, 0.0]])
    assert torch.equal(merge(current, torch.tensor(replies)), current)


def test_nearest_centroid_is_by_angle():
    """(3, 1) is nearer in angle to (1, 0) although (3, 3) is the closer point; a missing centroid has cosine 0."""
    assert nearest(
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 3.0]]), torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    ).tolist() == [1, 2]


@pytest.mark.parametrize(("round", "chosen"), [(0, 40), (1, 36), (2, 32), (3, 32)])
def test_forget_counts(make_client, make_ctx, initial_vector, round, chosen):
    """tau = 0.2 over 3 of 8 rounds is 0, 0.1, 0.2, then 0.2: of each batch of 10 remain 10, 9, 8, 8; and there are 4 batches."""
    client = make_client(num_samples=40)
    visit(client, make_ctx(round=round), initial_vector, ramp_rounds=3 / 8)
    assert int(client.state["chosen"].sum()) == chosen


def test_labels_are_kept_before_the_start(make_client, make_ctx, initial_vector):
    """T_pl is half of 8 rounds: in round 3 every target is the given label."""
    client = make_client()
    visit(client, make_ctx(round=3), initial_vector, pseudo_label_start=0.5)
    assert torch.equal(client.state["targets"], client.given)


def test_from_the_start_on_inconsistent_samples_take_the_global_models_label(
    make_client, make_ctx, initial_vector
):
    client = make_client()
    (probabilities,) = training.probabilities(client, client.network(initial_vector))
    visit(client, make_ctx(round=4, local_epochs=4, lr=0.1), initial_vector, pseudo_label_start=0.5)
    targets, chosen = client.state["targets"], client.state["chosen"]
    changed = targets != client.given
    assert changed.any()
    assert torch.equal(
        targets[changed], probabilities.argmax(1)[changed]
    )  # digits are not augmented, so both views are the same
    assert not (
        changed & ~chosen
    ).any()  # also for a sample that was changed in one epoch and left out in the last
    assert client.labels is client.given


def test_consistent_samples_keep_their_label(make_client, make_ctx, initial_vector):
    """All features point to the centroid of class 4, the only one there is: those labelled 4 are consistent and keep it."""
    client = make_client(labels=[4, 4, 4, 4, 5, 5, 5, 5])
    centroids = torch.zeros(10, 64)
    centroids[4] = 1.0
    visit(
        client,
        make_ctx(round=7, batch_size=8, lr=1e-9),
        initial_vector,
        centroids,
        forget_rate=0.0,
        pseudo_label_start=0.5,
    )
    guess = training.probabilities(client, client.network(initial_vector))[0].argmax(1)
    assert torch.equal(client.state["targets"], torch.where(client.given == 4, 4, guess))


def test_centroid_term_is_without_effect_while_detached(make_client, make_ctx, initial_vector):
    """With a gradient it acts, but not in round 0, where its ramp is 0."""
    centroids = torch.rand(10, 64, generator=torch.Generator().manual_seed(0))

    def weights(round, **params):
        return visit(
            make_client(), make_ctx(round=round), initial_vector, centroids, **params
        ).models["model"]

    assert torch.equal(weights(6, lambda_cen=0.0), weights(6, lambda_cen=9.0))
    assert torch.equal(weights(6, lambda_cen=0.0, detach=False), weights(6, lambda_cen=9.0))
    assert not torch.equal(weights(6, lambda_cen=1.0, detach=False), weights(6, lambda_cen=1.0))
    assert torch.equal(
        weights(0, lambda_cen=1.0, detach=False, pseudo_label_start=0.5),
        weights(0, lambda_cen=1.0, pseudo_label_start=0.5),
    )


def test_entropy_term_makes_predictions_decided(make_client, make_ctx, initial_vector):
    entropies = []
    for lambda_e in (0.0, 0.8):
        client = make_client()
        reply = visit(
            client,
            make_ctx(local_epochs=5, lr=0.05),
            initial_vector,
            lambda_e=lambda_e,
            pseudo_label_start=1.0,
        )
        (p,) = training.probabilities(client, client.network(reply.models["model"]))
        entropies.append(float(-(p * p.log()).sum(1).mean()))
    assert entropies[1] < entropies[0]


def test_equals_fedavg_locally_without_its_terms(make_client, make_ctx, initial_vector):
    """Nothing forgotten, no entropy term, no correction: the same loss, summed in another order."""
    ctx = make_ctx(lr=0.05)
    plain = FedAvg(None).local_update(make_client(), Payload({"model": initial_vector}, {}), ctx)
    reply = visit(
        make_client(), ctx, initial_vector, forget_rate=0.0, lambda_e=0.0, pseudo_label_start=1.0
    )
    assert torch.allclose(reply.models["model"], plain.models["model"], atol=1e-6)
    assert not torch.allclose(reply.models["model"], initial_vector, atol=1e-3)


def test_first_round_takes_the_global_models_class_means(make_client, make_ctx, initial_vector):
    """With a vanishing step the features stay, so the one batch's mean equals the centroid and nothing moves."""
    client = make_client(labels=[3, 3, 7, 7, 7])
    net: FlatModel = client.network(initial_vector).eval()
    (features,) = training.map_client_samples(client, [net.features])
    reply = visit(client, make_ctx(round=0, batch_size=5, lr=1e-9), initial_vector)
    centroids = reply.values["centroids"]
    assert torch.allclose(centroids[3], features[:2].mean(0), atol=1e-6)
    assert torch.allclose(centroids[7], features[2:].mean(0), atol=1e-6)
    assert centroids.any(1).nonzero()[:, 0].tolist() == [3, 7]


def test_models_are_averaged_plainly():
    replies = [Reply(k, n, {}, {}) for k, n in enumerate((1, 10, 100, 1000))]
    assert np.array_equal(RoFL(RoFLParams()).weights(replies), np.full(4, 0.25))


def test_view_of_the_pseudo_label_pass(make_client, make_ctx, initial_vector, monkeypatch):
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
        visit(make_client(), make_ctx(round=0), initial_vector, pseudo_label_view=view)
    visit(
        make_client(), make_ctx(round=1), initial_vector, pseudo_label_start=0.5
    )  # neither centroids nor labels needed: no pass
    assert views == ["train", "plain"]


@pytest.mark.parametrize("labels", [[3], [3, 3], [5] * 11])
@pytest.mark.parametrize("round", [0, 7])
def test_tiny_clients(make_client, make_ctx, initial_vector, labels, round):
    client = make_client(labels=labels)
    reply = visit(client, make_ctx(round=round), initial_vector)
    assert (
        torch.isfinite(reply.models["model"]).all()
        and torch.isfinite(reply.values["centroids"]).all()
    )
    assert client.state["chosen"].any()


def test_rounds_on_digits(open_run):
    run = open_run("method=rofl", "noise.rho=0.6", "noise.tau=0.5")
    method, fleet = run.method, run.fleet
    ids = []
    for _ in range(2):
        ctx = run.context(method.stage(run.round))
        cohort = method.select(fleet, ctx)
        method.aggregate(
            fleet.ask(cohort, method.local_update, method.payload, ctx, participation=True), ctx
        )
        ids += cohort
        run.round += 1
    assert method.shared["centroids"].shape == (10, 64) and method.shared["centroids"].any(1).all()
    diagnosis = method.diagnosis(fleet)
    assert set(diagnosis.noisy_samples) == set(diagnosis.labels) == set(ids)
    assert all(len(diagnosis.labels[k]) == fleet.sizes[k] for k in ids)
    for k in cohort:  # of the second round, in which a fifth of each batch is left out
        assert 0.19 < diagnosis.noisy_samples[k].mean() < 0.25
    assert not fleet.changed_labels


@pytest.mark.parametrize(
    "params",
    [
        {"forget_rate": 1.0},
        {"ramp_rounds": 2.0},
        {"pseudo_label_start": -0.1},
        {"lambda_e": -1.0},
        {"pseudo_label_view": "strong"},
    ],
)
def test_illegal_parameters(params):
    with pytest.raises(
        ValueError, match=rf"^method\.{next(iter(params))}=.* is not legal; legal: .*$"
    ):
        RoFLParams(**params)


@pytest.mark.parametrize(
    ("dataset", "ramp", "start"),
    [("cifar10", 10, 100), ("cifar100", 10, 400), ("clothing1m", 10, 10)],
)
def test_published_rounds(configure, dataset, ramp, start):
    """FedCorr, appendix B: T_pl is 100, 400 and 10; RoFL's T_k is 10. 1,000, 1,000 and 200 rounds."""
    config = configure("method=rofl", f"dataset={dataset}", "scale=paper")
    rounds = config.budget.participations // config.federation.clients_per_round
    assert round(config.method.params.ramp_rounds * rounds) == ramp
    assert round(config.method.params.pseudo_label_start * rounds) == start
