"""Files of a run directory, each written whole or not at all."""

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def atomic_write(path: Path, data: bytes) -> None:
    """Write beside the target, flush to the disk, then rename over it. What a crash leaves beside it, the next writer takes over."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def redact_home(value: Any) -> Any:
    """Plain data in which the home folder, whose name is often a person's, is written ~."""
    if isinstance(value, str):
        home = str(Path.home())
        return (
            re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", value)
            if len(home) > 1
            else value
        )
    if isinstance(value, Mapping):
        return {key: redact_home(entry) for key, entry in value.items()}
    return [redact_home(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def write_json(path: Path, value: Any) -> None:
    atomic_write(
        path,
        (
            json.dumps(redact_home(value), indent=1, sort_keys=False, allow_nan=False) + "\n"
        ).encode(),
    )


def write_yaml(path: Path, value: Any) -> None:
    atomic_write(path, yaml.safe_dump(redact_home(value), sort_keys=False).encode())


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(path, buffer.getvalue().encode())


def write_journal(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    atomic_write(path, "".join(json.dumps(entry) + "\n" for entry in entries).encode())
