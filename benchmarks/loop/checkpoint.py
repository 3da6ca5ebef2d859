"""Checkpoints of a run."""

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

from benchmarks.records.files import atomic_write


class CheckpointFile:
    """The newest state and the one before it, each with its hash in front."""

    def __init__(self, folder: Path):
        self.newest = folder / "checkpoint.bin"
        self.previous = folder / "checkpoint.previous.bin"

    def save(self, payload: bytes) -> None:
        if self.newest.exists():
            os.replace(self.newest, self.previous)
        atomic_write(self.newest, hashlib.sha256(payload).digest() + payload)

    def load(self) -> tuple[Any, list[str]]:
        """The newest state that is whole, or None; and a line for each file that was not."""
        complaints: list[str] = []
        for path, instead in (
            (self.newest, "going back to the one before it"),
            (self.previous, "starting anew"),
        ):
            if not path.exists():
                continue
            data = path.read_bytes()
            if len(data) > 32 and hashlib.sha256(data[32:]).digest() == data[:32]:
                return pickle.loads(data[32:]), complaints
            complaints.append(
                f"{path} is damaged ({len(data)} bytes, hash does not match); {instead}"
            )
            path.unlink()  # the next save must not move it over a whole one
        return None, complaints

    def delete(self) -> None:
        self.newest.unlink(missing_ok=True)
        self.previous.unlink(missing_ok=True)
