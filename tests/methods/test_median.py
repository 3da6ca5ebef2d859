"""Median as a method: the aggregation itself is tested in test_aggregators.py."""

import numpy as np
import torch


def test_a_round_takes_the_median_of_the_replies(open_run):
    run = open_run("method=median")
    ctx = run.context("train")
    replies = run.fleet.ask(
        run.method.select(run.fleet, ctx),
        run.method.local_update,
        run.method.payload,
        ctx,
        participation=True,
    )
    run.method.aggregate(replies, ctx)
    matrix = torch.stack([reply.models["model"] for reply in replies]).numpy()
    assert len(matrix) == 4
    assert np.array_equal(run.method.models["model"].numpy(), np.median(matrix, axis=0))
