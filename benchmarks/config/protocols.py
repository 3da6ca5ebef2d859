"""Protocols: a setting and a training recipe for all methods, in conf/protocol/NAME.yaml.

    base: digits  # the entries `common` of another protocol come first
    common:  # setting and recipe, for all methods
      - {dataset: cifar10, scale: paper, model: resnet18, train.lr: 0.03}
    published:  # what the paper states for the methods that it ran
      - {method: fedprox, dataset: [cifar10, cifar100], train.lr: 0.01, method.mu: 1.0}

An entry applies to the runs with its dataset, scale and method; to all runs if it names none. Its
other keys are overrides. Later entries take precedence. Tuned hyperparameters are in
conf/tuned/PROTOCOL/DATASET_SCALE/METHOD.yaml, under the key `overrides`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import Field

from methods.core.errors import UserError, invalid, unknown
from methods.core.params import Tuple, build_params, parameters

SCALES = ("paper", "laptop", "smoke")
HYPERPARAMETERS = ("published", "common", "tuned")
GROUPS = ("model", "partition", "noise")  # config groups whose option a protocol selects
Overrides = dict[str, Any]  # dotted keys
Entries = Annotated[Tuple[Overrides], Field(description="a list of mappings")]


@parameters
class Protocol:
    """Content of a protocol file."""

    base: str | None = None
    common: Entries = ()
    published: Entries = ()


class Selection(NamedTuple):
    """The choices that determine the values of a protocol."""

    hyperparameters: str
    protocol: str
    method: str
    dataset: str
    scale: str


def protocol_names(conf_dirs: Iterable[Path]) -> list[str]:
    return sorted({path.stem for conf in conf_dirs for path in (conf / "protocol").glob("*.yaml")})


def resolve(selection: Selection, conf_dirs: Sequence[Path]) -> Overrides:
    """Overrides of a run, with `protocol` and `hyperparameters` as they are recorded.

    Hyperparameters that are not published or tuned for the method are the common ones.
    """
    protocol = load_protocol(selection.protocol, conf_dirs)
    overrides, _ = _merge(protocol["common"], selection)
    if missing := [key for key in ("model", "budget.participations") if key not in overrides]:
        raise _no_setting(protocol, selection, missing[0])
    own: Overrides = {}
    used, found = selection.hyperparameters, False
    if used == "published":
        own, found = _merge(protocol["published"], selection)
    elif used == "tuned" and (path := _tuned_file(selection, conf_dirs)):
        content = read_mapping(path)
        if not isinstance(content.get("overrides"), dict):
            raise UserError(f"cannot read {path}: expected `overrides` with keys and values")
        own, found = content["overrides"], True
        used = "tuned_oracle" if content.get("oracle") else used
    names = {"protocol": selection.protocol, "hyperparameters": used if found else "common"}
    return overrides | own | names


def load_protocol(name: str, conf_dirs: Sequence[Path]) -> dict[str, list[Overrides]]:
    """Entries `common` and `published` of a protocol, with those of its base. Raises UserError."""
    for path in (conf / "protocol" / f"{name}.yaml" for conf in conf_dirs):
        if not path.is_file():
            continue
        raw = read_mapping(path)
        try:
            content = build_params(Protocol, raw, "")
            if content.base == name:
                raise invalid("base", name, "another protocol")
        except UserError as error:
            raise UserError(f"cannot read {path}: {error}") from error
        base = load_protocol(content.base, conf_dirs)["common"] if content.base else []
        return {"common": [*base, *content.common], "published": [*content.published]}
    raise unknown("protocol", name, protocol_names(conf_dirs))


def _tuned_file(selection: Selection, conf_dirs: Iterable[Path]) -> Path | None:
    _, protocol, method, dataset, scale = selection
    name = Path("tuned", protocol, f"{dataset}_{scale}", f"{method}.yaml")
    return next((conf / name for conf in conf_dirs if (conf / name).is_file()), None)


def _merge(entries: Iterable[Overrides], selection: Selection) -> tuple[Overrides, bool]:
    """Overrides of the entries that apply, and whether there is one."""
    merged: Overrides = {}
    selectors = ("dataset", "scale", "method")
    found = False
    for entry in entries:
        given = {name: entry[name] for name in selectors if name in entry}
        lists = {name: one if isinstance(one, list) else [one] for name, one in given.items()}
        if not all(getattr(selection, name) in names for name, names in lists.items()):
            continue
        found = True
        for group in GROUPS:
            if group in entry:  # another option has other keys
                merged = {k: v for k, v in merged.items() if not k.startswith(f"{group}.")}
        merged |= {key: value for key, value in entry.items() if key not in selectors}
    return merged, found


def _no_setting(protocol: dict[str, list[Overrides]], selection: Selection, key: str) -> UserError:
    others = {scale: selection._replace(scale=scale) for scale in SCALES}
    scales = [scale for scale in SCALES if key in _merge(protocol["common"], others[scale])[0]]
    return UserError(
        f"invalid scale={selection.scale}: protocol={selection.protocol} has no setting for"
        f" dataset={selection.dataset}; available: {', '.join(scales) or 'none'}"
    )


def read_mapping(path: Path) -> dict[str, Any]:
    """Content of a YAML file, read again after a change. Raises UserError."""
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _read(path: Path, modified: int) -> dict[str, Any]:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise UserError(f"cannot read {path}: expected a mapping")
    return content
