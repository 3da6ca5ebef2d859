"""Files of a run directory. Each file is written completely or not at all."""

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

RECORD_FILE = "record.json"  # run record, written when the run ends
CURVE_FILE = "curve.csv"  # learning curve, one row per evaluation
JOURNAL_FILE = "journal.jsonl"  # arrays of the method, one line per evaluation
SCENARIO_FILE = "scenario.npz"  # partition and label noise
OLD_SCENARIO_FILE = "scene.npz"  # its name before version 0.2.0
CONFIG_FILE = "config.yaml"  # resolved configuration
LOG_FILE = "log.txt"
CHECKPOINT_FILE = "checkpoint.bin"  # exists while the run is unfinished
PREVIOUS_CHECKPOINT_FILE = "checkpoint.previous.bin"


def atomic_write(path: Path, data: bytes) -> None:
    """Write to a temporary file, fsync, then rename. The next write overwrites a leftover file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = str(path)  # A full disk is reported without one.
        with suppress(OSError):
            temporary.unlink()
        raise


def redact_home(value: Any) -> Any:
    """Plain data with the home directory replaced by `~`, because its name often is a person's."""
    if isinstance(value, str):
        home = str(Path.home())
        pattern = rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])"
        return re.sub(pattern, "~", value) if len(home) > 1 else value
    if isinstance(value, Mapping):
        return {key: redact_home(entry) for key, entry in value.items()}
    return [redact_home(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(redact_home(value), indent=1, allow_nan=False)
    atomic_write(path, f"{text}\n".encode())


def write_yaml(path: Path, value: Any) -> None:
    atomic_write(path, yaml.safe_dump(redact_home(value), sort_keys=False).encode())


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the learning curve. Columns are in the order of their first use."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(path, buffer.getvalue().encode())


def write_journal(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    atomic_write(path, "".join(json.dumps(entry) + "\n" for entry in entries).encode())
