"""Round loop: the only caller of the server-side hooks of a method."""

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import data
from benchmarks.config.schema import PROTOCOL_VERSION, RunConfig, to_plain_data
from benchmarks.engine.compiled import CompiledEngine
from benchmarks.engine.selection import select_engine
from benchmarks.executors import WorkerError, make_executor
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.cost import CostMeter
from benchmarks.federation.devices import first_device
from benchmarks.federation.pool import ClientPool
from benchmarks.federation.view import PoolView
from benchmarks.federation.worker import WorkerContext
from benchmarks.interruption import (
    InterruptedCommand,
    catch_signals,
    defer_signals,
    raise_if_requested,
    requested,
)
from benchmarks.loop import diagnostics, results
from benchmarks.loop.checkpoint import CheckpointFile
from benchmarks.loop.evaluation import EvaluationResult, evaluate, sample_probe
from benchmarks.loop.preflight import build_method, module_builder
from benchmarks.records import files, stale
from benchmarks.records.lease import Lease, RunLeasedError, hold_lease
from benchmarks.records.record import (
    DeviceSection,
    Record,
    Status,
    Time,
    package_versions,
    write_record,
)
from benchmarks.records.source import source_digests
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker
from methods.core import registry
from methods.core.contract import DivergenceError
from methods.core.flat_model import FlatModel
from methods.core.machine import process_memory_mb
from methods.core.streams import derive_seed
from methods.core.task import RoundContext


def execute_run(config: RunConfig, tracker: Tracker) -> Record:
    """Execute a run and write its record. A completed run is not repeated without `force`."""
    run_dir = config.run_dir
    with catch_signals(), hold_lease(run_dir) as lease:
        if config.force:
            checkpoint_file(config).delete()
        record, line = stale.find_finished(config)
        if line:
            tracker.report(line)
        if record is not None:
            return record
        (run_dir / files.RECORD_FILE).unlink(missing_ok=True)
        run = Run(config, tracker, lease=lease)
        status: Status
        try:
            with catch_signals():
                run.run()
            status, reason = "done", ""
        except InterruptedCommand as interruption:
            interruption.consequence = run.next_start()
            tracker.log(f"interrupted: {interruption.consequence}")
            raise
        # Another process has taken over and writes the record, or stale=error stops the command.
        except (RunLeasedError, stale.StaleSourceError):
            raise
        except DivergenceError as error:
            status, reason = "diverged", str(error)
        except Exception as error:
            tracker.log(traceback.format_exc())
            # The message of a WorkerError starts with the type of the worker's exception.
            name = "" if isinstance(error, WorkerError) else f"{type(error).__name__}: "
            status, reason = "failed", f"{name}{error}".split("\n")[0]
        finally:
            run.executor.close()
        record = run.write_record(status, reason)
        tracker.on_end(record)
    return record


