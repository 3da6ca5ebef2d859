"""Executor with Ray actors: same results as the serial executor, also after faults.

The nodes of the cluster are processes of this machine.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from process_helpers import assert_ended, descendants, start_command, wait_until
from run_helpers import SilentTracker, drop_seconds, learned_state, read_reproducible, run_to_end

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import Run, execute_run
from benchmarks.records.files import CHECKPOINT_FILE
from benchmarks.run import main
from methods.core import registry
from methods.core.task import LocalTask, Reply
from methods.lsg import LSG

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from benchmarks.executors import ray_actors  # noqa: E402
from benchmarks.executors.ray_actors import RayExecutor  # noqa: E402

METHODS = [info.name for info in registry.list_methods()]
LSG_RUN = ["method=lsg", "budget.participations=12"]


class FaultyLSG(LSG):
    """LSG, with one task that kills its worker or its node before it replies."""

    marker: Path
    victim: Callable[[], int]

    def local_update(self, task: LocalTask) -> Reply:
        reply = super().local_update(task)
        if task.ctx.round == 1 and not self.marker.exists():
            self.marker.touch()
            os.kill(self.victim(), signal.SIGKILL)
            time.sleep(600)
        return reply


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without workers. Tests are connected to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers import this module
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def set_nodes(cluster: Any, count: int) -> None:
    """Add nodes with one CPU each until `count` are alive."""
    alive = sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes())
    for _ in range(count - alive):
        cluster.add_node(num_cpus=1)


def is_actor(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::_Actor")


def results(run: Run) -> list[object]:
    return [drop_seconds(run.curve), learned_state(run)]


@pytest.fixture(scope="module")
def serial_results(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    options = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path_factory.mktemp('runs')}"]
    return results(run_to_end(compose_run([*options, *LSG_RUN])))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_equals_serial(
    method: str, cluster: Any, configure: Callable[..., RunConfig]
) -> None:
    set_nodes(cluster, 1)
    options = [f"method={method}", "budget.participations=16"]
    remote = run_to_end(configure(*options, "executor=ray"))
    assert remote.executor.workers == 1
    assert results(remote) == results(run_to_end(configure(*options)))


@pytest.mark.parametrize(
    ("victim", "nodes", "replacements"),
    [(os.getpid, 2, 0), (os.getppid, 2, 0), (os.getppid, 1, 1)],
    ids=["worker killed", "node lost", "node killed and replaced"],
)
def test_faults_do_not_change_results(
    victim: Callable[[], int],
    nodes: int,
    replacements: int,
    cluster: Any,
    open_run: Callable[..., Run],
    serial_results: list[object],
    tmp_path: Path,
) -> None:
    """A worker is the child of its node's main process."""
    set_nodes(cluster, nodes)
    run = open_run(*LSG_RUN)
    context = run.executor.context  # type: ignore[attr-defined]
    faulty = FaultyLSG(run.method.params)
    faulty.marker, faulty.victim = tmp_path / "marker", victim
    context.method = faulty
    config = compose_run(["executor=ray", f"executor.workers={nodes}"]).executor
    run.executor = run.pool.executor = RayExecutor(context, config)

    with ThreadPoolExecutor(1) as thread:
        finished = thread.submit(run.run)
        while not (faulty.marker.exists() or finished.done()):
            time.sleep(0.05)
        for _ in range(replacements):
            cluster.add_node(num_cpus=1)
        finished.result()
    assert faulty.marker.exists()
    assert results(run) == serial_results


def test_killed_driver_leaves_no_worker_and_is_resumed(
    cluster: Any, configure: Callable[..., RunConfig], tmp_path: Path
) -> None:
    set_nodes(cluster, 1)
    run = ["method=lsg", "budget.participations=40"]
    runs = tmp_path / "runs"
    options = ["scale=smoke", "checkpoint.every_seconds=0", *run, f"runs_dir={runs}"]
    # The driver's pipes are closed at the end.
    with start_command(*options, "executor=ray", f"executor.address={cluster.address}") as driver:
        wait_until(lambda: list(runs.glob(f"*/{CHECKPOINT_FILE}")), driver)
        actors = [pid for pid in descendants(os.getpid()) if is_actor(pid)]
        assert actors
        driver.kill()
    assert_ended(actors, seconds=30)
    config = configure(*run, "executor=ray")
    tracker = SilentTracker(config.run_dir)
    execute_run(config, tracker)
    assert any("resuming from round" in line for line in tracker.lines)
    expected = configure(*run, f"runs_dir={tmp_path / 'serial'}")
    execute_run(expected, SilentTracker(expected.run_dir))
    assert read_reproducible(config.run_dir) == read_reproducible(expected.run_dir)


def test_worker_that_does_not_fit_is_a_user_error(
    cluster: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_actors, "START_SECONDS", 1.0)
    options = ["scale=smoke", "executor=ray", "executor.resources.gpus=8", f"runs_dir={tmp_path}"]
    assert main(options) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: no Ray worker has started in 1 s: a worker needs {'CPU': 1")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("executor.address=127.0.0.1:1", "cannot connect to Ray at 127.0.0.1:1: [Errno 111]"),
        ("executor.address=here", "invalid executor.address='here': expected null, auto or HOST"),
        (
            "executor.resources.gpus=-1",
            "invalid executor.resources.gpus=-1: expected a number of at",
        ),
        ("executor.resources=2", "invalid executor.resources=2: expected keys cpus, gpus"),
    ],
)
def test_invalid_options_give_one_line(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ray.shutdown()  # also that of earlier tests
    assert main(["scale=smoke", "executor=ray", option, f"runs_dir={tmp_path}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
