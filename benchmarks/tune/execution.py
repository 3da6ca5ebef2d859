"""Execution of the runs of several studies, in one or more processes."""

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import interruption
from benchmarks.config.schema import RunConfig
from benchmarks.records.lease import read_lease
from benchmarks.run import run_from_config
from benchmarks.tune.study import FIRST, FULL, Study

POLL_SECONDS = 2.0  # between checks of runs that another command executes


class InProcessExecutor(Executor):
    """Executes at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **options))
        return future


def execute_studies(
    studies: Sequence[Study], jobs: int, on_finished: Callable[[Study], None]
) -> None:
    """Run all trials. The next free process takes the first open run, in the order of the studies.

    Runs that another command executes are left to it. This command waits for their results when
    nothing else is open. `on_finished` is called for every study after its last run.
    """
    active: dict[Future[str | None], tuple[Study, RunConfig, Executor]] = {}
    skipped: set[Path] = set()
    unfinished = list(studies)
    with interruption.defer_signals_of_sweep() as file, ExitStack() as stack:
        idle = [stack.enter_context(pool) for pool in _make_pools(jobs, file)]
        while unfinished:
            pending = {study: study.pending() for study in unfinished}
            running = [study for study, *_ in active.values()]
            for study in [one for one in unfinished if not pending[one] and one not in running]:
                unfinished.remove(study)
                on_finished(study)
            taken = skipped | {config.run_dir for _, config, _ in active.values()}
            runs = [(study, run.config) for study in unfinished for run in pending[study]]
            ready = [(study, config) for study, config in runs if config.run_dir not in taken]
            for study, config in ready[: len(idle)]:
                pool = idle.pop()
                active[pool.submit(_execute, config)] = (study, config, pool)
            finished = wait(active, return_when=FIRST_COMPLETED).done
            interruption.raise_if_requested()
            for future in finished:
                study, config, pool = active.pop(future)
                idle.append(pool)
                status = future.result()
                if status is None:
                    skipped.add(config.run_dir)
                elif status == "failed":
                    study.failed.add(config.run_id)
                _report_trial(study, config)
            if unfinished and not active and not ready:
                time.sleep(POLL_SECONDS)
                leases = {run_dir: read_lease(run_dir) for run_dir in skipped}
                skipped = {path for path, lease in leases.items() if lease and not lease.is_stale}


def _make_pools(jobs: int, stop_file: Path) -> list[Executor]:
    """One pool per process: a pool can block forever if a process dies while another one starts."""
    if jobs == 1:
        return [InProcessExecutor()]
    context = multiprocessing.get_context("spawn")
    initializer, arguments = interruption.serve_sweep, (os.getpid(), stop_file)
    with interruption.block_signals():
        pools = [ProcessPoolExecutor(1, context, initializer, arguments) for _ in range(jobs)]
        for pool in pools:
            pool.submit(os.getpid)  # starts the process
    return [*pools]


def _execute(config: RunConfig) -> str | None:
    record = run_from_config(config)
    return record.status if record else None


def _report_trial(study: Study, config: RunConfig) -> None:
    """Print one line when all runs of a trial have ended."""
    for stage in (FIRST, FULL):
        for trial in study.trials(stage):
            ids = [run.config.run_id for run in study.runs(stage, trial)]
            score = study.score(stage, trial) if config.run_id in ids else None
            if score is not None:
                shown = "unsuccessful" if score == -math.inf else f"{100 * score:.2f} %"
                values = " ".join(f"{key}={value:g}" for key, value in study.values[trial].items())
                place = f"trial {trial + 1} of {study.settings.trials}, {study.budgets[stage]}"
                print(f"{study.method}: {place} participations: {shown} ({values})", flush=True)
