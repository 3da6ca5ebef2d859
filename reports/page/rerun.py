"""Shortest command line that gives the configuration of a run."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from benchmarks.config.schema import component_registries
from methods.core.errors import UserError
from methods.core.params import data_file_names
from reports.tables.matching import ABSENT, CELL_SECTIONS, compose_flat, in_sections

UNQUOTED = re.compile(r"[\w./+-]+")


@dataclass(frozen=True)
class Rerun:
    """A command without its seed, and the default values of the keys that it changes."""

    command: str
    defaults: Mapping[str, Any]


def rerun(config: Mapping[str, Any], scale: str) -> Rerun:
    """Find the command for a configuration under dotted keys.

    The parameters of components that conf/ does not have are all part of the command.
    """
    own = {
        key: config[key]
        for section in (*CELL_SECTIONS, *SCALE_DEPENDENT_SECTIONS)
        for key in filter(in_sections(section), config)
    }
    groups = [
        f"{name}={own[f'{name}.name']}" for name in ("method", "dataset", "partition", "noise")
    ]
    more = [name for name in ("protocol", "hyperparameters", "model.name") if name in own]
    choices = {name: f"{name.partition('.')[0]}={own[name]}" for name in more}
    if own.get("hyperparameters") == "tuned_oracle":
        choices["hyperparameters"] = "hyperparameters=tuned"
    changed: dict[str, Any] = {}
    try:
        for name, choice in choices.items():
            default = compose_flat(groups, scale)
            if default.get(name, ABSENT) != own[name]:
                changed[name] = default.get(name, ABSENT)
                groups.append(choice)
        default = compose_flat(groups, scale)
    except UserError:
        default, changed = {}, {}
        groups = [*dict.fromkeys([*groups, *choices.values()])]
    found = {
        key: (value, default.get(key, ABSENT))
        for key, value in own.items()
        if key not in choices and not key.endswith((".name", ".content"))
    }
    found = {key: (value, preset) for key, (value, preset) in found.items() if value != preset}
    values = [f"{key}={to_override_value(value)}" for key, (value, _) in found.items()]
    values += [f"labels={config['labels']}"] if "labels" in config else []
    values += file_arguments(own)
    command = ["python", "-m", "benchmarks.run", *groups, f"scale={scale}", *values]
    changed |= {key: preset for key, (_, preset) in found.items()}
    return Rerun(shlex.join(command), changed if default else {})


def file_arguments(config: Mapping[str, Any]) -> list[str]:
    """Keys of data files, whose content is in the record but not their path."""
    return [
        f"{group}.{key}=FILE"
        for group, registry in component_registries().items()
        if f"{group}.content" in config and config[f"{group}.name"] in registry.names()
        for key in data_file_names(registry.get(config[f"{group}.name"]).params)
    ]


def to_override_value(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(to_override_value, value))}]"
    text = repr(value) if isinstance(value, float) else str(value)
    if UNQUOTED.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
