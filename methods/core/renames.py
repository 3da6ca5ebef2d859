"""Names before version 0.2.0. Records with them are read until version 0.3.0."""

from typing import Any

METHOD_PARAMS = {
    "warmup_rounds": "warmup_fraction",
    "ramp_rounds": "ramp_fraction",
    "pseudo_label_start": "pseudo_label_start_fraction",
    "budget_share": "budget_fraction",
    "warmup_share": "warmup_fraction",
    "retrain_share": "retrain_fraction",
    "finetuning_share": "finetuning_fraction",
    "lambda_u_ramp": "lambda_u_ramp_fraction",
    "horizon": "paper_rounds",
    "final": "final_method",
    "neighbours": "num_neighbors",
    "start_after": "min_predictions",
    "buffer": "buffer_epochs",
    "labels": "label_type",
}
# Old name of a key of the run record with its old sections, and its new name.
RENAMED_KEYS = {
    "protocol": "protocol_version",
    "scene": "scenario",
    "scene.wrong_labels": "noise_rate",
    "scores": "metrics",
    "scores.memorised/wrong": "memorization/wrong",
    "scores.memorised/true": "memorization/true",
    "cost.contacts": "queries",
    "config.protocol": "protocol_version",
    "config.evaluate.memorised_samples": "memorization_samples",
} | {f"config.method.{old}": new for old, new in METHOD_PARAMS.items()}


def rename_keys(value: Any, prefix: str = "") -> Any:
    """Plain data of a record with the new names of its keys."""
    if not isinstance(value, dict):
        return value
    return {
        RENAMED_KEYS.get(f"{prefix}{key}", key): rename_keys(entry, f"{prefix}{key}.")
        for key, entry in value.items()
    }
