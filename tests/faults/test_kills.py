"""Kills at random moments: the same command goes on, and its records equal those of a whole run.

A chain is a command that is killed once with every signal and repeated after every kill. Two kills
here, 100 with `make faults`.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from process_helpers import descendants, start_command, wait_until
from rich.console import Console
from rich.table import Table
from run_helpers import read_reproducible

from benchmarks.run import main as run_main
from benchmarks.tune.__main__ import main as tune_main
from methods.core.machine import available_cores

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
METHODS = ("fedavg", "fedcorr", "lsg", "feddyn", "rofl", "coteaching")
EXECUTORS = ("serial", "processes")
COMMANDS = {  # module and arguments; runs_dir is added
    "run": ("benchmarks.run", "seed=1"),
    "sweep": ("benchmarks.run", "-m seed=1,2"),
    "joblib": ("benchmarks.run", "-m seed=1,2 hydra/launcher=joblib hydra.launcher.n_jobs=2"),
    "tune": ("benchmarks.tune", "trials=2 jobs=2"),
}
VICTIMS = {  # processes that get the signal; `all` is what a terminal does
    "run": ("command", "all", "worker"),
    "sweep": ("command", "all"),
    "joblib": ("command", "all", "worker"),
    "tune": ("command", "all", "worker"),
}
SMOKE = "scale=smoke budget.participations=48 checkpoint.every_seconds=0".split()
END_SECONDS = 5.0  # in which all processes of a killed command end, on a machine that is free
MARK = "FLN_TEST_CHAIN"  # variable in the environment of all processes of a chain
SLOW_DISK = Path(__file__).parent / "slow_disk"  # lengthens the time in which a file is written


@dataclass
class Kill:
    """A kill and what was seen."""

    victim: str
    signal: signal.Signals
    moment: str
    seconds: float = 0.0  # until no process was left
    wrote: bool = False  # the kill left a file that was being written

    def __str__(self) -> str:
        return f"{self.signal.name} to {self.victim} at {self.moment}"


@dataclass
class Chain:
    """A command, its kills and its directory."""

    number: int
    command: str
    method: str
    executor: str
    folder: Path
    reference: Path
    kills: list[Kill] = field(default_factory=list)
    records: int = 0  # that were compared
    equal: int = 0
    resumptions: int = 0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.number} {self.command}")
        self.mark = f"{self.folder.name}-{os.getpid()}"

    def __str__(self) -> str:
        kills = "; ".join(map(str, self.kills))
        return f"chain {self.number} ({self.command} {self.method} {self.executor}): {kills}"

    def execute(self, signals: int) -> "Chain":
        """Kill the command with `signals` signals, and let it finish."""
        try:
            for number in self.random.sample(SIGNALS, signals):
                victim = self.random.choice(VICTIMS[self.command])
                if victim == "worker" and self.command == "run" and self.executor != "processes":
                    victim = "command"
                moment = self.random.choice(["start", "round", "round", "write"])
                self._kill(Kill(victim, number, moment))
            self._finish()
        except Exception as error:
            self.problems.append(f"{self}: {type(error).__name__}: {error}")
        print(f"{self}:", "FAILED" if self.problems else "records equal", flush=True)
        for problem in self.problems:
            print(problem, flush=True)
        return self

    def _kill(self, kill: Kill) -> None:
        """Start the command until the moment of the kill comes before its end."""
        self.kills.append(kill)
        while True:
            process = self._start(slow=kill.moment == "write")
            target = self._wait_for_moment(kill, process)
            if target is not None:
                break
            self._check_end(process)
        try:
            (os.killpg if kill.victim == "all" else os.kill)(target, kill.signal)
        except ProcessLookupError:
            pass  # It has just ended.
        if kill.victim == "worker":  # The command itself goes on.
            self._check_end(process)
            return
        killed = time.monotonic()
        _, error = process.communicate(timeout=60)
        while left := self._processes():
            assert time.monotonic() < killed + 60, f"still running after 60 s: {left}"
            time.sleep(0.02)
        kill.seconds = time.monotonic() - killed
        kill.wrote = any(self.folder.rglob(".*.partial"))
        limit = END_SECONDS * max(1, os.getloadavg()[0] / available_cores())
        left_for = f"{kill.seconds:.1f} s, expected {limit:.1f} s"
        self._require(kill.seconds < limit, f"processes were left for {left_for}")
        # Before the command has begun, SIGINT ends Python itself with a traceback. While Python
        # imports its site module, the exit code is Python's, too.
        in_site = kill.signal == signal.SIGINT and "init_import_site" in error
        expected = (-kill.signal, 128 + kill.signal, 0)
        if not in_site:
            code = process.returncode
            self._require(code in expected, f"exit code {code}: {error}")
            self._require(code == -signal.SIGINT or "Traceback" not in error, error)

    def _wait_for_moment(self, kill: Kill, process: "subprocess.Popen[str]") -> int | None:
        """The process to kill; None if the command has ended before."""
        logged, count = self._logged_lines(), self.random.randint(1, 6)
        delay, started = self.random.uniform(0, 0.2), time.monotonic()
        startup = self.random.uniform(0, 3)
        conditions: dict[str, Callable[[], bool]] = {
            "start": lambda: time.monotonic() > started + startup,
            "round": lambda: self._logged_lines() >= logged + count,
            "write": lambda: self._counts_writes(count),
        }
        self._writes: set[tuple[str, int]] = set()
        while process.poll() is None:
            workers = self._workers(process.pid) if kill.victim == "worker" else [process.pid]
            if conditions[kill.moment]() and workers:
                if kill.moment == "round":
                    time.sleep(delay)
                return self.random.choice(workers) if kill.victim == "worker" else process.pid
            time.sleep(0.002)
        return None

    def _counts_writes(self, count: int) -> bool:
        """True while the file is written that is the `count`-th one since the start."""
        seen = False
        for path in self.folder.glob("runs/**/.*.partial"):
            try:
                self._writes.add((path.name, path.stat().st_ino))
                seen = True
            except FileNotFoundError:
                continue
        return seen and len(self._writes) >= count

    def _workers(self, pid: int) -> list[int]:
        """Worker processes of executors and launchers."""
        found = []
        for child in descendants(pid):
            try:
                command = Path(f"/proc/{child}/cmdline").read_text()
            except OSError:
                continue
            if "resource_tracker" not in command and command:
                found.append(child)
        return found

    def _logged_lines(self) -> int:
        logs = self.folder.glob("runs/**/log.txt")
        return sum(path.read_bytes().count(b" accuracy ") for path in logs)

    def _finish(self) -> None:
        """Repeat the command until it is done."""
        self._check_end(self._start())

    def _start(self, slow: bool = False) -> "subprocess.Popen[str]":
        module, arguments = COMMANDS[self.command]
        options = [*arguments.split(), *SMOKE, f"method={self.method}"]
        options += [f"executor={self.executor}", f"runs_dir={self.folder / 'runs'}"]
        if self.executor != "serial":
            options.append("executor.workers=2")
        if self.command == "tune":
            options.append(f"tuned={self.folder / 'tuned'}")
        slow_disk = {"PYTHONPATH": str(SLOW_DISK)} if slow else {}
        return start_command(*options, module=module, **{MARK: self.mark}, **slow_disk)

    def _processes(self) -> list[int]:
        """Running processes of this chain."""
        found, mark = [], f"{MARK}={self.mark}\0".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes():
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def _check_end(self, process: "subprocess.Popen[str]") -> None:
        """A command that ends by itself: compare its records and delete them."""
        output, error = process.communicate(timeout=300)
        self._require(process.returncode == 0, f"exit code {process.returncode}: {error}{output}")
        self._require("Traceback" not in error, error)
        runs = {path.parent for path in self.folder.glob("runs/**/record.json")}
        self._require(
            len(runs) == {"run": 1, "sweep": 2, "joblib": 2, "tune": 4}[self.command],
            f"{len(runs)} records",
        )
        for run in runs:
            whole = self.reference / run.relative_to(self.folder)
            same = read_reproducible(run) == read_reproducible(whole)
            self._require(same, f"{run.name} differs from the whole run")
            self.records += 1
            self.equal += same
            self.resumptions += (run / "log.txt").read_text().count("resuming from round")
        for path in self.folder.glob("tuned/**/*.yaml"):
            whole = self.reference / path.relative_to(self.folder)
            self._require(read_tuned(path) == read_tuned(whole), f"{path.name} differs")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            self.problems.append(f"{self}: {problem}")


def read_tuned(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) | {"command": ""}


def write_reference(folder: Path, methods: str, seeds: str, tune: bool) -> Path:
    """Records of uninterrupted runs, one after the other in this process."""
    options = [*SMOKE, f"method={methods}", "executor=serial", f"runs_dir={folder / 'runs'}"]
    assert run_main(["-m", f"seed={seeds}", *options]) == 0
    if tune:
        assert tune_main(["trials=2", *options, f"tuned={folder / 'tuned'}"]) == 0
    return folder


def summarize(chains: list[Chain]) -> Table:
    table = Table(title=f"{sum(len(chain.kills) for chain in chains)} kills")
    columns = ("command", "executor", "chains", *(number.name for number in SIGNALS))
    columns += ("while writing", "records", "equal", "resumed", "last process [s]")
    for name in columns:
        table.add_column(name)
    for key in dict.fromkeys((chain.command, chain.executor) for chain in chains):
        rows = [chain for chain in chains if (chain.command, chain.executor) == key]
        kills = [kill for chain in rows for kill in chain.kills]
        signals = Counter(kill.signal for kill in kills)
        values = [*key, len(rows), *(signals[number] for number in SIGNALS)]
        values += [sum(kill.wrote for kill in kills), sum(chain.records for chain in rows)]
        values += [sum(chain.equal for chain in rows), sum(chain.resumptions for chain in rows)]
        values += [f"{max(kill.seconds for kill in kills):.1f}"]
        table.add_row(*map(str, values))
    return table


def run_chains(chains: list[Chain], signals: int) -> None:
    with ThreadPoolExecutor(available_cores()) as pool:
        finished = list(pool.map(lambda chain: chain.execute(signals), chains))
    Console(width=160).print(summarize(finished))
    problems = [problem for chain in finished for problem in chain.problems]
    assert not problems, "\n".join(problems)


def test_two_kills(tmp_path: Path) -> None:
    reference = write_reference(tmp_path / "whole", "fedcorr", seeds="1", tune=False)
    run_chains([Chain(0, "run", "fedcorr", "processes", tmp_path / "0", reference)], signals=2)


@pytest.mark.faults
def test_hundred_kills(tmp_path: Path) -> None:
    reference = write_reference(tmp_path / "whole", ",".join(METHODS), seeds="1,2", tune=True)
    chains = [
        Chain(4 * i + k, command, method, EXECUTORS[(i + k) % 2], tmp_path / f"{i}{k}", reference)
        for i, method in enumerate(METHODS)
        for k, command in enumerate(COMMANDS)
    ]
    executor = "ray" if find_spec("ray") else "processes"
    chains.append(Chain(24, "run", "lsg", executor, tmp_path / "ray", reference))
    run_chains(chains, signals=4)


@pytest.mark.faults
def test_sweep_beside_a_killed_one(tmp_path: Path) -> None:
    """Each of two sweeps executes one of the runs. One is killed, and the run resumes later."""
    reference = write_reference(tmp_path / "whole", "fedcorr", seeds="1,2", tune=False)
    runs = tmp_path / "runs"
    command = ["-m", "seed=1,2", *SMOKE, "method=fedcorr", "executor=serial", f"runs_dir={runs}"]
    sweeps = [start_command(*command) for _ in range(2)]
    wait_until(lambda: len(list(runs.glob("*/checkpoint.bin"))) == 2, sweeps[0])
    sweeps[0].kill()
    sweeps[0].communicate()
    _, error = sweeps[1].communicate(timeout=300)
    # It resumes the run of the other sweep if its own run is the first one of the sweep.
    assert sweeps[1].returncode in (0, 1) and error == ""
    assert run_main(command) == 0
    for run in runs.glob("fedcorr-*"):
        assert read_reproducible(run) == read_reproducible(reference / "runs" / run.name)
        rounds = re.findall(r" round (\d+) \w+ participations", (run / "log.txt").read_text())
        assert 0 < len(rounds) <= len(set(rounds)) + 1  # Only the killed round is repeated.
