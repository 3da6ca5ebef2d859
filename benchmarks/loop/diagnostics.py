"""Metrics of a method's noise diagnosis.

Only this module and the evaluation compare the output of a method with clean labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import mannwhitneyu

from benchmarks.federation.pool import ClientPool
from benchmarks.scenario.scenario import Scenario
from methods.core.contract import Diagnosis

Metrics = dict[str, float]  # by column of the learning curve


def diagnosis_metrics(diagnosis: Diagnosis, pool: ClientPool, scenario: Scenario) -> Metrics:
    """All metrics for which the diagnosis has data."""
    metrics = {f"method/{name}": float(value) for name, value in diagnosis.values.items()}
    metrics |= client_metrics(diagnosis, scenario)
    metrics |= sample_metrics(diagnosis.noisy_samples, scenario)
    return metrics | label_metrics(diagnosis.labels, pool, scenario)


def client_metrics(diagnosis: Diagnosis, scenario: Scenario) -> Metrics:
    metrics: Metrics = {}
    is_noisy = scenario.noise.client_level > 0
    if diagnosis.noisy_clients is not None:
        predicted = np.zeros(scenario.num_clients, dtype=bool)
        predicted[list(diagnosis.noisy_clients)] = True
        metrics |= detection_metrics("clients", predicted, is_noisy)
    if diagnosis.client_scores is not None and 0 < is_noisy.sum() < len(is_noisy):
        metrics["clients/auroc"] = auroc(np.asarray(diagnosis.client_scores, float), is_noisy)
    if diagnosis.noise_rates is not None:
        errors = np.abs(np.asarray(diagnosis.noise_rates) - scenario.noise.client_rate)
        metrics["clients/rate_error"] = float(errors.mean())
    return metrics


def sample_metrics(masks: Mapping[int, np.ndarray] | None, scenario: Scenario) -> Metrics:
    """Detection of mislabeled samples, over the clients that have a mask."""
    if not masks:
        return {}
    predicted = np.concatenate([np.asarray(mask, dtype=bool) for mask in masks.values()])
    mislabeled = np.concatenate([scenario.noise.flipped[scenario.client_indices[k]] for k in masks])
    return detection_metrics("samples", predicted, mislabeled)


def label_metrics(
    labels: Mapping[int, np.ndarray] | None, pool: ClientPool, scenario: Scenario
) -> Metrics:
    """Accuracy of given and corrected labels over the samples of all clients.

    Corrected labels are `labels`, or the current labels of the clients if None. Empty if no client
    has corrected labels.
    """
    if labels is None:
        labels = {k: tensor.numpy() for k, tensor in pool.relabeled.items()}
    if not labels:
        return {}
    total = given_correct = fixed = harmed = 0
    for k, indices in enumerate(scenario.client_indices):
        clean = scenario.clean_labels[indices]
        before = scenario.noise.labels[indices] == clean
        total += len(indices)
        given_correct += int(before.sum())
        if k in labels:
            after = to_hard_labels(np.asarray(labels[k])) == clean
            fixed += int((after & ~before).sum())
            harmed += int((before & ~after).sum())
    return {
        "labels/accuracy_before": given_correct / total,
        "labels/accuracy_after": (given_correct + fixed - harmed) / total,
        "labels/fixed": float(fixed),
        "labels/harmed": float(harmed),
    }


def label_change_report(
    pool: ClientPool,
    earlier: Mapping[int, torch.Tensor],
    masks: Mapping[int, np.ndarray] | None,
    scenario: Scenario,
) -> dict[str, Any]:
    """Label changes since an earlier round, as arrays for the journal; empty if there are none.

    `label_confusion` counts clean by current labels over all clients. `label_noise` is each
    client's fraction of current labels that are not clean. `sample_detection` compares the masks of
    predicted mislabeled samples with the earlier labels, which the method used for the masks. Its
    rows are client, true positives, false positives, false negatives, true negatives.
    """

    def earlier_labels(k: int) -> torch.Tensor:
        return earlier[k] if k in earlier else pool.given_labels(k)

    if all(torch.equal(labels, earlier_labels(k)) for k, labels in pool.relabeled.items()):
        return {}
    confusion = np.zeros((scenario.num_classes, scenario.num_classes), dtype=np.int64)
    rates = np.zeros(scenario.num_clients)
    for k, indices in enumerate(scenario.client_indices):
        clean, current = scenario.clean_labels[indices], to_hard_labels(pool.labels(k).numpy())
        np.add.at(confusion, (clean, current), 1)
        rates[k] = (current != clean).mean()
    rows = []
    for k, mask in (masks or {}).items():
        found = np.asarray(mask, dtype=bool)
        clean = scenario.clean_labels[scenario.client_indices[k]]
        wrong = to_hard_labels(earlier_labels(k).numpy()) != clean
        counts = (found & wrong, found & ~wrong, ~found & wrong, ~found & ~wrong)
        rows.append([k, *(int(count.sum()) for count in counts)])
    return {"label_confusion": confusion, "label_noise": rates, "sample_detection": rows}


def to_hard_labels(labels: np.ndarray) -> np.ndarray:
    """Class indices of soft (n, classes) or hard (n,) labels."""
    return labels.argmax(1) if labels.ndim == 2 else labels


def detection_metrics(prefix: str, predicted: np.ndarray, truth: np.ndarray) -> Metrics:
    """Precision, recall and F1. Without positives in `truth`, recall and F1 are omitted."""
    # scikit-learn gives the same numbers, but its import takes 0.5 s and a call 1.4 ms.
    hits, num_predicted, num_true = (predicted & truth).sum(), predicted.sum(), truth.sum()
    metrics = {"precision": hits / num_predicted if num_predicted else 0.0}
    if num_true:
        metrics |= {"recall": hits / num_true, "f1": 2 * hits / (num_predicted + num_true)}
    return {f"{prefix}/{name}": float(value) for name, value in metrics.items()}


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Probability that a positive scores above a negative. Ties count half."""
    positives, negatives = scores[truth], scores[~truth]
    statistic = mannwhitneyu(positives, negatives, method="asymptotic").statistic
    return float(statistic / (len(positives) * len(negatives)))


def validation_metrics(predicted: np.ndarray, scenario: Scenario) -> Metrics:
    """Accuracy on the held-out samples with their given labels; empty without such samples."""
    if not len(predicted):
        return {}
    given = scenario.noise.labels[scenario.held_out]
    return {"validation_accuracy": float((predicted == given).mean())}


def memorization_metrics(
    predicted: np.ndarray, mislabeled: np.ndarray, scenario: Scenario
) -> Metrics:
    """How often the models predict the given and the true label of mislabeled samples."""
    if not len(mislabeled):
        return {}
    return {
        "memorization/wrong": float((predicted == scenario.noise.labels[mislabeled]).mean()),
        "memorization/true": float((predicted == scenario.clean_labels[mislabeled]).mean()),
    }
