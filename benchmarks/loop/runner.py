"""The round loop: the only caller of a method's hooks."""

import fcntl
import resource
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import data, models
from benchmarks.config.schema import PROTOCOL, RunConfig, to_plain_data
from benchmarks.engine import compiled
from benchmarks.executors import WorkerError, make
from benchmarks.executors.serialization import dumps
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.cost import CostMeter
from benchmarks.federation.pool import ClientPool
from benchmarks.federation.worker import WorkerContext
from benchmarks.loop import diagnostics, evaluation
from benchmarks.loop.checkpoint import CheckpointFile
from benchmarks.records.files import write_curve, write_journal, write_json, write_yaml
from benchmarks.records.record import FINISHED, read_record, versions
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker
from methods.core import registry
from methods.core.contract import DivergenceError, Method, RoundContext, TaskSpec
from methods.core.flat_model import FlatModel
from methods.core.streams import derive_seed

EVALUATED_LAST = 10  # the papers' "mean of the last 10"


class RunLockedError(Exception):
    """Another process is at work on this cell."""


def build_method(config: RunConfig, dataset: data.Dataset) -> tuple[Method, TaskSpec]:
    """The method and what it will be told, or a UserError when it cannot work in this world."""

    method = registry.build(config.method.name, vars(config.method.params))
    probe = FlatModel(
        models.build(config.model.name, dataset.num_classes, dataset.shape, config.model.params)
    )
    spec = TaskSpec(
        dataset=config.dataset.name,
        shape=dataset.shape,
        num_classes=dataset.num_classes,
        num_clients=config.federation.num_clients,
        clients_per_round=config.federation.clients_per_round,
        participations=config.budget.participations,
        feature_dim=int(probe.module.feature_dim),  # type: ignore[arg-type]
        num_trainable=probe.num_trainable,
    )
    method.validate(spec)
    return method, spec


def execute_run(config: RunConfig, tracker: Tracker) -> dict[str, Any]:
    """Run one cell to its end, or return the record that is there already."""
    folder = config.run_dir
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if (
            not config.force
            and (record := read_record(folder)) is not None
            and record["status"] in FINISHED
        ):
            return record
        if config.force:
            CheckpointFile(folder).delete()
        (folder / "record.json").unlink(missing_ok=True)
        run = Run(config, tracker)
        try:
            run.loop()
            status, reason = "done", ""
        except DivergenceError as error:
            status, reason = "diverged", str(error)
        except Exception as error:
            tracker.log(traceback.format_exc())
            told = (
                str(error) if isinstance(error, WorkerError) else f"{type(error).__name__}: {error}"
            )
            status, reason = "failed", told.split("\n")[0]
        finally:
            run.executor.close()
        record = run.finish(status, reason)
        tracker.ended(record)
    return record


