"""Reference runs: FedAvg on the given and on the clean labels of the same scenario.

They bound what a method can gain. The run on clean labels is never a competitor.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.records.record import Record, Summary

REFERENCE_METHOD = "fedavg"
# Sections that may differ between a run and its references.
OWN_SECTIONS = ("method", "train", "labels", "hyperparameters", "oracle")


class References(NamedTuple):
    """The reference runs of a run: same setting, seed, scenario and budget."""

    given: Record
    clean: Record

    def repaired(self, summary: Summary) -> float | None:
        """Share of the damage by label noise that a method repairs; None without damage."""
        if self.given.summary is None or self.clean.summary is None:
            return None
        given, clean = self.given.summary.last10, self.clean.summary.last10
        return (summary.last10 - given) / (clean - given) if clean > given else None


def is_reference(record: Record) -> bool:
    """True for a run on clean labels."""
    return record.config.get("labels") == "clean"


def find_references(records: Iterable[Record]) -> dict[str, References]:
    """Reference runs by run id, for all completed runs that have them.

    Of several variants of FedAvg, one with the same kind of hyperparameters is preferred, then one
    with the same training parameters.
    """
    done = [record for record in records if record.status == "done"]
    pairs: dict[str, dict[str, dict[str, Record]]] = {}  # setting -> variant -> labels -> run
    for record in done:
        if record.config["method"]["name"] == REFERENCE_METHOD:
            variants = pairs.setdefault(_setting(record), {})
            variant = json.dumps([record.config["method"], record.config["train"]])
            variants.setdefault(variant, {})[record.config.get("labels") or "given"] = record
    found = {}
    for record in done:
        variants = pairs.get(_setting(record), {})
        complete = [References(**runs) for runs in variants.values() if len(runs) == 2]
        if complete and not is_reference(record):
            found[record.run_id] = max(complete, key=lambda pair: _similarity(pair.given, record))
    return found


def _setting(record: Record) -> str:
    shared = {key: value for key, value in record.config.items() if key not in OWN_SECTIONS}
    return json.dumps([shared, record.scenario.hash], sort_keys=True)


def _similarity(reference: Record, record: Record) -> tuple[bool, bool, str]:
    one, other = reference.config, record.config
    same_kind = one.get("hyperparameters") == other.get("hyperparameters")
    return same_kind, one["train"] == other["train"], reference.run_id