class Run:
    """The state of a run between rounds."""

    def __init__(
        self,
        config: RunConfig,
        tracker: Tracker,
        scenario: Scenario | None = None,
        lease: Lease | None = None,
    ):
        """Use `scenario` if given, otherwise build it from the configuration."""
        self.config, self.tracker, self.lease = config, tracker, lease
        self.dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
        self.scenario = scenario or build_scenario(config, self.dataset)
        self.method, self.spec = build_method(config, self.dataset)
        build_module = module_builder(config, self.dataset)
        device = first_device(config.executor)
        self.device, self.worker_memory_mb = DeviceSection(type=device.type), 0
        sizes, shape = self.scenario.client_sizes, self.dataset.shape
        self.engine = select_engine(config, sizes, shape, build_module, tracker.report, device)
        context = self._make_worker_context(build_module)
        self.executor = make_executor(config.executor, context)
        self.pool = ClientPool(
            self.executor,
            self.scenario.client_indices,
            context.all_given_labels,
            partial(_initial_weights, config.seed, build_module),
            self.method.skip_nonfinite_updates,
        )
        self.pool_view = PoolView(self.pool)
        max_mislabeled = (
            config.evaluate.memorization_samples if self.dataset.labels_are_clean else 0
        )
        self.probe = sample_probe(self.scenario, config.seed, max_mislabeled)
        self.source = source_digests(config)
        self.round = 0
        self.curve: list[dict[str, Any]] = []
        self.journal: list[dict[str, Any]] = []
        self.seconds = {"method": 0.0, "evaluation": 0.0}
        self.checkpoint = checkpoint_file(config)
        self.saved_round: int | None = None  # of the last checkpoint
        self.confusion: np.ndarray | None = None
        self.labels_at_last_audit: dict[int, Tensor] = {}

    def _make_worker_context(self, build_module: Callable[[], nn.Module]) -> WorkerContext:
        dataset, method = self.dataset, self.config.method
        return WorkerContext(
            ImageSplit(dataset.train, dataset.views),
            ImageSplit(dataset.test, dataset.views),
            dataset.num_classes,
            self.scenario.client_indices,
            torch.from_numpy(self.scenario.noise.labels),
            registry.build(method.name, vars(method.params)),  # the client side has no server state
            build_module,
            self.engine,
            self.config.executor.precision,
            self.config.executor.cuda_graph,
        )

    def context(self, stage: str) -> RoundContext:
        stream_root = derive_seed(self.config.seed, "method streams")
        return RoundContext(stream_root, self.round, stage, self.spec, self.config.train)

    def run(self) -> None:
        """Run all rounds, from the last checkpoint if there is one."""
        run_dir = self.config.run_dir
        files.write_yaml(run_dir / files.CONFIG_FILE, to_plain_data(self.config))
        self.scenario.save(run_dir / files.SCENARIO_FILE)
        self.method.setup(self.spec, self.pool_view, self.context("setup"))
        self._resume()
        self.device, self.worker_memory_mb = results.describe_device(self.executor)
        self.tracker.on_start(self.method.planned_participations, self.curve)
        last_save = time.monotonic()
        with defer_signals():
            while (stage := self.method.stage(self.round)) is not None:
                if requested():
                    self._save_checkpoint()
                    raise_if_requested()
                self.run_round(stage)
                self._report_round(stage)
                if time.monotonic() - last_save >= self.config.checkpoint.every_seconds:
                    self._save_checkpoint()
                    last_save = time.monotonic()
        meter = self.pool.meter
        if meter.dropped_models and meter.dropped_models >= meter.participations:
            raise DivergenceError(f"all {meter.dropped_models} client models had NaN or Inf")
        self.device, self.worker_memory_mb = results.describe_device(self.executor)  # the peaks

    def run_round(self, stage: str) -> None:
        """Run one round, and an evaluation if one is due."""
        method, pool, view = self.method, self.pool, self.pool_view
        started = time.perf_counter()
        ctx = self.context(stage)
        participations_before = pool.meter.participations
        ids = method.select_clients(view, ctx)
        method.before_round(view, ids, ctx)
        replies = pool.run_task(ids, method.local_update, method.payload, ctx, participation=True)
        if replies:
            method.aggregate(replies, ctx)
        method.after_round(view, ctx)
        self.seconds["method"] += time.perf_counter() - started
        self.round += 1
        if self._evaluation_due(participations_before, stage):
            self._evaluate(stage)

    def _report_round(self, stage: str) -> None:
        participations = self.pool.meter.participations
        if self.lease is not None:
            planned = self.method.planned_participations
            position = {"round": self.round, "stage": stage, "participations": participations}
            self.lease.progress = position | {"planned": planned}
        self.tracker.on_round(self.round, stage, participations)

    def _evaluation_due(self, participations_before: int, stage: str) -> bool:
        if self.method.stage(self.round) != stage:
            return True
        interval = self.config.evaluate.every * self.spec.clients_per_round
        return self.pool.meter.participations // interval > participations_before // interval

    def _evaluate(self, stage: str) -> None:
        started = time.perf_counter()
        result = evaluate(self.executor, self.method, self.dataset, self.probe, self.config.seed)
        if not np.isfinite(result.loss):
            raise DivergenceError(f"round {self.round} ({stage}): the test loss is not finite")
        self.confusion = result.confusion
        meter = self.pool.meter
        position = {"round": self.round, "stage": stage, "participations": meter.participations}
        metrics, arrays = self._diagnose(stage, result)
        if arrays:
            self.journal.append(position | to_plain_data(arrays))
        self.seconds["evaluation"] += time.perf_counter() - started
        row = position | {
            "accuracy": result.accuracy,
            "loss": result.loss,
            **diagnostics.validation_metrics(result.predicted_held_out, self.scenario),
            "bytes_down": meter.bytes_down,
            "bytes_up": meter.bytes_up,
            "samples_trained": meter.samples_trained,
            "seconds": round(self.seconds["method"], 3),
        }
        self.curve.append(row | metrics)
        self.tracker.on_evaluation(self.curve[-1])

    def _diagnose(
        self, stage: str, result: EvaluationResult
    ) -> tuple[diagnostics.Metrics, dict[str, Any]]:
        """Metrics for the learning curve and arrays for the journal."""
        pool, scenario = self.pool, self.scenario
        diagnosis = self.method.diagnose(self.pool_view)
        arrays = dict(diagnosis.arrays)
        if not self.dataset.labels_are_clean:
            return {}, arrays
        metrics = diagnostics.diagnosis_metrics(diagnosis, pool, scenario)
        metrics |= diagnostics.memorization_metrics(
            result.predicted_mislabeled, self.probe.mislabeled, scenario
        )
        if diagnosis.arrays or self.method.stage(self.round) != stage:
            masks = diagnosis.noisy_samples if diagnosis.arrays else None
            arrays |= diagnostics.label_change_report(
                pool, self.labels_at_last_audit, masks, scenario
            )
            self.labels_at_last_audit = dict(pool.relabeled)
        return metrics, arrays

    def _state(self) -> dict[str, Any]:
        """Everything that a run needs to resume: plain data, and the server state."""
        return {
            "source": self.source,
            "round": self.round,
            "method": self.method.state,
            "relabeled": self.pool.relabeled,
            "client_states": self.pool.states,
            "meter": asdict(self.pool.meter),
            "curve": self.curve,
            "journal": self.journal,
            "confusion": self.confusion,
            "labels_at_last_audit": self.labels_at_last_audit,
            "seconds": self.seconds,
        }

    def _save_checkpoint(self) -> None:
        self._require_lease()
        self.checkpoint.save(self._state())
        self.saved_round = self.round
        self._write_curve()

    def _resume(self) -> None:
        state, warnings = self.checkpoint.load(self._state())
        for line in warnings:
            self.tracker.report(line)
        if state is None:
            return
        is_usable, line = stale.can_resume(self.config, state["source"])
        if line:
            self.tracker.report(line)
        if not is_usable:
            self.checkpoint.delete()
            return
        self.round = self.saved_round = state["round"]
        self.method.state = state["method"]
        self.pool.relabeled, self.pool.states = state["relabeled"], state["client_states"]
        self.pool.meter = CostMeter(**state["meter"])
        self.curve, self.journal = state["curve"], state["journal"]
        self.confusion, self.seconds = state["confusion"], state["seconds"]
        self.labels_at_last_audit = state["labels_at_last_audit"]
        self.tracker.report(f"resuming from round {self.round}")

    def next_start(self) -> str:
        """What the same command does after an interruption."""
        if self.saved_round is None:
            return "no checkpoint yet; rerun the same command to start from the first round"
        return f"rerun the same command to resume from the checkpoint of round {self.saved_round}"

    def _require_lease(self) -> None:
        """Raise RunLeasedError if another process has taken over, as after a long suspension."""
        if self.lease is not None:
            self.lease.renew()

    def _write_curve(self) -> None:
        if self.curve:
            files.write_curve(self.config.run_dir / files.CURVE_FILE, self.curve)

    def write_record(self, status: Status, reason: str) -> Record:
        """Write the learning curve, the journal and the record."""
        self._require_lease()
        run_dir = self.config.run_dir
        self._write_curve()
        if self.journal:
            files.write_journal(run_dir / files.JOURNAL_FILE, self.journal)
        record = Record(
            protocol_version=PROTOCOL_VERSION,
            run_id=self.config.run_id,
            status=status,
            reason=reason,
            config=self.config.hashed_config(),
            scenario=results.describe_scenario(self.scenario),
            oracle=self.config.oracle_reason,
            rounds=self.round,
            summary=results.summarize_accuracy(self.curve) if status == "done" else None,
            metrics=results.last_metrics(self.curve),
            cost=self.pool.meter,
            confusion=[] if self.confusion is None else self.confusion.tolist(),
            versions=package_versions(self.source),
            source=self.source,
            time=Time(
                seconds_method=round(self.seconds["method"], 3),
                seconds_evaluation=round(self.seconds["evaluation"], 3),
                executor=self.config.executor.name,
                workers=self.executor.workers,
                compiled=isinstance(self.engine, CompiledEngine),
                peak_memory_mb=process_memory_mb() + self.worker_memory_mb,
                device=self.device,
            ),
        )
        write_record(run_dir, record)
        if status != "failed":  # A failed run can resume from its checkpoint.
            self.checkpoint.delete()
        return record


def checkpoint_file(config: RunConfig) -> CheckpointFile:
    """The checkpoint of a run."""
    identity = {"run_id": config.run_id, "method": config.method.name}
    return CheckpointFile(config.run_dir, identity)


def _initial_weights(seed: int, build_module: Callable[[], nn.Module], index: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "init", index))
        return FlatModel(build_module()).vector
