"""Evaluation of the models of a method, distributed over the workers of the executor.

One pass in random order predicts the test images, the memorization probe, a selection of training
samples, and the samples held out for validation. `Method.predict` receives images only. It cannot
tell from their order which ones are test images, and which training samples are mislabeled.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import Dataset
from benchmarks.federation.tasks import Executor, PredictionTask
from benchmarks.federation.worker import EVAL_BATCH_SIZE
from benchmarks.scenario.scenario import Scenario
from methods.core.contract import Method
from methods.core.streams import numpy_generator

# Limit of correctly labeled samples per mislabeled sample of the probe, for low noise rates.
MAX_CORRECT_PER_MISLABELED = 9


class Probe(NamedTuple):
    """Samples of the training split that are predicted together with the test images."""

    mislabeled: np.ndarray  # memorization is measured on them
    correct: np.ndarray  # correctly labeled, in the proportion of all samples of the clients
    held_out: np.ndarray  # clients do not have them


class EvaluationResult(NamedTuple):
    accuracy: float  # top-1, on the test split
    loss: float  # mean negative log-likelihood
    confusion: np.ndarray  # (classes, classes) counts, true class by predicted class
    predicted_mislabeled: np.ndarray  # predicted classes of the probe's mislabeled samples
    predicted_held_out: np.ndarray


def sample_probe(scenario: Scenario, seed: int, max_mislabeled: int) -> Probe:
    """Sample at most `max_mislabeled` mislabeled samples of the clients, and correct ones.

    The proportion is that of all samples, so membership in the probe says nothing about a label.
    """
    assigned = np.zeros(len(scenario.clean_labels), dtype=bool)
    assigned[np.concatenate(scenario.client_indices)] = True
    rng = numpy_generator(seed, "memorised")
    mislabeled, correct = (
        rng.permutation(np.flatnonzero(assigned & mask))
        for mask in (scenario.noise.flipped, ~scenario.noise.flipped)
    )
    ratio = min(len(correct) / max(len(mislabeled), 1), MAX_CORRECT_PER_MISLABELED)
    mislabeled = mislabeled[:max_mislabeled]
    return Probe(mislabeled, correct[: round(ratio * len(mislabeled))], scenario.held_out)


def predict(
    executor: Executor, method: Method, index: Tensor, order: np.random.Generator
) -> tuple[np.ndarray, Tensor]:
    """Predicted classes and log-likelihoods of the evaluated models on some samples.

    Indices are as in `PredictionTask`. Each worker gets whole batches of the shuffled samples, so
    results do not depend on the number of workers.
    """
    models = dict(method.eval_models())
    shuffled = torch.from_numpy(order.permutation(len(index)))
    batches = -(-len(index) // (executor.workers * EVAL_BATCH_SIZE))
    chunks = torch.split(index[shuffled], max(batches, 1) * EVAL_BATCH_SIZE)
    results = executor.run([PredictionTask(models, chunk) for chunk in chunks])
    restored = shuffled.argsort()
    predicted = torch.cat([result.predicted for result in results])[restored].numpy()
    return predicted, torch.cat([result.log_likelihood for result in results])[restored]


def evaluate(
    executor: Executor, method: Method, dataset: Dataset, probe: Probe, seed: int
) -> EvaluationResult:
    """Evaluate on the test split and on the probe."""
    num_test = len(dataset.test)
    training_index = num_test + torch.from_numpy(np.concatenate(probe))
    index = torch.cat([torch.arange(num_test), training_index])
    order = numpy_generator(seed, "evaluation order")
    predicted, log_likelihood = predict(executor, method, index, order)
    labels, classes = dataset.test_labels, dataset.num_classes
    test_predicted, test_log_likelihood = predicted[:num_test], log_likelihood[:num_test]
    loss = -test_log_likelihood.gather(1, torch.from_numpy(labels)[:, None]).double().mean().item()
    counts = np.bincount(labels * classes + test_predicted, minlength=classes**2)
    return EvaluationResult(
        float((test_predicted == labels).mean()),
        loss,
        counts.reshape(classes, classes),
        predicted[num_test : num_test + len(probe.mislabeled)],
        predicted[len(predicted) - len(probe.held_out) :],
    )
