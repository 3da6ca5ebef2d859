"""Tests of the served models, spread over the executor's workers."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import Dataset
from benchmarks.executors.base import Executor
from benchmarks.federation.worker import PredictionTask
from methods.core.contract import Method

BATCH = 500  # chunks are multiples of the workers' batch, so the number of workers does not change a number


class TestResult(NamedTuple):
    accuracy: float  # top-1 on the whole test set
    loss: float  # mean negative log-likelihood
    top: np.ndarray  # (n,) predicted classes


def predict(
    executor: Executor, method: Method, split: str, index: Tensor
) -> tuple[np.ndarray, Tensor]:
    """Predicted classes and log-likelihoods of the served models on some samples."""
    models = dict(method.eval_models())
    chunk = max(-(-len(index) // (executor.workers * BATCH)), 1) * BATCH
    results = executor.run([PredictionTask(models, split, part) for part in index.split(chunk)])
    return torch.cat([r.top for r in results]).numpy(), torch.cat(
        [r.log_likelihood for r in results]
    )


def test(executor: Executor, method: Method, dataset: Dataset) -> TestResult:
    top, log_likelihood = predict(executor, method, "test", torch.arange(len(dataset.test)))
    truth = torch.from_numpy(dataset.test_labels)
    loss = -log_likelihood.gather(1, truth[:, None]).double().mean().item()
    return TestResult(float((top == dataset.test_labels).mean()), loss, top)
