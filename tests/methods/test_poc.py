"""Power-of-choice: candidates, selection, queries and weights."""

import numpy as np
import pytest
import torch
from method_helpers import make_task

from methods.core.errors import UserError
from methods.core.task import TaskSpec
from methods.poc import PoC, PoCParams, largest_loss_indices
from methods.toolkit.losses import cross_entropy


def losses_of_all(run) -> np.ndarray:
    """Loss of each client under the global model, computed without client tasks."""
    model = run.executor.context.acquire_model().load(run.method.state.models["model"]).eval()
    losses = []
    for k, part in enumerate(run.scenario.client_indices):
        images = run.dataset.views(run.dataset.train.fetch(torch.from_numpy(part)), "plain", None)
        with torch.no_grad():
            losses.append(float(cross_entropy(model(images), run.pool.labels(k))))
    return np.array(losses)


def select(run):
    return run.method.select_clients(run.pool, run.context("train"))


def test_fewer_candidates_than_clients_per_round():
    spec = TaskSpec("none", (1, 1, 1), 2, 20, 5, 100, 1, 1)
    PoC(PoCParams(d=5)).validate(spec)
    message = "^invalid method.d=4: expected at least federation.clients_per_round=5$"
    with pytest.raises(UserError, match=message):
        PoC(PoCParams(d=4)).validate(spec)


def test_largest_losses_by_hand():
    losses = np.array([0.5, 2.0, 1.0, 3.0])
    assert largest_loss_indices(losses, 3, np.random.default_rng(0)).tolist() == [3, 1, 2]


def test_ties_are_broken_at_random():
    losses = np.array([1.0, 1.0, 0.0, 1.0])
    first = {largest_loss_indices(losses, 1, np.random.default_rng(s))[0] for s in range(20)}
    assert first == {0, 1, 3}


@pytest.mark.parametrize("d", [8, 30])
def test_all_clients_as_candidates(open_run, d):
    """d = N, and d > N, which means N. The clients with the largest losses are selected."""
    run = open_run("method=poc", f"method.d={d}", "federation.clients_per_round=3")
    losses = losses_of_all(run)
    assert len(set(losses)) == 8
    assert select(run) == sorted(np.argsort(-losses)[:3].tolist())
    meter = run.pool.meter
    assert (meter.queries, meter.participations) == (8, 0)
    assert (meter.models_down, meter.models_up) == (8, 0)
    assert meter.samples_scored == run.pool.client_sizes.sum()


def test_cohort_has_the_largest_losses_of_the_candidates(open_run):
    """Two of four candidates are selected, so at least two clients have a smaller loss."""
    run = open_run("method=poc", "method.d=4", "federation.clients_per_round=2")
    losses = losses_of_all(run)
    cohorts = set()
    for run.round in range(12):
        cohort = select(run)
        cohorts.add(tuple(cohort))
        assert len(set(cohort)) == 2
        assert (losses < losses[cohort].min()).sum() >= 2
    assert len(cohorts) > 3
    assert run.pool.meter.queries == 12 * 4


def test_candidates_are_sampled_by_size(open_run):
    """With d = 1, the probability of a client is its fraction of all samples.

    Chi-squared test with 7 degrees of freedom. Equal probabilities are rejected.
    """
    run = open_run(
        "method=poc",
        "method.d=1",
        "federation.clients_per_round=1",
        "partition=dirichlet",
        "partition.alpha=0.3",
    )
    counts = np.zeros(8)
    for run.round in range(160):
        counts[select(run)] += 1
    expected = 160 * run.pool.client_sizes / run.pool.client_sizes.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 24.3
    assert ((counts - 20) ** 2 / 20).sum() > 24.3


def test_local_loss_is_the_mean_over_all_samples(make_client, make_ctx, initial_vector):
    """A model of zeros predicts all classes with equal probability, so the loss is log 10."""
    client = make_client(num_samples=37)
    task = make_task(client, torch.zeros_like(initial_vector), make_ctx())
    reply = PoC(PoCParams()).local_loss(task)
    assert reply.values["loss"] == pytest.approx(np.log(10))
    assert not reply.models


@pytest.mark.parametrize(
    ("weighting", "expected"), [("plain", [0.5, 0.5]), ("samples", [0.25, 0.75])]
)
def test_aggregation_weights(make_client, weighting, expected):
    replies = [make_client(num_samples=n).reply({}) for n in (10, 30)]
    method = PoC(PoCParams(weighting=weighting))
    assert method.aggregation_weights(replies).tolist() == expected


def test_queries_are_not_participations(run_small):
    record = run_small("method=poc", "method.d=6", "budget.participations=8")
    cost = record["cost"]
    assert record["status"] == "done"
    assert (cost["participations"], cost["queries"], cost["models_up"]) == (8, 2 * 6, 8)
