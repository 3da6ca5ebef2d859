"""Checkpoint files of a run. Reading them runs no code of the file."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.loop.state_codec import decode, encode
from benchmarks.records.files import CHECKPOINT_FILE, PREVIOUS_CHECKPOINT_FILE, atomic_write

FORMAT = "fln checkpoint"
VERSION = 1  # of the file format


class CheckpointFile:
    """The latest two states of a run.

    A file is one line of JSON with format, version, identity and hash, and an .npz archive.
    `identity` names the run and its method. Files of another identity are refused.
    """

    def __init__(self, run_dir: Path, identity: Mapping[str, Any]):
        self.latest = run_dir / CHECKPOINT_FILE
        self.previous = run_dir / PREVIOUS_CHECKPOINT_FILE
        self.identity = {"format": FORMAT, "version": VERSION, **identity}

    def save(self, state: dict[str, Any]) -> None:
        content = encode(state)
        header = {**self.identity, "sha256": hashlib.sha256(content).hexdigest()}
        if self.latest.exists():
            os.replace(self.latest, self.previous)
        atomic_write(self.latest, json.dumps(header).encode() + b"\n" + content)

    def load(self, expected: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
        """The latest intact state, or None, and one warning per refused file.

        The entries must have the names and types of `expected`, the state before the first round.
        """
        warnings: list[str] = []
        found = [path for path in (self.latest, self.previous) if path.exists()]
        for path in found:
            data = path.read_bytes()
            try:
                state = decode(self._checked_content(data))
                _require_types(state, expected)
                return state, warnings
            except ValueError as error:
                consequence = "using the previous checkpoint"
                if path == found[-1]:
                    consequence = "starting from the first round"
                warnings.append(f"cannot use {path}: {error}; {consequence}")
            path.unlink()  # The next `save` must not move it over an intact file.
        return None, warnings

    def _checked_content(self, data: bytes) -> bytes:
        line, _, content = data.partition(b"\n")
        try:
            header = json.loads(line)
            digest = header.pop("sha256")
        except Exception:  # Any content is possible.
            raise ValueError(f"damaged or no checkpoint ({len(data)} bytes)") from None
        for key, value in self.identity.items():
            if header.get(key) != value:
                raise ValueError(f"{key} is {header.get(key)!r}, expected {value!r}")
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"damaged ({len(data)} bytes, wrong hash)")
        return content

    def delete(self) -> None:
        self.latest.unlink(missing_ok=True)
        self.previous.unlink(missing_ok=True)


def _require_types(state: Any, expected: dict[str, Any]) -> None:
    """Raise ValueError if a checkpoint has other entries. None matches every type."""
    if not isinstance(state, dict) or state.keys() != expected.keys():
        raise ValueError("other entries than a checkpoint of this version")
    for key, value in expected.items():
        if value is not None and type(state[key]) is not type(value):
            found = type(state[key]).__name__
            raise ValueError(f"{key} is of type {found}, expected {type(value).__name__}")
