"""Sweeper that checks all runs before the first one starts."""

from collections.abc import Mapping
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class CheckedSweeper(Sweeper):
    """Runs all combinations of the values of the command line, and the runs of experiment=NAME.

    Every run is composed and validated first: dataset, model, scenario and method. Unfinished runs
    are then handed to the configured launcher. The results of all runs are printed at the end.
    """

    def __init__(self, params: Mapping[str, str] | None = None):
        self._params = dict(params or {})

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store the configuration and create the launcher."""
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep. Ends the command with exit code 1 if a run failed."""
        # Modules of the suite are imported here because Hydra imports its plugins in every command.
        from benchmarks.config.compose import Composer
        from benchmarks.config.sweep import plan_runs
        from benchmarks.run import run_sweep

        assert self.config is not None
        shared: Any = OmegaConf.to_container(self.config.hydra.overrides.hydra, resolve=False)
        composer = Composer(self.config.hydra.job.config_name, shared)
        sweeps = [*(f"{key}={value}" for key, value in self._params.items()), *arguments]
        returns: list[Any] = []
        code = run_sweep(
            plan_runs(sweeps, composer), lambda jobs: returns.extend(self._launch(jobs))
        )
        if code:
            raise SystemExit(code)
        return returns

    def _launch(self, jobs: list[list[str]]) -> list[Any]:
        assert self.launcher is not None
        returns = list(self.launcher.launch(jobs, initial_job_idx=0))
        for job in returns:
            job.return_value  # noqa: B018 - raises the exception of a failed job
        return returns
