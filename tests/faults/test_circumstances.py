"""Records have the same bytes in other circumstances. All of them one by one with `make faults`."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from process_helpers import ROOT
from run_helpers import read_reproducible

from benchmarks.run import main

SWEEP = ["-m", "method=fedcorr,lsg", "scale=smoke"]
ONE_CORE = partial(os.sched_setaffinity, 0, sorted(os.sched_getaffinity(0))[:1])
CIRCUMSTANCES: dict[str, list[str]] = {
    "repeated": [],
    "other working directory": ["cwd=/"],
    "other home": ["HOME=/nonexistent"],
    "hash seed 1": ["PYTHONHASHSEED=1"],
    "hash seed 12345": ["PYTHONHASHSEED=12345"],
    "locale C": ["LC_ALL=C"],
    "locale C.UTF-8": ["LC_ALL=C.UTF-8"],
    "locale tr_TR.UTF-8": ["LC_ALL=tr_TR.UTF-8"],
    "time zone Asia/Kathmandu": ["TZ=Asia/Kathmandu"],
    "time zone America/St_Johns": ["TZ=America/St_Johns"],
    "2 OpenMP threads": ["OMP_NUM_THREADS=2"],
    "4 OpenMP threads": ["OMP_NUM_THREADS=4"],
    "4 MKL threads": ["MKL_NUM_THREADS=4"],
    "one core": ["one core"],
    "1 worker": ["executor=processes", "executor.workers=1"],
    "2 workers": ["executor=processes", "executor.workers=2"],
    "3 workers": ["executor=processes", "executor.workers=3"],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
}
ALL_AT_ONCE = ["cwd=/", "HOME=/nonexistent", "PYTHONHASHSEED=1", "LC_ALL=tr_TR.UTF-8"]
ALL_AT_ONCE += ["TZ=Asia/Kathmandu", "OMP_NUM_THREADS=4", "one core", *CIRCUMSTANCES["3 workers"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("whole")
    assert main([*SWEEP, "executor=serial", f"runs_dir={runs}"]) == 0
    return runs


def check_sweep(changes: list[str], runs: Path, whole: Path) -> None:
    """Run the sweep and compare all files of its runs, except times."""
    environment, options = dict(os.environ), ["executor=serial"]
    directory, prepare = ROOT, None
    for change in changes:
        key, _, value = change.partition("=")
        if change == "one core":
            prepare = ONE_CORE
        elif key == "cwd":
            directory = Path(value)
        elif key.isupper():
            environment[key] = value
        else:
            options = [old for old in options if old.partition("=")[0] != key] + [change]
    command = [sys.executable, "-m", "benchmarks.run", *SWEEP, *options, f"runs_dir={runs}"]
    done = subprocess.run(
        command, cwd=directory, env=environment, preexec_fn=prepare, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = {path.parent.name for path in whole.glob("*/record.json")}
    assert len(names) == 2
    assert {path.parent.name for path in runs.glob("*/record.json")} == names
    for name in names:
        assert read_reproducible(runs / name) == read_reproducible(whole / name)
        scenarios = [(folder / name / "scenario.npz").read_bytes() for folder in (runs, whole)]
        assert scenarios[0] == scenarios[1]


def test_all_circumstances_at_once(tmp_path: Path, whole: Path) -> None:
    check_sweep(ALL_AT_ONCE, tmp_path, whole)


@pytest.mark.faults
@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_each_circumstance(name: str, tmp_path: Path, whole: Path) -> None:
    check_sweep(CIRCUMSTANCES[name], tmp_path, whole)
