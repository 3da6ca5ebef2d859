"""Launchers of clusters: submitit, Ray, and what is said where they are not available."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from run_helpers import SilentTracker, read_reproducible

from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.records.files import CHECKPOINT_FILE
from benchmarks.run import main

SMALL = ["scale=smoke", "budget.participations=8", "executor=serial"]


class SignalingTracker(SilentTracker):
    """Sends SIGUSR2 in the second round, as Slurm does before the time limit."""

    def on_round(self, round: int, *others: object) -> None:
        if round == 1:
            os.kill(os.getpid(), signal.SIGUSR2)


def test_job_is_requeued_after_a_checkpoint(configure: Callable[..., RunConfig]) -> None:
    config = configure("budget.participations=16")
    checkpoints = []

    def requeue(number: int, frame: FrameType | None) -> None:
        checkpoints.extend(config.run_dir.glob(CHECKPOINT_FILE))
        raise SystemExit(number)

    previous = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit):
            execute_run(config, SignalingTracker(config.run_dir))
        assert checkpoints
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, previous)
    tracker = SilentTracker(config.run_dir)
    assert execute_run(config, tracker).status == "done"
    assert "resuming from round 1" in tracker.lines


@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_launcher_gives_the_same_results(launcher: str, tmp_path: Path) -> None:
    pytest.importorskip({"ray": "ray", "submitit_local": "submitit"}[launcher])
    runs = [*SMALL, "seed=1,2"]
    assert main(["-m", *runs, f"runs_dir={tmp_path / 'here'}"]) == 0
    options = [f"hydra/launcher={launcher}", f"runs_dir={tmp_path / 'there'}"]
    assert main(["-m", *runs, *options]) == 0
    directories = sorted(path.parent for path in (tmp_path / "here").glob("*/record.json"))
    assert len(directories) == 2
    for directory in directories:
        assert read_reproducible(tmp_path / "there" / directory.name) == read_reproducible(
            directory
        )


@pytest.mark.parametrize("preset", ["slurm_cpu", "slurm_gpu"])
def test_missing_slurm_gives_one_line(
    preset: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ["-m", *SMALL, "seed=1,2", f"cluster={preset}", f"runs_dir={tmp_path / 'runs'}"]
    assert main(options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('error: cannot finish the sweep: Could not detect "srun"')


def test_missing_ray_cluster_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    options = ["cluster=ray", "hydra.launcher.address=127.0.0.1:1", f"runs_dir={tmp_path}"]
    assert main(["-m", *SMALL, "seed=1,2", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: cannot connect to Ray at 127.0.0.1:1")
