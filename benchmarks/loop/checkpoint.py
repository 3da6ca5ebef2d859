"""Checkpoint files of a run."""

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

from benchmarks.executors.serialization import dumps
from benchmarks.records.files import CHECKPOINT_FILE, PREVIOUS_CHECKPOINT_FILE, atomic_write

HASH_BYTES = 32


class CheckpointFile:
    """The latest two states of a run. Each file starts with the hash of its content."""

    def __init__(self, run_dir: Path):
        self.latest = run_dir / CHECKPOINT_FILE
        self.previous = run_dir / PREVIOUS_CHECKPOINT_FILE

    def save(self, state: Any) -> None:
        content = dumps(state)
        if self.latest.exists():
            os.replace(self.latest, self.previous)
        atomic_write(self.latest, hashlib.sha256(content).digest() + content)

    def load(self) -> tuple[Any, list[str]]:
        """The latest intact state, or None, and one warning per damaged file."""
        warnings: list[str] = []
        for path, consequence in (
            (self.latest, "using the previous checkpoint"),
            (self.previous, "starting from the first round"),
        ):
            if not path.exists():
                continue
            data = path.read_bytes()
            digest, content = data[:HASH_BYTES], data[HASH_BYTES:]
            if content and hashlib.sha256(content).digest() == digest:
                return pickle.loads(content), warnings
            warnings.append(f"{path} is damaged ({len(data)} bytes, wrong hash); {consequence}")
            path.unlink()  # The next `save` must not move it over an intact file.
        return None, warnings

    def delete(self) -> None:
        self.latest.unlink(missing_ok=True)
        self.previous.unlink(missing_ok=True)
