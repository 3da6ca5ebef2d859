"""From Hydra's nested dictionary to frozen, typed, checked dataclasses. Every mistake is one line: key, value, what is legal."""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from methods.core.errors import UserError
from methods.core.params import build_params, field_names

PROTOCOL = (
    1  # raised by a change that alters numbers; records of two protocols are never put side by side
)
SCALES = ("paper", "laptop", "smoke")
EXECUTORS = ("serial", "processes")
WANDB_MODES = ("online", "offline", "disabled")
T = TypeVar("T")


@dataclass(frozen=True)
class FederationConfig:
    num_clients: int  # N
    clients_per_round: int  # m

    def __post_init__(self) -> None:
        if self.num_clients < 1:
            raise ValueError(
                f"federation.num_clients={self.num_clients} is not legal; legal: at least 1"
            )
        if not 1 <= self.clients_per_round <= self.num_clients:
            raise ValueError(
                f"federation.clients_per_round={self.clients_per_round} is not legal; legal: 1 to federation.num_clients={self.num_clients}"
            )


@dataclass(frozen=True)
class BudgetConfig:
    participations: int  # client visits that train a model

    def __post_init__(self) -> None:
        if self.participations < 1:
            raise ValueError(
                f"budget.participations={self.participations} is not legal; legal: at least 1"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    every: int  # rounds' worth of participations between two tests
    memorised_samples: int  # wrong labels on which memorisation is measured

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"evaluate.every={self.every} is not legal; legal: at least 1")
        if self.memorised_samples < 0:
            raise ValueError(
                f"evaluate.memorised_samples={self.memorised_samples} is not legal; legal: at least 0"
            )


@dataclass(frozen=True)
class CheckpointConfig:
    every_seconds: float

    def __post_init__(self) -> None:
        if self.every_seconds < 0:
            raise ValueError(
                f"checkpoint.every_seconds={self.every_seconds} is not legal; legal: at least 0"
            )


@dataclass(frozen=True)
class ExecutorConfig:
    name: str = "processes"
    workers: int | str = "auto"

    def __post_init__(self) -> None:
        if self.name not in EXECUTORS:
            raise ValueError(
                f"executor.name={self.name!r} is not legal; legal: {', '.join(EXECUTORS)}"
            )
        if self.workers != "auto" and (isinstance(self.workers, str) or self.workers < 1):
            raise ValueError(
                f"executor.workers={self.workers!r} is not legal; legal: auto, or at least 1"
            )


@dataclass(frozen=True)
class NoTracking:
    """The terminal and the record are all that a run tells."""


@dataclass(frozen=True)
class WandbTracking:
    """Weights & Biases besides."""

    mode: str
    project: str
    entity: str | None  # null: the account's own

    def __post_init__(self) -> None:
        if self.mode not in WANDB_MODES:
            raise ValueError(
                f"tracking.mode={self.mode!r} is not legal; legal: {', '.join(WANDB_MODES)}"
            )
        for key, name in (("project", self.project), ("entity", self.entity)):
            if name is not None and (not 1 <= len(name) <= 128 or set(name) & set("/\\#?%:")):
                raise ValueError(
                    f"tracking.{key}={name!r} is not legal; legal: 1 to 128 characters, none of / \\ # ? % :"
                )


@dataclass(frozen=True)
class Component:
    """A named entry of a room (data set, model, partition, noise, method) and its parameters."""

    name: str
    params: Any


@dataclass(frozen=True)
class RunConfig:
    seed: int
    scale: str
    dataset: Component
    model: Component
    partition: Component
    noise: Component
    method: Component
    train: Any  # methods.base.TrainParams
    compile: (
        bool | str
    )  # train.compile: true, false or auto; not one of TrainParams, as it changes no number by more than rounding
    federation: FederationConfig
    budget: BudgetConfig
    evaluate: EvaluationConfig
    checkpoint: CheckpointConfig
    executor: ExecutorConfig
    tracking: Component
    part_of: str | None  # name of an experiment
    runs_dir: Path
    data_dir: Path
    force: bool
    dry: bool

    def science(self) -> dict[str, Any]:
        """What can change a number, as plain data: the identity of a run. Paths, workers and tracking are not in it."""
        rooms = ("dataset", "model", "partition", "noise", "method")
        plain = {
            room: {"name": getattr(self, room).name, **to_plain_data(getattr(self, room).params)}
            for room in rooms
        }
        sections = {
            name: to_plain_data(getattr(self, name))
            for name in ("train", "federation", "budget", "evaluate")
        }
        return {"protocol": PROTOCOL, "seed": self.seed, "scale": self.scale, **plain, **sections}

    @property
    def run_id(self) -> str:
        digest = hashlib.sha256(json.dumps(self.science(), sort_keys=True).encode()).hexdigest()[
            :12
        ]
        return f"{self.method.name}-{self.dataset.name}-s{self.seed}-{digest}"

    @property
    def run_dir(self) -> Path:
        return self.runs_dir / self.run_id


