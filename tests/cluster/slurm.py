"""A sweep on a real Slurm of one node on this machine (`make cluster`).

Starts munge and Slurm with their own configuration in a temporary directory, submits six runs as an
array, kills one job and lets one meet its time limit, and compares all records with a local sweep.
Needs root and the Debian packages slurmctld, slurmd, slurm-client and munge. Ends what it started.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from process_helpers import is_running  # noqa: E402
from run_helpers import read_reproducible  # noqa: E402

from benchmarks.records.files import CHECKPOINT_FILE  # noqa: E402

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
RUNS = ["scale=smoke", "method=fedavg,lsg", "seed=1,2,3", "budget.participations=120"]
RUNS += ["checkpoint.every_seconds=1", "evaluate.every=20", "train.local_epochs=2"]
RUNS += ["executor=serial", "executor.compile=off"]
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0
KillWait=5
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class Slurm:
    """Processes that end with Slurm, and the environment of its commands."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.chmod(0o755)
        host = os.uname().nodename.split(".")[0]
        text = CONFIG.format(host=host, folder=folder, cpus=os.cpu_count())
        (folder / "slurm.conf").write_text(text)
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        key, socket = self.folder / "munge.key", self.folder / "munge.socket"
        subprocess.run(["mungekey", f"--keyfile={key}"], check=True)
        self._start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}"),
            *(f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed"),
        )
        wait_until(socket.exists, 10, "munged did not start")
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t"), 60, "no idle node")

    def _start(self, *command: str) -> None:
        log = open(self.folder / f"{command[0]}.out", "w")
        self.processes.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))

    def run(self, *command: str) -> str:
        return subprocess.run(command, env=self.env, capture_output=True, text=True).stdout

    def stop(self) -> None:
        self.run("scancel", "--user=root")
        with suppress(TimeoutError):
            wait_until(lambda: not self.run("squeue", "-h"), 20, "jobs are left")
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until(condition: Callable[[], object], seconds: float, message: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(message)
        time.sleep(0.2)


def command(runs_dir: Path, *options: str) -> list[str]:
    start = [sys.executable, "-m", "benchmarks.run", "-m"]
    return [*start, *RUNS, f"runs_dir={runs_dir}", *options]


class Job(NamedTuple):
    """A running job: its number in the array, the id for Slurm's commands, its Python process."""

    number: int
    id: str
    process: int


def running_jobs(slurm: Slurm) -> list[Job]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            program, *arguments = (path / "cmdline").read_text().split("\0")
            if program != sys.executable or "submitit.core._submit" not in arguments:
                continue
            environment = dict(
                entry.split("=", 1)
                for entry in (path / "environ").read_text().split("\0")
                if "=" in entry
            )
        except OSError:
            continue
        if environment.get("SLURM_CONF") == slurm.env["SLURM_CONF"]:
            number = environment["SLURM_ARRAY_TASK_ID"]
            job_id = f"{environment['SLURM_ARRAY_JOB_ID']}_{number}"
            found.append(Job(int(number), job_id, int(path.name)))
    return sorted(found)


def disturb(slurm: Slurm, runs: Path) -> None:
    """Kill the process of the last job, and let the first one meet its time limit."""

    def all_have_checkpoints() -> bool:
        return 1 < len(running_jobs(slurm)) <= len(list(runs.glob(f"*/{CHECKPOINT_FILE}")))

    wait_until(all_have_checkpoints, 300, "no two jobs with checkpoints")
    limited, *_, killed = running_jobs(slurm)
    os.kill(limited.process, signal.SIGSTOP)  # until Slurm sends SIGCONT and SIGUSR2
    os.kill(killed.process, signal.SIGKILL)
    print(f"killed the process of job {killed.id}")
    slurm.run("scontrol", "update", f"JobId={limited.id}", "TimeLimit=1")
    wait_until(lambda: not is_running(limited.process), 150, "no signal by Slurm")
    slurm.run("scontrol", "update", f"JobId={limited.id}", "TimeLimit=10")
    print(f"job {limited.id} met its time limit")


def main() -> int:
    """Run the check. Returns the exit code; 0 also if Slurm is not installed or does not start."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking or os.geteuid() != 0:
        reason = f"not installed: {', '.join(lacking)}" if lacking else "needs root"
        print(f"skipped: {reason} (apt-get install slurmctld slurmd slurm-client munge)")
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fln-slurm-") as name:
        folder = Path(name)
        slurm, runs, local = Slurm(folder), folder / "runs", folder / "local"
        try:
            try:
                slurm.start()
            except (OSError, subprocess.CalledProcessError, TimeoutError) as error:
                print(f"skipped: Slurm does not start: {error}")
                return 0
            print(f"Slurm runs after {time.monotonic() - started:.0f} s")
            preset = ["cluster=slurm_cpu", "hydra.launcher.cpus_per_task=1"]
            preset += ["hydra.launcher.mem_gb=null", "hydra.launcher.timeout_min=10"]
            preset += ["hydra.launcher.signal_delay_s=30"]
            sweep = subprocess.Popen(command(runs, *preset), env=slurm.env, cwd=folder)
            slurm.processes.append(sweep)
            disturb(slurm, runs)
            reference = subprocess.Popen(command(local), cwd=folder, stdout=subprocess.DEVNULL)
            slurm.processes.append(reference)
            assert sweep.wait(400) == 0, "the sweep failed"
            assert reference.wait(400) == 0, "the local sweep failed"
        except BaseException:
            for log in sorted([*folder.glob("*.log"), *folder.glob("runs/.multirun/**/*.err")]):
                print(f"--- {log}", "\n".join(log.read_text().splitlines()[-15:]), sep="\n")
            raise
        finally:
            slurm.stop()
        names = sorted(path.parent.name for path in local.glob("*/record.json"))
        assert len(names) == 6
        for run in names:
            assert read_reproducible(runs / run) == read_reproducible(local / run), run
        logs = "".join(path.read_text() for path in runs.glob("*/log.txt"))
        resumed = logs.count("resuming from round")
        assert resumed == 2, f"{resumed} runs were resumed, expected 2"
    print(f"6 records equal those of the local sweep, {resumed} resumptions")
    print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
