"""Run one configuration, or a sweep with -m: python -m benchmarks.run [-m] key=value ..."""

import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from benchmarks import interruption
from benchmarks.config import compose
from benchmarks.config.experiments import CONF
from benchmarks.config.explain import explain_error, is_missing_source
from benchmarks.config.flags import arrange_arguments
from benchmarks.terminal.command import print_error
from methods.core.errors import UserError, cannot_use

if TYPE_CHECKING:
    from benchmarks.config.schema import RunConfig
    from benchmarks.config.sweep import PlannedRun
    from benchmarks.records.record import Record


def run_from_config(config: "RunConfig") -> "Record | None":
    """Execute a run and return its record; None if another process executes it."""
    from rich.console import Console

    from benchmarks.config.labels import run_title
    from benchmarks.loop.runner import execute_run
    from benchmarks.records.lease import RunLeasedError
    from benchmarks.terminal.run_tables import status_line
    from benchmarks.tracking.tracker import Tracker

    title, console = run_title(config), Console()
    if config.tracking.name == "wandb" and config.tracking.params.mode != "disabled":
        # The import of W&B takes about a second.
        from benchmarks.tracking.wandb_tracker import WandbTracker

        tracker: Tracker = WandbTracker(title, config, console)
    else:
        tracker = Tracker(title, config.run_dir, console)
    record, line = None, ""
    try:
        record = execute_run(config, tracker)
        line = status_line(record)
    except RunLeasedError as error:
        line = f"skipped: {error}"
    except OSError as error:
        error.filename = error.filename or str(config.run_dir)
        tracker.report(f"stopped: {cannot_use(error)}")
        raise
    finally:
        tracker.close()
    tracker.report(line)
    return record


def run_job(config: DictConfig) -> float:
    """Hydra's task function. In a sweep, returns the mean of the last 10 accuracies, or NaN."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        return _run_job_of_sweep(config)
    # Hydra would print a second line for an exception, so the command ends here.
    try:
        with interruption.catch_signals():
            code = _run_one(config)
    except (UserError, OSError) as error:
        code = print_error(error)
    if code:
        sys.exit(code)
    return 0.0


def _run_job_of_sweep(config: DictConfig) -> float:
    try:
        interruption.raise_if_requested()
        record = run_from_config(compose.validate_config(config))
        return record.summary.last10 if record and record.summary else math.nan
    except interruption.InterruptedCommand:
        if not interruption.serves_sweep():
            raise
        return math.nan  # The process of the sweep waits for its other workers, too.


def _run_one(config: DictConfig) -> int:
    from benchmarks.config.sweep import PlannedRun, add_references
    from benchmarks.terminal.run_tables import print_results_table, print_run_summary

    overrides: Any = OmegaConf.to_container(HydraConfig.get().overrides, resolve=False)
    compose.check_options([*overrides["hydra"], *overrides["task"]])
    run = PlannedRun(overrides["task"], compose.validate_config(config))
    runs = [run]
    if run.config.references:
        composer = compose.Composer(str(HydraConfig.get().job.config_name), overrides["hydra"])
        runs = add_references(runs, composer)
    return execute_runs(
        runs,
        lambda pending: [run_from_config(run.config) for run in pending],
        print_results_table
        if run.config.references
        else lambda _, finished: print_run_summary(run.config, run.config.run_id in finished),
    )


def execute_runs(
    runs: "Sequence[PlannedRun]",
    launch: "Callable[[Sequence[PlannedRun]], Any]",
    print_results: "Callable[[Sequence[PlannedRun], set[str]], int]",
) -> int:
    """Check all runs, launch those without a record, print the results. Returns the exit code."""
    from benchmarks.loop.preflight import validate_runs
    from benchmarks.records.plans import planned_sweep
    from benchmarks.terminal.run_tables import finished_run_ids, print_planned_runs

    finished = finished_run_ids(runs)
    if runs[0].config.dry_run:
        print_planned_runs(runs, finished)
        return 0
    validate_runs(runs)
    if pending := [run for run in runs if run.config.run_id not in finished]:
        with planned_sweep(runs[0].config.runs_dir, [run.config.run_id for run in runs]):
            launch(pending)
    return print_results(runs, finished)


hydra_main = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(run_job)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit codes: 0 success, 1 failed run, 2 user error, 128 + signal."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # One thread per process keeps results identical. To be set before numpy and torch are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors arrive here as exceptions
    program = sys.argv
    try:
        sys.argv = [program[0], *arrange_arguments(arguments)]
        with interruption.catch_signals(), compose.keep_hydra_state():
            with compose.errors_for_missing_sources():
                hydra_main()
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    except interruption.InterruptedCommand as error:
        print(f"interrupted: {error.consequence}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, HydraException):
            return print_error(error)
        if not is_command_error(error):
            raise
        return print_error(_explain(error, arguments))
    finally:
        sys.argv = program


def is_command_error(error: Exception) -> bool:
    """True for user errors, and for errors that Hydra raises about the command line."""
    if isinstance(error, (UserError, HydraException, OmegaConfBaseException, YAMLError)):
        return True
    if is_missing_source(error):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, (ValueError, RuntimeError)) and frame.f_globals["__name__"].startswith(
        "hydra."
    )


def _explain(error: Exception, arguments: Sequence[str]) -> UserError:
    try:
        if not isinstance(error, UserError):
            with compose.hydra_session():  # such as model=null
                compose.check_options(text for text in arguments if "=" in text and text[0] != "-")
    except UserError as known:
        return known
    except (HydraException, OSError, UserWarning):
        pass  # the first error says what is wrong
    return explain_error(error)


if __name__ == "__main__":
    # The task function belongs to the module benchmarks.run, so that other processes can import it.
    from benchmarks.run import main as run_main

    sys.exit(run_main())
