"""Evaluation of the models of a method, distributed over the workers of the executor."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import Dataset
from benchmarks.federation.tasks import Executor, PredictionTask
from benchmarks.federation.worker import EVAL_BATCH_SIZE
from methods.core.contract import Method


class EvaluationResult(NamedTuple):
    accuracy: float  # top-1, on the test split
    loss: float  # mean negative log-likelihood
    confusion: np.ndarray  # (classes, classes) counts, true class by predicted class


def predict(
    executor: Executor, method: Method, split: str, index: Tensor
) -> tuple[np.ndarray, Tensor]:
    """Predicted classes and log-likelihoods of the evaluated models on some samples.

    Each worker gets whole batches, so results do not depend on the number of workers.
    """
    models = dict(method.eval_models())
    batches = -(-len(index) // (executor.workers * EVAL_BATCH_SIZE))
    chunks = torch.split(index, max(batches, 1) * EVAL_BATCH_SIZE)
    results = executor.run([PredictionTask(models, split, chunk) for chunk in chunks])
    predicted = torch.cat([result.predicted for result in results]).numpy()
    return predicted, torch.cat([result.log_likelihood for result in results])


def evaluate(executor: Executor, method: Method, dataset: Dataset) -> EvaluationResult:
    """Evaluate on the test split."""
    predicted, log_likelihood = predict(executor, method, "test", torch.arange(len(dataset.test)))
    labels, classes = dataset.test_labels, dataset.num_classes
    loss = -log_likelihood.gather(1, torch.from_numpy(labels)[:, None]).double().mean().item()
    counts = np.bincount(labels * classes + predicted, minlength=classes**2)
    accuracy = float((predicted == labels).mean())
    return EvaluationResult(accuracy, loss, counts.reshape(classes, classes))
