"""A sweep of six smoke runs on Ray: the launcher of the suite, and joblib's backend of Ray.

    python tests/cluster/ray_backends.py [REPEATS]

Prints the seconds of each, and what happens if the process of a run is killed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SWEEP = ["scale=smoke", "method=fedavg,lsg", "seed=1,2,3", "executor=serial"]
LONG = ["budget.participations=120", "checkpoint.every_seconds=0"]


def run_with_joblib(overrides: list[str]) -> None:
    """The sweep of a command line, by joblib."""
    import joblib
    from ray.util.joblib import register_ray

    from benchmarks.config.sweep import expand
    from benchmarks.executors.ray_actors import connect
    from benchmarks.run import run_from_config

    connect(None)
    register_ray()
    configs = [config for _, config in expand(overrides)]
    with joblib.parallel_config(backend="ray", n_jobs=2):
        joblib.Parallel()(joblib.delayed(run_from_config)(config) for config in configs)


def command(kind: str, *overrides: str) -> list[str]:
    if kind == "joblib":
        return [sys.executable, __file__, "joblib", *SWEEP, *overrides]
    options = [*SWEEP, *overrides, "hydra/launcher=ray"]
    return [sys.executable, "-m", "benchmarks.run", "-m", *options]


def kill_a_run(runs: Path, end: threading.Event) -> None:
    """Kill the process that holds the first lease, once it has a checkpoint."""
    import json

    while not end.wait(0.05):
        for path in runs.glob("*/.lease.*"):
            if any(path.parent.glob("checkpoint*")):
                os.kill(json.loads(path.read_text())["process"], signal.SIGKILL)
                return


def execute(kind: str, *overrides: str, seconds: float = 600.0, kill: bool = False) -> str:
    """Run the sweep. Returns its times, exit code, number of records and last line."""
    with tempfile.TemporaryDirectory(prefix="fln-ray-") as name:
        runs, end, started = Path(name), threading.Event(), time.monotonic()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command(kind, *overrides, f"runs_dir={runs}"),
            **{"cwd": ROOT, "env": environment, "text": True},
            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE},
        )
        if kill:
            threading.Thread(target=kill_a_run, args=(runs, end), daemon=True).start()
        try:
            error = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            process.terminate()
            error = f"does not end\n{process.communicate()[1]}".splitlines()[0]
        end.set()
        took = time.monotonic() - started
        records = [path.stat().st_mtime for path in runs.glob("*/record.json")]
        starts = [path.stat().st_mtime for path in runs.glob("*/config.yaml")]
        span = max(records) - min(starts) if records else 0.0
        last = (error.strip().splitlines() or [""])[-1]
        return (
            f"{took:.1f} s, {span:.1f} s from the first run to the last record, "
            f"exit code {process.returncode}, {len(records)} of 6 records {last[:200]}"
        )


def main(repeats: int) -> None:
    for kind in ("launcher", "joblib") * repeats:
        print(f"{kind}: {execute(kind)}", flush=True)
    for kind in ("launcher", "joblib"):
        print(f"{kind}, one process killed: {execute(kind, *LONG, kill=True)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["joblib"]:
        run_with_joblib(sys.argv[2:])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 3)
