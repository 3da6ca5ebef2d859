"""Launcher that executes runs as Ray tasks."""

from collections.abc import Sequence
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from benchmarks.interruption import requested
from methods.core.errors import UserError, first_line, require_package

POLL_SECONDS = 1.0


class RayLauncher(Launcher):
    """A run whose process or node is lost is executed again: it resumes from its checkpoint."""

    def __init__(self, address: str | None, cpus: float, gpus: float, max_retries: int):
        self._address, self._retries = address, max_retries
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.task_function = task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Execute all jobs. A signal ends them after their checkpoints."""
        require_package("ray", extra="ray")
        # Imported here because Hydra imports its plugins in every command.
        import ray

        from benchmarks.executors.ray_actors import connect

        connect(self._address, self._resources["num_cpus"])
        try:
            task = ray.remote(_execute).options(max_retries=self._retries, **self._resources)
            job = (self.hydra_context, self.config, self.task_function, Singleton.get_state())
            shared = ray.put(job)
            pending = jobs = [
                task.remote(shared, list(overrides), initial_job_idx + number)
                for number, overrides in enumerate(job_overrides)
            ]
            while pending:
                _, pending = ray.wait(pending, timeout=POLL_SECONDS)
                if requested():
                    for waiting in pending:  # calls the task's own handler of SIGINT
                        ray.cancel(waiting)
                    ray.wait(pending, num_returns=len(pending))
                    return []
            return [ray.get(finished) for finished in jobs]
        except ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {first_line(error)}; rerun the command to go on"
            raise UserError(f"cannot finish the sweep: {reason}") from error
        finally:
            ray.shutdown()


def _execute(job: tuple[Any, ...], overrides: list[str], number: int) -> JobReturn:
    hydra_context, config, task_function, state = job
    setup_globals()
    Singleton.set_state(state)
    sweep_config = hydra_context.config_loader.load_sweep_config(config, overrides)
    with open_dict(sweep_config):
        sweep_config.hydra.job.id = str(number)
        sweep_config.hydra.job.num = number
    result = run_job(
        hydra_context=hydra_context,
        config=sweep_config,
        task_function=task_function,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    if result.status is JobStatus.FAILED:
        result.return_value  # noqa: B018 - raises the exception
    return JobReturn(status=result.status, _return_value=result.return_value)
