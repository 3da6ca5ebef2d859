"""Time estimates for runs, from the records of comparable runs.

The measured quantity is seconds per unit of work. Work is participations times local epochs,
divided by the number of clients, because a client of a larger federation has fewer samples: the
number of passes over all samples.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.federation.devices import device_type
from benchmarks.records.files import RECORD_FILE
from benchmarks.records.record import CorruptRecordError, Record, read_record


@dataclass(frozen=True)
class Estimate:
    seconds: float
    is_approximate: bool  # measured with other training parameters, or with FedAvg

    def __str__(self) -> str:
        return f"{'~' if self.is_approximate else ''}{format_duration(self.seconds)}"


def load_timed_records(runs_dir: Path) -> list[Record]:
    """Records of completed runs below a directory. Unreadable records are skipped."""
    found: list[Record] = []
    for path in sorted(runs_dir.glob(f"*/{RECORD_FILE}")):
        try:
            record = read_record(path.parent)
        except CorruptRecordError:
            continue
        if record is not None and record.status == "done" and record.cost.participations > 0:
            found.append(record)
    return found


def estimate(config: RunConfig, records: Iterable[Record]) -> Estimate | None:
    """Estimate the time of a run from runs with the same dataset and model on the same device.

    Runs of the same method with the same training parameters are preferred, then runs of the same
    method, then runs of FedAvg. None if there are none of these.
    """
    task = (config.dataset.name, config.model.name)
    device = device_type(config.executor.device)
    on_device = (record for record in records if record.time.device.type == device)
    same_task = [record for record in on_device if _names(record, "dataset", "model") == task]
    same_method, fedavg = (
        [record for record in same_task if _names(record, "method") == (name,)]
        for name in (config.method.name, "fedavg")
    )
    train = to_plain_data(config.train)
    same_training = [record for record in same_method if record.config["train"] == train]
    known = same_training or same_method or fedavg
    if not known:
        return None
    done = sum(_work(record.config, record.cost.participations) for record in known)
    seconds = planned_work(config) * sum(record.time.seconds for record in known) / done
    return Estimate(seconds, is_approximate=not same_training)


def planned_work(config: RunConfig) -> float:
    """Planned passes of a run over all samples."""
    budget_fraction = getattr(config.method.params, "budget_fraction", 1.0)
    try:
        return _work(config.hashed_config(), config.budget.participations * budget_fraction)
    except OverflowError:
        return math.inf


def format_total(estimates: Iterable[Estimate | None]) -> str:
    """Sum of the known estimates and the number of unknown ones: `~1.5 min + ? for 2 runs`."""
    estimates = list(estimates)
    known = [one for one in estimates if one is not None]
    unknown = len(estimates) - len(known)
    parts = []
    if known or not unknown:
        seconds = sum(one.seconds for one in known)
        parts.append(str(Estimate(seconds, any(one.is_approximate for one in known))))
    if unknown:
        parts.append(f"? for {unknown} {'run' if unknown == 1 else 'runs'}")
    return " + ".join(parts)


def format_duration(seconds: float) -> str:
    for size, unit in ((31_557_600, "years"), (86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:{'.1f' if seconds < 1e12 else '.0e'}} {unit}"
    return f"{seconds:.0f} s"


def _names(record: Record, *groups: str) -> tuple[str, ...]:
    return tuple(record.config[group]["name"] for group in groups)


def _work(config: Mapping[str, Any], participations: float) -> float:
    """The local epochs are the most of `train.local_epochs`, `method.divide_epochs` and such."""
    params = [*config["train"].items(), *config["method"].items()]
    epochs = max(n for key, n in params if key.endswith("_epochs") and isinstance(n, int))
    return float(participations * epochs / config["federation"]["num_clients"])
