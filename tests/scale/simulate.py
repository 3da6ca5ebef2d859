"""Time and memory of the commands that read records, with many finished records.

    python tests/scale/simulate.py [COUNT]

Executes one real run at smoke scale and copies it COUNT times (10,000 if not given). The copies
have the configurations and run ids of the runs of all published tables, with seeds 1, 2, ..., and
other accuracies.
"""

# A process starts with the peak memory of its parent, so this one imports nothing large.
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PLANNED = Path(__file__).with_name("planned.py")
REAL_RUN = "scale=smoke method=fedcorr budget.participations=1000 evaluate.every=1".split()
SWEEP = ["-m", "experiment=fedcorr_table2", "seed=1,2,3,4,5", "scale=paper", "dry_run=true"]
COMPARISON = ["baseline=fedavg", "scale=paper", "protocol=fedcorr", "dataset.name=cifar100"]
COMPARISON += ["partition.name=iid"]


def measure(name: str, *command: str) -> None:
    """Print wall-clock time, CPU time and peak memory of a command."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().decode().splitlines()
    seconds, cpu = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    print(f"{name}: {seconds:.1f} s, {cpu:.1f} s of CPU time, {usage.ru_maxrss / 1024:.0f} MB")
    if process.returncode:
        sys.exit("\n".join(lines[-5:]))


def main(arguments: Sequence[str]) -> None:
    number = arguments[0] if arguments else "10000"
    with tempfile.TemporaryDirectory(prefix="fln-scale-") as name:
        folder = Path(name)
        runs, real = folder / "runs", folder / "real"
        run = [sys.executable, "-m", "benchmarks.run", *REAL_RUN, f"runs_dir={real}"]
        subprocess.run(run, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        source = next(real.glob("*/record.json")).parent
        command = [sys.executable, str(PLANNED), str(runs), str(source), number]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        where = f"runs={runs}"
        measure("status", "benchmarks.status", where)
        measure("compare", "reports.compare", where, *COMPARISON)
        measure("dry run", "benchmarks.run", *SWEEP, f"runs_dir={runs}")
        measure("one table", "reports.build", where, "table=fedcorr_table2", f"out={folder}/one")
        measure("all tables", "reports.build", where, f"out={folder / 'tables'}")
        measure("page", "reports.page", where, f"out={folder / 'page.html'}")
        print(f"page: {(folder / 'page.html').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
