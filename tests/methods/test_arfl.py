"""ARFL as a method: its aggregation is tested in test_aggregators.py."""

import numpy as np
import pytest
import torch

from methods.arfl import ARFL, ARFLParams


class Broken(ARFL):
    """Client 3 sends back NaN."""

    def local_update(self, client, payload, ctx):
        reply = super().local_update(client, payload, ctx)
        if client.id == 3:
            reply.models["model"][5] = float("nan")
        return reply


@pytest.mark.parametrize(
    ("name", "value"), [("confidence_interval", 0.0), ("delta", -0.1), ("delta", 1.5)]
)
def test_illegal_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"method.{name}={value} is not legal; legal: "):
        ARFLParams(**{name: value})


def test_combine_ignores_sizes_and_changes_nothing(open_run):
    method = open_run("method=arfl").method
    matrix = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    before = matrix.clone()
    first = method.combine(matrix, np.array([0.96, 0.01, 0.01, 0.01, 0.01]))
    assert torch.equal(first, method.combine(matrix, np.full(5, 0.2)))
    assert torch.equal(matrix, before)


def test_a_model_with_nan_is_left_out(open_run):
    run = open_run("method=arfl", "federation.clients_per_round=8")
    run.executor._workshop.method = Broken(run.method.params)
    ctx = run.context("train")
    replies = run.fleet.ask(
        run.method.select(run.fleet, ctx),
        run.method.local_update,
        run.method.payload,
        ctx,
        participation=True,
    )
    assert [reply.client_id for reply in replies] == [0, 1, 2, 4, 5, 6, 7]
    run.method.aggregate(replies, ctx)
    assert run.fleet.meter.dropped_models == 1
    assert torch.isfinite(run.method.models["model"]).all()


def test_a_run_in_which_every_model_explodes_keeps_the_old_one(open_run):
    """Every reply is NaN or Inf, none is left to aggregate, the run goes on with the model it had."""
    run = open_run("method=arfl", "train.lr=1e30", "budget.participations=8")
    run.loop()
    assert run.fleet.meter.dropped_models == run.fleet.meter.participations == 8
    assert torch.equal(run.method.models["model"], run.fleet.initial_weights())


def test_a_noisy_minority_gets_less_weight(make_client, make_ctx, initial_vector):
    """Two of six clients have random labels: after training their models weigh less than every clean one's."""
    from methods.core.contract import Payload
    from methods.toolkit.aggregation import residual_reweighting

    rng, models = np.random.default_rng(0), []
    for k in range(6):
        client = make_client(
            num_samples=200, client_id=k, labels=rng.integers(0, 10, 200) if k < 2 else None
        )
        reply = ARFL(ARFLParams()).local_update(
            client, Payload({"model": initial_vector}, {}), make_ctx(local_epochs=3, lr=0.05)
        )
        models.append(reply.models["model"])
    weights = residual_reweighting(torch.stack(models), 2.0, 0.1, 10**9).weights
    assert weights[:2].max() < weights[2:].min()
