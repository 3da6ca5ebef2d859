"""Power-of-choice: who is asked, who is chosen, how the chosen are averaged."""

import numpy as np
import pytest
import torch

from methods.core.contract import Payload, TaskSpec
from methods.poc import PoC, PoCParams
from methods.toolkit.losses import cross_entropy


def losses_of_all(run) -> np.ndarray:
    """Loss of every client under the current global model, computed without the fleet."""
    network = run.executor._workshop.lend().load(run.method.models["model"]).eval()
    losses = []
    for k, part in enumerate(run.scenario.client_indices):
        images = run.dataset.views(run.dataset.train.fetch(torch.from_numpy(part)), "plain", None)
        with torch.no_grad():
            losses.append(float(cross_entropy(network(images), run.fleet.given(k))))
    return np.array(losses)


@pytest.mark.parametrize(("name", "value"), [("d", 0), ("weighting", "size")])
def test_illegal_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"method.{name}={value!r} is not legal; legal: "):
        PoCParams(**{name: value})


def test_fewer_candidates_than_places_are_refused():
    spec = TaskSpec("none", (1, 1, 1), 2, 20, 5, 100, 1, 1)
    PoC(PoCParams(d=5)).check(spec)
    with pytest.raises(
        ValueError, match=r"method.d=4 is not legal; legal: at least federation.clients_per_round=5"
    ):
        PoC(PoCParams(d=4)).check(spec)


@pytest.mark.parametrize("d", [8, 30])
def test_all_clients_asked_the_largest_losses_train(open_run, d):
    """d = N, and d above N, which is taken for N."""
    run = open_run("method=poc", f"method.d={d}", "federation.clients_per_round=3")
    losses = losses_of_all(run)
    assert len(set(losses)) == 8
    assert run.method.select(run.fleet, run.context("train")) == sorted(
        np.argsort(-losses)[:3].tolist()
    )
    meter = run.fleet.meter
    assert (meter.contacts, meter.participations, meter.models_down, meter.models_up) == (
        8,
        0,
        8,
        0,
    )
    assert meter.samples_scored == run.fleet.sizes.sum()


def test_the_chosen_are_the_largest_of_the_candidates(open_run):
    """With d = 4 of 8 the two chosen are the largest of some four: at least two clients have a smaller loss."""
    run = open_run("method=poc", "method.d=4", "federation.clients_per_round=2")
    losses = losses_of_all(run)
    cohorts = set()
    for run.round in range(12):
        chosen = run.method.select(run.fleet, run.context("train"))
        cohorts.add(tuple(chosen))
        assert len(set(chosen)) == 2
        assert (losses < losses[chosen].min()).sum() >= 2
    assert len(cohorts) > 3
    assert run.fleet.meter.contacts == 12 * 4


def test_candidates_are_drawn_by_size(open_run):
    """With d = m = 1 a client trains with the probability of its share of the samples: chi-squared of 7 degrees of freedom, far larger for equal shares."""
    run = open_run(
        "method=poc",
        "method.d=1",
        "federation.clients_per_round=1",
        "partition=dirichlet",
        "partition.alpha=0.3",
    )
    draws = np.zeros(8)
    for run.round in range(160):
        draws[run.method.select(run.fleet, run.context("train"))] += 1
    expected = 160 * run.fleet.sizes / run.fleet.sizes.sum()
    assert ((draws - expected) ** 2 / expected).sum() < 24.3
    assert ((draws - 20) ** 2 / 20).sum() > 24.3


def test_ties_are_broken_at_random(open_run):
    run = open_run("method=poc", "method.d=8", "federation.clients_per_round=1")
    run.method.models["model"] = torch.zeros_like(
        run.method.models["model"]
    )  # every client's loss is log 10
    chosen = {run.method.select(run.fleet, run.context("train"))[0] for run.round in range(20)}
    assert len(chosen) > 3


def test_the_loss_is_the_mean_over_all_samples(make_client, make_ctx, initial_vector):
    """A model of zeros gives every class the same probability: log 10, whatever the labels; no model is sent back."""
    reply = PoC(PoCParams()).local_loss(
        make_client(num_samples=37),
        Payload({"model": torch.zeros_like(initial_vector)}, {}),
        make_ctx(),
    )
    assert reply.values["loss"] == pytest.approx(np.log(10))
    assert not reply.models


@pytest.mark.parametrize(
    ("weighting", "expected"), [("plain", [0.5, 0.5]), ("samples", [0.25, 0.75])]
)
def test_weights(make_client, weighting, expected):
    replies = [make_client(num_samples=n).reply({}) for n in (10, 30)]
    assert PoC(PoCParams(weighting=weighting)).weights(replies).tolist() == expected


def test_contacts_are_not_participations(run_small):
    record = run_small("method=poc", "method.d=6", "budget.participations=8")
    cost = record["cost"]
    assert record["status"] == "done"
    assert (cost["participations"], cost["contacts"], cost["models_up"]) == (8, 2 * 6, 8)
