"""Scores what a method believes about the noise. The only reader of true labels once the noise is drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from benchmarks.executors.base import Executor
from benchmarks.federation.pool import ClientPool
from benchmarks.loop.evaluation import predict
from benchmarks.scenario.scenario import Scenario
from methods.core.contract import Diagnosis, Method
from methods.core.streams import numpy_generator


def score(diagnosis: Diagnosis, fleet: ClientPool, scenario: Scenario) -> dict[str, float]:
    """All scores that the diagnosis allows, by name; names are the curve's columns."""
    scores = {f"method/{name}": float(value) for name, value in diagnosis.values.items()}
    scores |= client_scores(diagnosis, scenario)
    scores |= sample_scores(diagnosis.noisy_samples, scenario)
    scores |= label_scores(diagnosis.labels, fleet, scenario)
    return scores


def client_scores(diagnosis: Diagnosis, scenario: Scenario) -> dict[str, float]:
    scores: dict[str, float] = {}
    truth = scenario.noise.client_level > 0
    if diagnosis.noisy_clients is not None:
        found = np.zeros(scenario.num_clients, dtype=bool)
        found[list(diagnosis.noisy_clients)] = True
        scores |= detection("clients", found, truth)
    if diagnosis.client_scores is not None and 0 < truth.sum() < len(truth):
        scores["clients/auroc"] = auroc(
            np.asarray(diagnosis.client_scores, dtype=np.float64), truth
        )
    if diagnosis.noise_rates is not None:
        scores["clients/rate_error"] = float(
            np.abs(np.asarray(diagnosis.noise_rates) - scenario.noise.client_rate).mean()
        )
    return scores


def sample_scores(masks: Mapping[int, np.ndarray] | None, scenario: Scenario) -> dict[str, float]:
    """Over the samples of the clients that the method has judged."""
    if not masks:
        return {}
    found = np.concatenate([np.asarray(mask, dtype=bool) for mask in masks.values()])
    truth = np.concatenate([scenario.noise.flipped[scenario.client_indices[k]] for k in masks])
    return detection("samples", found, truth)


def label_scores(
    labels: Mapping[int, np.ndarray] | None, fleet: ClientPool, scenario: Scenario
) -> dict[str, float]:
    """Accuracy of the labels as given and as the method would use them, over all clients' samples. Only when labels were changed."""
    if labels is None:
        labels = {k: as_hard(tensor.numpy()) for k, tensor in fleet.changed_labels.items()}
    if not labels:
        return {}
    total = right_before = fixed = harmed = 0
    for k, part in enumerate(scenario.client_indices):
        clean, given = scenario.clean_labels[part], scenario.noise.labels[part]
        before = given == clean
        total += len(part)
        right_before += int(before.sum())
        if k in labels:
            after = as_hard(np.asarray(labels[k])) == clean
            fixed += int((after & ~before).sum())
            harmed += int((before & ~after).sum())
    return {
        "labels/accuracy_before": right_before / total,
        "labels/accuracy_after": (right_before + fixed - harmed) / total,
        "labels/fixed": float(fixed),
        "labels/harmed": float(harmed),
    }


def label_audit(
    fleet: ClientPool,
    earlier: Mapping[int, torch.Tensor],
    masks: Mapping[int, np.ndarray] | None,
    scenario: Scenario,
) -> dict[str, Any]:
    """What became of the labels since an earlier moment, for the journal; empty when none changed.

    `label_confusion` counts true -> working label over all clients, `label_noise` is each client's share of wrong working labels. The masks
    were made before the change, so `sample_detection` judges them by the earlier labels: rows of client, true and false positives, false and
    true negatives.
    """
    if all(
        torch.equal(labels, earlier.get(k, fleet.given_labels(k)))
        for k, labels in fleet.changed_labels.items()
    ):
        return {}
    confusion = np.zeros((scenario.num_classes, scenario.num_classes), dtype=np.int64)
    rates = np.zeros(scenario.num_clients)
    for k, part in enumerate(scenario.client_indices):
        clean, working = scenario.clean_labels[part], as_hard(fleet.labels(k).numpy())
        np.add.at(confusion, (clean, working), 1)
        rates[k] = (working != clean).mean()
    rows = []
    for k, mask in (masks or {}).items():
        found = np.asarray(mask, dtype=bool)
        wrong = (
            as_hard(earlier.get(k, fleet.given_labels(k)).numpy())
            != scenario.clean_labels[scenario.client_indices[k]]
        )
        rows.append(
            [
                k,
                *(
                    int(count.sum())
                    for count in (found & wrong, found & ~wrong, ~found & wrong, ~found & ~wrong)
                ),
            ]
        )
    return {"label_confusion": confusion, "label_noise": rates, "sample_detection": rows}


def as_hard(labels: np.ndarray) -> np.ndarray:
    return labels.argmax(1) if labels.ndim == 2 else labels


def detection(prefix: str, found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1. Nothing found is precision 0; nothing to find leaves recall and F1 out."""
    hits = float((found & truth).sum())
    scores = {f"{prefix}/precision": hits / found.sum() if found.any() else 0.0}
    if truth.any():
        scores[f"{prefix}/recall"] = hits / truth.sum()
        scores[f"{prefix}/f1"] = 2 * hits / (found.sum() + truth.sum())
    return {name: float(value) for name, value in scores.items()}


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Chance that a noisy client scores above a clean one, ties counted half."""
    ranks = rankdata(scores)
    positives = truth.sum()
    return float(
        (ranks[truth].sum() - positives * (positives + 1) / 2)
        / (positives * (len(truth) - positives))
    )


def memorisation(
    executor: Executor, method: Method, scenario: Scenario, seed: int, limit: int
) -> dict[str, float]:
    """On a fixed choice of wrongly labelled training samples: how often the model says the wrong label, and how often the true one."""
    wrong = np.flatnonzero(scenario.noise.flipped & held(scenario))
    if limit == 0 or len(wrong) == 0:
        return {}
    chosen = np.sort(
        numpy_generator(seed, "memorised").choice(wrong, size=min(limit, len(wrong)), replace=False)
    )
    top, _ = predict(executor, method, "train", torch.from_numpy(chosen))
    return {
        "memorised/wrong": float((top == scenario.noise.labels[chosen]).mean()),
        "memorised/true": float((top == scenario.clean_labels[chosen]).mean()),
    }


def held(scenario: Scenario) -> np.ndarray:
    """Which samples belong to at least one client."""
    mask = np.zeros(len(scenario.clean_labels), dtype=bool)
    mask[np.concatenate(scenario.client_indices)] = True
    return mask
