"""ARFL as a method. Its aggregation function is tested in test_aggregators.py."""

import numpy as np
import pytest
import torch
from method_helpers import run_local_update, train_cohort

from methods.arfl import ARFL, ARFLParams
from methods.core.contract import DivergenceError
from methods.toolkit.aggregation import residual_reweighting


class NanARFL(ARFL):
    """ARFL with a client 3 that returns NaN."""

    def local_update(self, task):
        reply = super().local_update(task)
        if task.client.id == 3:
            reply.models["model"][5] = float("nan")
        return reply


def test_aggregation_is_independent_of_sizes_and_keeps_its_input(open_run):
    method = open_run("method=arfl").method
    matrix = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    before = matrix.clone()
    first = method.aggregate_models(matrix, np.array([0.96, 0.01, 0.01, 0.01, 0.01]))
    assert torch.equal(first, method.aggregate_models(matrix, np.full(5, 0.2)))
    assert torch.equal(matrix, before)


def test_model_with_nan_is_skipped(open_run):
    run = open_run("method=arfl", "federation.clients_per_round=8")
    run.executor.context.method = NanARFL(run.method.params)
    replies = train_cohort(run)
    assert [reply.client_id for reply in replies] == [0, 1, 2, 4, 5, 6, 7]
    run.method.aggregate(replies, run.context("train"))
    assert run.pool.meter.dropped_models == 1
    assert torch.isfinite(run.method.state.models["model"]).all()


def test_rounds_without_finite_models_keep_the_global_model(open_run):
    run = open_run("method=arfl", "train.lr=1e30", "budget.participations=8")
    with pytest.raises(DivergenceError, match="all 8 client models"):
        run.run()
    assert run.pool.meter.dropped_models == run.pool.meter.participations == 8
    assert torch.equal(run.method.state.models["model"], run.pool.initial_weights())


def test_noisy_minority_gets_smaller_weights(make_client, make_ctx, initial_vector):
    """Two of six clients have random labels."""
    rng, models = np.random.default_rng(0), []
    for k in range(6):
        labels = rng.integers(0, 10, 200) if k < 2 else None
        client = make_client(num_samples=200, client_id=k, labels=labels)
        ctx = make_ctx(local_epochs=3, lr=0.05)
        reply = run_local_update(ARFL(ARFLParams()), client, initial_vector, ctx)
        models.append(reply.models["model"])
    _, weights = residual_reweighting(torch.stack(models), 2.0, 0.1, 10**9)
    assert weights[:2].max() < weights[2:].min()
