"""Records into the numbers that are drawn: pure functions on what a run left on disk. Shares become percentages."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from methods.core.errors import UserError
from reports.frame.statistics import Ranking, mean, ranking, sample_std

Scene = Mapping[str, np.ndarray]
Entry = Mapping[str, Any]  # a line of the journal
COUNTS = ("true positives", "false positives", "false negatives", "true negatives")


def read_scene(folder: Path) -> Scene:
    """The arrays of scene.npz."""
    path = folder / "scene.npz"
    try:
        with np.load(io.BytesIO(path.read_bytes())) as file:
            return {
                name: file[name]
                for name in ("clean_counts", "client_rate", "client_level", "transition")
            }
    except FileNotFoundError:
        raise UserError(f"{path}: missing; left out") from None
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: damaged ({type(error).__name__}); left out") from error


def read_journal(folder: Path) -> list[Entry]:
    """The lines of journal.jsonl; none when the method wanted nothing kept."""
    path = folder / "journal.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise UserError(f"{path}: damaged ({type(error).__name__}); left out") from error


def partition_counts(scene: Scene, by_size: bool = False) -> np.ndarray:
    """(clients, classes) samples by true class; the clients in their own order, or the smallest first."""
    counts = scene["clean_counts"]
    return counts[np.argsort(counts.sum(axis=1), kind="stable")] if by_size else counts


def transition_shares(counts: np.ndarray | Sequence[Sequence[int]]) -> np.ndarray:
    """Counts true -> given label as percentages of the true class; a class without samples has zeros."""
    table = np.asarray(counts, dtype=float)
    return 100 * table / np.maximum(table.sum(axis=1, keepdims=True), 1)


def iterations(journal: Sequence[Entry], at_most: int | None = None) -> list[Entry]:
    """The ends of FedCorr's pre-processing iterations; of too many the first, the last and some evenly between them."""
    found = [entry for entry in journal if "cumulative_lid" in entry]
    if at_most is None or len(found) <= at_most:
        return found
    return [found[round(step)] for step in np.linspace(0, len(found) - 1, at_most)]


