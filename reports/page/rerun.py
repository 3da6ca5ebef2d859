"""How to run a cell again: the shortest command line that gives its configuration; what differs from the defaults."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from reports.configure import SCIENCE, NotConfigured, configured
from reports.frame.load import flatten
from reports.tables.matching import ABSENT, differences

WORD = re.compile(r"[\w./+-]+")


@dataclass(frozen=True)
class Rerun:
    """The command without its seed, and the keys that differ from the defaults, with the default."""

    command: str
    differs: Mapping[str, Any]


def rerun(config: Mapping[str, Any], scale: str) -> Rerun:
    """`config` is a run's configuration in sections. What conf/ does not know is given key by key."""
    ours = flatten(
        {name: config[name] for name in (*SCIENCE, *SCALE_DEPENDENT_SECTIONS) if name in config}
    )
    chosen = [
        f"{room}={ours[f'{room}.name']}" for room in ("method", "dataset", "partition", "noise")
    ]
    try:
        theirs = configured(chosen, scale)
        if theirs.get("model.name") != ours["model.name"]:
            chosen.append(f"model={ours['model.name']}")
            differs = {"model.name": theirs.get("model.name", ABSENT)}
            theirs = configured(chosen, scale)
        else:
            differs = {}
    except NotConfigured:
        theirs, differs = {}, {}
        chosen += [f"model={ours['model.name']}"]
    found = differences(ours, theirs, lambda key: key in ours and not key.endswith(".name"))
    values = [f"{key}={written(value)}" for key, (value, _) in found.items()]
    command = ["python", "-m", "benchmarks.run", *chosen, f"scale={scale}", *values]
    return Rerun(
        shlex.join(command),
        differs | {key: default for key, (_, default) in found.items()} if theirs else {},
    )


def written(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(written, value))}]"
    text = repr(value) if isinstance(value, float) else str(value)
    return (
        text if WORD.fullmatch(text) else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    )