class Run:
    """The state of one run between its rounds."""

    def __init__(self, config: RunConfig, tracker: Tracker, scenario: Scenario | None = None):
        """Use `scenario` if given, otherwise build it from the configuration."""
        self.config, self.tracker = config, tracker
        self.dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
        models.validate_model(config.model.name, self.dataset.shape, config.model.params)
        self.scenario = scenario or build_scenario(config, self.dataset)
        self.method, self.spec = build_method(config, self.dataset)

        dataset, noisy = self.dataset, torch.from_numpy(self.scenario.noise.labels)
        num_classes, shape = dataset.num_classes, dataset.shape

        def build_module() -> (
            torch.nn.Module
        ):  # goes to the workers: must not hold on to the data set's labels
            return models.build(config.model.name, num_classes, shape, config.model.params)

        def initial_weights(index: int) -> torch.Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(config.seed, "init", index))
                return FlatModel(build_module()).vector

        client_half = registry.build(config.method.name, vars(config.method.params))
        train, test = (
            ImageSplit(images, dataset.views) for images in (dataset.train, dataset.test)
        )
        self.engine = compiled.make_compiled_engine(
            config, self.scenario.client_sizes, shape, build_module
        )
        workshop = WorkerContext(
            train,
            test,
            num_classes,
            self.scenario.client_indices,
            noisy,
            client_half,
            build_module,
            self.engine,
        )
        self.executor = make(config.executor.name, config.executor.workers, workshop)
        self.fleet = ClientPool(
            self.executor,
            self.scenario.client_indices,
            noisy,
            initial_weights,
            self.method.skip_nonfinite_updates,
        )
        self.round = 0
        self.curve: list[dict[str, Any]] = []
        self.journal: list[dict[str, Any]] = []
        self.seconds = {"method": 0.0, "evaluation": 0.0}
        self.checkpoint = CheckpointFile(config.run_dir)
        self.confusion: np.ndarray | None = None
        self.audited: dict[
            int, torch.Tensor
        ] = {}  # changed labels when the journal last told of them

    def context(self, stage: str) -> RoundContext:
        return RoundContext(self.config.seed, self.round, stage, self.spec, self.config.train)

    def loop(self) -> None:
        method, fleet = self.method, self.fleet
        write_yaml(self.config.run_dir / "config.yaml", to_plain_data(self.config))
        self.scenario.save(self.config.run_dir / "scene.npz")
        method.setup(self.spec, fleet, self.context("setup"))
        self._resume()
        self.tracker.plan(method.planned_participations, self.curve)
        last_save = time.monotonic()
        while (stage := method.stage(self.round)) is not None:
            self.run_round(stage)
            self.tracker.advance(self.round, stage, fleet.meter.participations)
            if time.monotonic() - last_save >= self.config.checkpoint.every_seconds:
                self._save()
                last_save = time.monotonic()

    def run_round(self, stage: str) -> None:
        """One round, and a test when one is due."""
        method, fleet = self.method, self.fleet
        started = time.perf_counter()
        ctx = self.context(stage)
        before = fleet.meter.participations
        ids = method.select_clients(fleet, ctx)
        method.before_round(fleet, ids, ctx)
        replies = fleet.run_task(ids, method.local_update, method.payload, ctx, participation=True)
        if replies:
            method.aggregate(replies, ctx)
        method.after_round(fleet, ctx)
        self.seconds["method"] += time.perf_counter() - started
        self.round += 1
        if self._due(before, stage):
            self._evaluate(stage)

    def _due(self, participations_before: int, stage: str) -> bool:
        step = self.config.evaluate.every * self.spec.clients_per_round
        return (
            self.method.stage(self.round) != stage
            or self.fleet.meter.participations // step > participations_before // step
        )

    def _evaluate(self, stage: str) -> None:
        started = time.perf_counter()
        result = evaluation.test(self.executor, self.method, self.dataset)
        if not np.isfinite(result.loss):
            raise DivergenceError(f"round {self.round} ({stage}): the test loss is not finite")
        diagnosis = self.method.diagnose(self.fleet)
        scores: dict[str, float] = {}
        arrays = dict(diagnosis.arrays)
        if self.dataset.labels_are_clean:
            scores = diagnostics.score(diagnosis, self.fleet, self.scenario)
            scores |= diagnostics.memorisation(
                self.executor,
                self.method,
                self.scenario,
                self.config.seed,
                self.config.evaluate.memorised_samples,
            )
            if diagnosis.arrays or self.method.stage(self.round) != stage:
                arrays |= diagnostics.label_audit(
                    self.fleet,
                    self.audited,
                    diagnosis.noisy_samples if diagnosis.arrays else None,
                    self.scenario,
                )
                self.audited = dict(self.fleet.changed_labels)
        meter = self.fleet.meter
        self.confusion = _confusion(self.dataset.test_labels, result.top, self.dataset.num_classes)
        if arrays:
            self.journal.append(
                {
                    "round": self.round,
                    "stage": stage,
                    "participations": meter.participations,
                    **as_lists(arrays),
                }
            )
        self.seconds["evaluation"] += time.perf_counter() - started
        row = {
            "round": self.round,
            "stage": stage,
            "participations": meter.participations,
            "accuracy": result.accuracy,
            "loss": result.loss,
        }
        row |= {
            "bytes_down": meter.bytes_down,
            "bytes_up": meter.bytes_up,
            "samples_trained": meter.samples_trained,
        }
        self.curve.append({**row, "seconds": round(self.seconds["method"], 3), **scores})
        self.tracker.evaluated(self.curve[-1])

    def _save(self) -> None:
        state = {
            "round": self.round,
            "method": self.method.state,
            "fleet": (self.fleet.changed_labels, self.fleet.states),
            "meter": asdict(self.fleet.meter),
            "curve": self.curve,
            "journal": self.journal,
            "confusion": self.confusion,
            "audited": self.audited,
            "seconds": self.seconds,
        }
        self.checkpoint.save(dumps(state))
        self._write_curve()

    def _resume(self) -> None:
        state, complaints = self.checkpoint.load()
        for line in complaints:
            self.tracker.warn(line)
        if state is None:
            return
        self.round = state["round"]
        self.method.state = state["method"]
        self.fleet.changed_labels, self.fleet.states = state["fleet"]
        self.fleet.meter = CostMeter(**state["meter"])
        self.curve, self.journal, self.confusion, self.seconds = (
            state["curve"],
            state["journal"],
            state["confusion"],
            state["seconds"],
        )
        self.audited = state.get("audited", {})  # a checkpoint of an earlier version has none
        self.tracker.warn(f"goes on from round {self.round}")

    def _write_curve(self) -> None:
        if self.curve:
            write_curve(self.config.run_dir / "curve.csv", self.curve)

    def finish(self, status: str, reason: str) -> dict[str, Any]:
        folder = self.config.run_dir
        if (
            status != "failed"
        ):  # a failed run keeps its checkpoint, so that it goes on from there once the cause is mended
            self.checkpoint.delete()
        self._write_curve()
        if self.journal:
            write_journal(folder / "journal.jsonl", self.journal)
        accuracies = [row["accuracy"] for row in self.curve]
        summary: dict[str, Any] = {}
        if accuracies and status == "done":
            best = int(np.argmax(accuracies))
            summary = {
                "best": accuracies[best],
                "best_round": self.curve[best]["round"],
                "last10": float(np.mean(accuracies[-EVALUATED_LAST:])),
                "final": accuracies[-1],
            }
        noise = self.scenario.noise
        record = {
            "protocol": PROTOCOL,
            "run_id": self.config.run_id,
            "status": status,
            "reason": reason,
            "config": self.config.science(),
            "scene": {
                "hash": self.scenario.hash,
                "noise_convention": noise.convention,
                "wrong_labels": float(
                    noise.flipped[np.concatenate(self.scenario.client_indices)].mean()
                ),
                "noisy_clients": int((noise.client_level > 0).sum()),
                "client_sizes": [
                    int(self.scenario.client_sizes.min()),
                    int(self.scenario.client_sizes.max()),
                ],
            },
            "oracle": self.method.oracle_reason(),
            "rounds": self.round,
            "summary": summary,
            "scores": _last_scores(self.curve),
            "cost": asdict(self.fleet.meter),
            "confusion": [] if self.confusion is None else self.confusion.tolist(),
            "versions": versions(),
            "time": {
                "seconds_method": round(self.seconds["method"], 3),
                "seconds_evaluation": round(self.seconds["evaluation"], 3),
                "executor": self.config.executor.name,
                "workers": self.executor.workers,
                "compiled": self.engine is not None,
                "peak_memory_mb": _peak_memory_mb(),
            },
        }
        write_json(folder / "record.json", record)
        return record


def _last_scores(curve: list[dict[str, Any]]) -> dict[str, float]:
    """The newest value of every detection and correction score; JSON has no word for one that is not finite."""
    newest = {name: value for row in curve for name, value in row.items() if "/" in name}
    return {name: value for name, value in newest.items() if np.isfinite(value)}


def _confusion(truth: np.ndarray, top: np.ndarray, num_classes: int) -> np.ndarray:
    return np.bincount(truth * num_classes + top, minlength=num_classes**2).reshape(
        num_classes, num_classes
    )


def _peak_memory_mb() -> int:
    return (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    ) // 1024


def as_lists(value: Any) -> Any:
    """Arrays as nested lists, for JSON."""
    if isinstance(value, (np.ndarray, torch.Tensor, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {str(k): as_lists(v) for k, v in value.items()}
    return [as_lists(v) for v in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(f"{path.parent} is being written by another process") from None
        yield