def to_plain_data(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_plain_data(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain_data(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def parse(raw: Mapping[str, Any]) -> RunConfig:
    """The whole configuration, typed and checked without loading data. Raises UserError."""
    import noise
    import partition
    from benchmarks import data, models
    from methods.core import registry
    from methods.core.task import TrainParams

    known = [f.name for f in dataclasses.fields(RunConfig) if f.name != "compile"]
    for key in raw:
        if key not in known:
            raise UserError(f"{key} is not a key of the configuration{near(key, known)}")
    for key in known:
        if key not in raw and key != "model":
            raise UserError(
                f"{key} is missing; legal: a configuration with all of {', '.join(known)}"
            )
    scale = _typed(raw["scale"], str, "scale")
    if scale not in SCALES:
        raise UserError(f"scale={scale!r} is not legal; legal: {', '.join(SCALES)}")
    if not raw.get("model"):
        raise UserError(
            f"model is not set: scale={scale} has none for dataset={raw['dataset']['name']}; legal: model={', model='.join(models.MODELS.names())}"
        )
    data_dir = _typed(raw["data_dir"], str | None, "data_dir")
    train = dict(raw["train"]) if isinstance(raw["train"], Mapping) else raw["train"]
    compiled = train.pop("compile", False) if isinstance(train, dict) else False
    if compiled not in ("auto", True, False):
        raise UserError(f"train.compile={compiled!r} is not legal; legal: auto, true, false")
    return RunConfig(
        seed=_seed(raw["seed"]),
        scale=scale,
        dataset=_choice(raw, "dataset", {info.name: info.params for info in data.DATASETS.all()}),
        model=_model(raw),
        partition=_choice(
            raw, "partition", {entry.name: entry.params for entry in partition.PARTITIONERS.all()}
        ),
        noise=_choice(
            raw, "noise", {model.name: model.params for model in noise.NOISE_MODELS.all()}
        ),
        method=_choice(raw, "method", {info.name: info.params for info in registry.list_methods()}),
        train=section(TrainParams, train, "train"),
        compile=compiled,
        federation=section(FederationConfig, raw["federation"], "federation"),
        budget=section(BudgetConfig, raw["budget"], "budget"),
        evaluate=section(EvaluationConfig, raw["evaluate"], "evaluate"),
        checkpoint=section(CheckpointConfig, raw["checkpoint"], "checkpoint"),
        executor=section(ExecutorConfig, raw["executor"], "executor"),
        tracking=_choice(raw, "tracking", {"none": NoTracking, "wandb": WandbTracking}),
        part_of=_typed(raw["part_of"], str | None, "part_of"),
        runs_dir=Path(_typed(raw["runs_dir"], str, "runs_dir")).expanduser(),
        data_dir=Path(data_dir).expanduser() if data_dir else data.default_data_dir(),
        force=_typed(raw["force"], bool, "force"),
        dry=_typed(raw["dry"], bool, "dry"),
    )


def section(cls: type[T], raw: Any, where: str) -> T:
    """A dataclass from a mapping: unknown keys, wrong types and illegal values are one-line UserErrors that name the key."""
    if hasattr(cls, "__pydantic_validator__"):
        return build_params(cls, raw, where)
    if not isinstance(raw, Mapping):
        keys = ", ".join(typing.get_type_hints(cls))
        raise UserError(f"{where}={raw!r} is not legal; legal: keys {keys}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in raw:
        if key not in fields:
            raise UserError(f"{where}.{key} is not a key{near(str(key), fields)}")
    missing = [
        f.name
        for f in fields.values()
        if f.name not in raw
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where}.{missing[0]} is missing; legal: {_words(hints[missing[0]])}")
    values = {key: _typed(value, hints[key], f"{where}.{key}") for key, value in raw.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(str(error)) from error


def _choice(raw: Mapping[str, Any], room: str, params: Mapping[str, type]) -> Component:
    given = dict(raw[room] or {})
    name = _named(given, room, params)
    return Component(name, section(params[name], given, room))


def _model(raw: Mapping[str, Any]) -> Component:
    """The selected model and its parameters, without those of the model that it replaces."""
    from benchmarks import models

    values = dict(raw["model"] or {})
    name = _named(values, "model", models.MODELS.names())
    own = models.MODELS.get(name).params
    of_others = {key for info in models.MODELS.all() for key in field_names(info.params)}
    dropped = of_others - set(field_names(own))
    kept = {key: value for key, value in values.items() if key not in dropped}
    return Component(name, section(own, kept, "model"))


def _named(given: dict[str, Any], room: str, names: typing.Iterable[str]) -> str:
    name = given.pop("name", None)
    if name not in (names := list(names)):
        raise UserError(f"{room}={name!r} is not legal; legal: {', '.join(names)}")
    return str(name)


def _typed(value: Any, hint: Any, where: str) -> Any:
    """Check one value against a type hint. Integers pass for floats; nothing else is converted."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        for option in options:
            try:
                return _typed(value, option, where)
            except UserError:
                continue
        raise UserError(
            f"{where}={value!r} is not legal; legal: {' or '.join(_words(o) for o in options)}"
        )
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{where}={value!r} is not legal; legal: {_words(hint)}")
        return origin(_typed(v, typing.get_args(hint)[0], where) for v in value)
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    accepted = type(None) if hint is None else hint
    if (
        not isinstance(value, accepted)
        or (isinstance(value, bool) and accepted is not bool)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise UserError(f"{where}={value!r} is not legal; legal: {_words(hint)}")
    return value


def _seed(value: Any) -> int:
    seed = int(_typed(value, int, "seed"))
    if not 0 <= seed < 2**32:  # what numpy's legacy generator takes
        raise UserError(f"seed={seed} is not legal; legal: 0 to {2**32 - 1}")
    return seed


def _words(hint: Any) -> str:
    if typing.get_origin(hint) in (list, tuple):
        return f"a list, each {_words(typing.get_args(hint)[0])}"
    return {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a word",
        type(None): "null",
        None: "null",
    }.get(hint, str(hint))


def near(key: str, legal: typing.Iterable[str]) -> str:
    """The end of an error line about an unknown key."""
    legal = list(legal)
    close = get_close_matches(key, legal, n=1)
    return (
        f"; did you mean {close[0]}?" if close else ""
    ) + f"; legal: {', '.join(legal) or 'none'}"
