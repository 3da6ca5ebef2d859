"""Median as a method. Its aggregation function is tested in test_aggregators.py."""

import numpy as np
import torch
from method_helpers import train_cohort


def test_round_takes_the_median_of_the_replies(open_run):
    run = open_run("method=median")
    replies = train_cohort(run)
    run.method.aggregate(replies, run.context("train"))
    matrix = torch.stack([reply.models["model"] for reply in replies]).numpy()
    assert len(matrix) == 4
    assert np.array_equal(run.method.state.models["model"].numpy(), np.median(matrix, axis=0))
