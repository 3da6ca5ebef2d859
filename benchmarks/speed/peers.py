"""Rounds of other federated frameworks: the reference work in processes of their own.

A peer executes one round for every line that it reads, and answers with the test accuracy.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec

import torch

from benchmarks.speed.harness import Log, ReferenceWork
from methods.core.errors import UserError

ANSWER = "accuracy "  # start of an answer; frameworks print other lines too
# Package, module of this package and number of processes. Flower starts its two workers itself.
PEERS = {
    "pfl-research, 2 processes": ("pfl", "peer_pfl", 2),
    "Flower, 2 processes": ("ray", "peer_flower", 1),
}
PORT = "29517"


@cache
def reference_work() -> ReferenceWork:
    """The reference work, loaded once per process."""
    torch.set_num_threads(1)
    return ReferenceWork.load()


class Peer:
    """The processes of a framework."""

    def __init__(self, module: str, processes: int):
        """With several processes, each has a rank, and the first one answers."""
        self._module = module
        code = f"from {__package__}.{module} import main; main()"
        common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": PORT}
        common["TORCHELASTIC_RUN_ID"] = "speed"  # pfl expects the variables of torchrun
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, **common, **quiet, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(processes)
        ]
        self._answer()

    def run_round(self) -> float:
        """Execute a round. Returns the test accuracy."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("round\n")
            process.stdin.flush()
        return self._answer()

    def _answer(self) -> float:
        stdout = self._processes[0].stdout
        assert stdout is not None
        for line in stdout:
            if line.startswith(ANSWER):
                return float(line.removeprefix(ANSWER))
        raise RuntimeError(f"{self._module} ended")

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def answer(accuracy: float) -> bool:
    """Used by a peer after a round: answer, and wait. False if there is no next round."""
    print(f"{ANSWER}{accuracy}", flush=True)
    return bool(sys.stdin.readline())


def start_peers(stack: ExitStack, log: Log) -> dict[str, Peer]:
    """Start the installed frameworks, until the stack is closed."""
    peers = {}
    for name, (package, module, processes) in PEERS.items():
        if find_spec(package) is None:
            log(f"{name} is not installed")
            continue
        log(f"preparing {name}")
        peers[name] = Peer(module, processes)
        stack.callback(peers[name].close)
    if not peers:
        raise UserError("missing packages of the peers: run pip install '.[peers]'")
    return peers
