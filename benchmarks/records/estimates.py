"""How long cells will take, from the speed of runs that are done.

Speed is seconds per participation, with evaluation, for as many local epochs on a client of the same size: one visit of one epoch to one client out of 20
takes as long as one of five epochs to one out of 100.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.config.schema import RunConfig, to_plain_data
from benchmarks.records.record import CorruptRecordError, read_record

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Estimate:
    seconds: float
    rough: bool  # measured under other training settings, or on FedAvg

    def __str__(self) -> str:
        return f"{'~' if self.rough else ''}{duration(self.seconds)}"


def measured(runs_dir: Path) -> list[Record]:
    """Records that tell a speed."""
    found: list[Record] = []
    for path in sorted(runs_dir.glob("*/record.json")):
        try:
            record = read_record(path.parent)
        except CorruptRecordError:
            continue
        if (
            record
            and record["status"] == "done"
            and record.get("time")
            and record.get("cost", {}).get("participations")
        ):
            found.append(record)
    return found


def estimate(config: RunConfig, records: Iterable[Record]) -> Estimate | None:
    """From runs of the same data set, network and method, best under the same training settings; else from FedAvg's; else none."""
    here = [
        record
        for record in records
        if _names(record)[:2] == (config.dataset.name, config.model.name)
    ]
    own, of_fedavg = (
        [record for record in here if _names(record)[2] == name]
        for name in (config.method.name, "fedavg")
    )
    alike = [record for record in own if record["config"]["train"] == to_plain_data(config.train)]
    known = alike or own or of_fedavg
    if not known:
        return None
    participations = config.budget.participations * getattr(
        config.method.params, "budget_share", 1.0
    )
    work = participations * config.train.local_epochs / config.federation.num_clients
    return Estimate(work * sum(map(_seconds, known)) / sum(map(_work, known)), rough=not alike)


def total(estimates: Iterable[Estimate | None]) -> str:
    """The sum of what is known, and how many are not."""
    given = list(estimates)
    known = [one for one in given if one is not None]
    unknown = len(given) - len(known)
    parts = (
        [str(Estimate(sum(one.seconds for one in known), any(one.rough for one in known)))]
        if known or not given
        else []
    )
    return " + ".join([*parts, *([f"? for {unknown} cells"] if unknown else [])])


def duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _names(record: Record) -> tuple[str, str, str]:
    config = record["config"]
    return config["dataset"]["name"], config["model"]["name"], config["method"]["name"]


def _work(record: Record) -> float:
    config = record["config"]
    return float(
        record["cost"]["participations"]
        * config["train"]["local_epochs"]
        / config["federation"]["num_clients"]
    )


def _seconds(record: Record) -> float:
    return float(record["time"]["seconds_method"] + record["time"]["seconds_evaluation"])
