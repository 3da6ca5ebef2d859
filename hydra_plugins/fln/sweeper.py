"""Sweeper that checks all runs before the first one starts."""

import os
from collections.abc import Mapping, Sequence
from inspect import signature
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from benchmarks import interruption
from methods.core.errors import UserError, first_line, invalid, unknown

if TYPE_CHECKING:
    from benchmarks.config.sweep import PlannedRun


class CheckedSweeper(Sweeper):
    """Runs all combinations of the values of the command line, and the runs of experiment=NAME.

    Every run is composed and validated first: dataset, model, scenario and method. Unfinished runs
    are then handed to the configured launcher. The results of all runs are printed at the end.
    """

    def __init__(self, params: Mapping[str, str] | None = None):
        self._params = dict(params or {})
        self._disk_errors: list[OSError] = []  # They do not end the other runs.

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep. Ends the command with exit code 1 if a run failed."""
        # Modules of the suite are imported here because Hydra imports its plugins in every command.
        from benchmarks.config.compose import Composer
        from benchmarks.config.sweep import plan_runs
        from benchmarks.run import execute_runs
        from benchmarks.terminal.run_tables import print_results_table

        assert self.config is not None
        shared: Any = OmegaConf.to_container(self.config.hydra.overrides.hydra, resolve=False)
        composer = Composer(self.config.hydra.job.config_name, shared)
        self._joblib_options()
        sweeps = [*(f"{key}={value}" for key, value in self._params.items()), *arguments]
        code = execute_runs(plan_runs(sweeps, composer), self._launch, print_results_table)
        if self._disk_errors:
            raise self._disk_errors[0]
        if code:
            raise SystemExit(code)

    def _joblib_options(self) -> dict[str, Any]:
        """Options of joblib.Parallel, if the launcher has them. Raises UserError."""
        options: dict[str, Any] = getattr(self.launcher, "joblib", None) or {}
        if options.get("n_jobs") == 0:
            raise invalid("hydra.launcher.n_jobs", 0, "an integer other than 0")
        if options.get("backend") not in (None, "loky"):  # The launcher would replace it by loky.
            raise invalid("hydra.launcher.backend", options["backend"], "loky")
        if not options:
            return {}
        from joblib import Parallel

        for key in options:
            if key not in (known := signature(Parallel).parameters):
                raise unknown("key", f"hydra.launcher.{key}", known)
        numbers = {key: int(v) for key, v in options.items() if str(v).isdecimal()}
        try:
            Parallel(**options | numbers)
        except (TypeError, ValueError) as error:
            raise UserError(f"cannot start hydra/launcher=joblib: {first_line(error)}") from error
        return options

    def _launch(self, runs: "Sequence[PlannedRun]") -> None:
        """Launch runs, and the unfinished ones again if a worker process of the launcher dies."""
        from benchmarks.terminal.run_tables import finished_run_ids

        assert self.launcher is not None
        launcher = self.launcher

        def launch() -> None:
            finished = finished_run_ids(runs)
            pending = [run.overrides for run in runs if run.config.run_id not in finished]
            try:
                jobs = launcher.launch(pending, initial_job_idx=0)
            except Exception as error:
                modules = [frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)]
                if not any(name.startswith("submitit.") for name in modules):
                    raise
                reason = f"{first_line(error)}; rerun the command to go on"  # of Slurm or of a job
                raise UserError(f"cannot finish the sweep: {reason}") from error
            for job in jobs:
                if isinstance(job._return_value, OSError):
                    self._disk_errors.append(job._return_value)
                else:
                    job.return_value  # noqa: B018 - raises the exception of a failed job

        with interruption.defer_signals_of_sweep() as stop_file:
            if options := self._joblib_options():
                from joblib.externals.loky.backend import resource_tracker

                with interruption.block_signals():
                    resource_tracker.ensure_running()
                options["initializer"] = interruption.serve_sweep
                options["initargs"] = (os.getpid(), stop_file)
            interruption.launch_until_done(launch)