def fitted_mixture(values: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """A mixture of two Gaussians as FedCorr fits it, in ascending order of the means."""
    from sklearn.mixture import GaussianMixture  # takes a second that other figures need not spend

    if len(values) < 2 or np.ptp(values) == 0:
        return {
            "means": np.full(2, values.mean()),
            "variances": np.zeros(2),
            "weights": np.array([1.0, 0.0]),
        }
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a fit that did not converge is drawn as it is, as the method would use it
        model = GaussianMixture(2, random_state=seed).fit(values[:, None])
    order = np.argsort(model.means_.ravel(), kind="stable")
    parts = {"means": model.means_, "variances": model.covariances_, "weights": model.weights_}
    return {name: part.ravel()[order] for name, part in parts.items()}


def mixture_densities(x: np.ndarray, mixture: Mapping[str, Any]) -> np.ndarray:
    """(2, len(x)): both components of a fitted mixture, each times its weight; 0 for a component without spread."""
    parts = []
    for centre, variance, weight in zip(
        mixture["means"], mixture["variances"], mixture["weights"], strict=True
    ):
        scale = weight / math.sqrt(2 * math.pi * variance) if variance > 0 else 0.0
        parts.append(scale * np.exp(-((x - centre) ** 2) / (2 * variance or 1.0)))
    return np.stack(parts)


@dataclass(frozen=True)
class NoiseEstimate:
    """Client by client in ascending order of the true noise. All in percent but the counts."""

    clients: np.ndarray
    before: np.ndarray  # wrong labels as given
    estimated: np.ndarray
    after: (
        np.ndarray | None
    )  # wrong labels after the last pre-processing iteration; None where the record has none
    detection: Mapping[int, Sequence[int]]  # client: COUNTS of its samples
    found: int  # noisy clients that were identified
    noisy: int
    mistaken: int  # clean clients that were taken for noisy


def noise_estimate(journal: Sequence[Entry], scene: Scene) -> NoiseEstimate:
    """What FedCorr knew at the end of its pre-processing beside the truth; the journal must have an iteration."""
    ends = iterations(journal)
    last, truth = ends[-1], scene["client_level"] > 0
    order = np.argsort(scene["client_rate"], kind="stable")
    known = [
        entry for entry in ends if "label_noise" in entry
    ]  # an iteration that changed no label repeats none
    taken = np.zeros(len(truth), dtype=bool)
    taken[list(last["noisy"])] = True
    return NoiseEstimate(
        clients=order,
        before=100 * scene["client_rate"][order],
        estimated=100 * np.asarray(last["noise_levels"])[order],
        after=100 * np.asarray(known[-1]["label_noise"])[order] if known else None,
        detection={row[0]: row[1:] for row in last.get("sample_detection", ())},
        found=int((taken & truth).sum()),
        noisy=int(truth.sum()),
        mistaken=int((taken & ~truth).sum()),
    )


def label_confusions(journal: Sequence[Entry], scene: Scene) -> list[tuple[str, np.ndarray]]:
    """Counts true -> label, as given and after every stage that changed labels."""
    stages = {
        entry["stage"]: entry["label_confusion"] for entry in journal if "label_confusion" in entry
    }
    return [
        ("as given", scene["transition"]),
        *((f"after {stage}", np.asarray(counts)) for stage, counts in stages.items()),
    ]


def stage_ends(curve: pd.DataFrame) -> list[tuple[str, int]]:
    """Stages in the order of the run, and the participations after which each was over."""
    ends: dict[str, int] = {}
    for stage, participations in zip(curve.get("stage", ()), curve["participations"], strict=False):
        ends[str(stage)] = int(participations)
    return list(ends.items())


@dataclass(frozen=True)
class Band:
    """A curve over seeds, in percent: the mean and the sample standard deviation (none for one seed)."""

    x: np.ndarray
    centre: np.ndarray
    spread: np.ndarray | None
    seeds: int


def band(curves: Sequence[pd.DataFrame]) -> Band:
    """Over the tests that all curves have, told apart by participations."""
    table = pd.concat(
        [curve.groupby("participations")["accuracy"].last() for curve in curves],
        axis=1,
        join="inner",
    )
    values = 100 * table.sort_index().to_numpy(dtype=float)
    spread = values.std(axis=1, ddof=1) if len(curves) > 1 else None
    return Band(table.sort_index().index.to_numpy(), values.mean(axis=1), spread, len(curves))


def over_seeds(
    points: Iterable[tuple[float, float]],
) -> tuple[list[float], list[float], list[float]]:
    """Places in ascending order, the mean at each, and the sample standard deviation, NaN for a single value."""
    found: dict[float, list[float]] = {}
    for place, value in points:
        found.setdefault(place, []).append(value)
    x = sorted(found)
    spread = [sample_std(found[place]) for place in x]
    return (
        x,
        [mean(found[place]) for place in x],
        [math.nan if value is None else value for value in spread],
    )


@dataclass(frozen=True)
class Ranks:
    """Methods by average rank, best first."""

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    ranking: Ranking
    dropped: tuple[str, ...]  # methods with too few cells in common with the others

    @property
    def cliques(self) -> list[tuple[int, int]]:
        """First and last place of the widest groups of methods that are not shown to differ."""
        apart = self.ranking.critical_difference or 0.0
        groups: list[tuple[int, int]] = []
        for first, rank in enumerate(self.ranks):
            last = max(place for place, other in enumerate(self.ranks) if other - rank <= apart)
            if last > first and (not groups or last > groups[-1][1]):
                groups.append((first, last))
        return groups


def ranks(cells: Mapping[Any, Mapping[str, Sequence[float]]]) -> Ranks | None:
    """Rank the methods in the cells (setting: method: accuracies by seed) that all of them ran in.

    Where fewer than two such cells exist, the method with the fewest cells is left out, and so on. None: no two methods
    share two cells.
    """
    methods = sorted({method for cell in cells.values() for method in cell})
    dropped: list[str] = []
    while len(methods) >= 2:
        complete = [cell for cell in cells.values() if all(method in cell for method in methods)]
        if len(complete) >= 2:
            found = ranking([[mean(cell[method]) for method in methods] for cell in complete])
            order = sorted(
                range(len(methods)), key=lambda place: (found.ranks[place], methods[place])
            )
            return Ranks(
                tuple(methods[k] for k in order),
                tuple(found.ranks[k] for k in order),
                found,
                tuple(dropped),
            )
        rarest = min(
            methods, key=lambda method: (sum(method in cell for cell in cells.values()), method)
        )
        methods.remove(rarest)
        dropped.append(rarest)
    return None
