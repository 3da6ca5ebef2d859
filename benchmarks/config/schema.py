"""Typed configuration of a run, and its run id."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from methods.core.errors import UserError, invalid, missing, unknown
from methods.core.params import (
    NonNegative,
    NonNegativeInt,
    NoParams,
    PositiveInt,
    build_params,
    field_names,
    parameters,
)
from methods.core.plugins import Registry

PROTOCOL_VERSION = 1  # increased when numbers of existing configurations change
SCALES = ("paper", "laptop", "smoke")
COMPONENTS = ("dataset", "model", "partition", "noise", "method")
HASHED_SECTIONS = ("train", "federation", "budget", "evaluate")


@parameters
class FederationConfig:
    """Clients of the federation."""

    num_clients: PositiveInt  # N
    clients_per_round: PositiveInt  # m

    @model_validator(mode="after")
    def _check_cohort(self) -> "FederationConfig":
        if self.clients_per_round > self.num_clients:
            raise invalid(
                "federation.clients_per_round",
                self.clients_per_round,
                f"an integer in [1, federation.num_clients={self.num_clients}]",
            )
        return self


@parameters
class BudgetConfig:
    """Upper limit of the training cost; the same for all methods."""

    participations: PositiveInt  # local updates of clients


@parameters
class EvaluationConfig:
    """When and on what models are evaluated."""

    every: PositiveInt  # evaluation interval in rounds of clients_per_round participations
    memorised_samples: NonNegativeInt  # mislabeled samples for the memorization metrics, 0: none


@parameters
class CheckpointConfig:
    """Checkpoints during a run."""

    every_seconds: NonNegative


@parameters
class ExecutorConfig:
    """Where client tasks run."""

    name: Literal["serial", "processes"] = "processes"
    workers: PositiveInt | Literal["auto"] = "auto"


@parameters
class WandbTracking:
    """Weights & Biases in addition to the record."""

    mode: Literal["online", "offline", "disabled"]
    project: str
    entity: str | None  # null: the default entity of the account

    @model_validator(mode="after")
    def _check_names(self) -> "WandbTracking":
        for key, name in (("project", self.project), ("entity", self.entity)):
            if name is not None and (not 1 <= len(name) <= 128 or set(name) & set("/\\#?%:")):
                expected = "1 to 128 characters without any of / \\ # ? % :"
                raise invalid(f"tracking.{key}", name, expected)
        return self


TRACKING = {"none": NoParams, "wandb": WandbTracking}


@parameters
class RunOptions:
    """Top-level values of the configuration."""

    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]  # range of numpy's legacy generator
    scale: Literal["paper", "laptop", "smoke"]
    runs_dir: str
    data_dir: str | None  # null: the default data directory
    experiment_name: str | None  # experiment that the run belongs to
    force: bool
    dry_run: bool
    dry: bool  # short form of dry_run


@dataclass(frozen=True)
class Component:
    """The selected option of a config group and its parameters."""

    name: str
    params: Any


@dataclass(frozen=True)
class RunConfig:
    """Validated configuration of one run."""

    seed: int
    scale: str
    dataset: Component
    model: Component
    partition: Component
    noise: Component
    method: Component
    train: Any  # methods.core.contract.TrainParams
    compile: bool | str  # train.compile; not hashed, as results are equal up to rounding
    federation: FederationConfig
    budget: BudgetConfig
    evaluate: EvaluationConfig
    checkpoint: CheckpointConfig
    executor: ExecutorConfig
    tracking: Component
    experiment_name: str | None
    runs_dir: Path
    data_dir: Path
    force: bool
    dry_run: bool

    def hashed_config(self) -> dict[str, Any]:
        """Result-affecting configuration as plain data, without paths, executor and tracking."""
        components = {name: getattr(self, name) for name in COMPONENTS}
        return {
            "protocol": PROTOCOL_VERSION,
            "seed": self.seed,
            "scale": self.scale,
            **{
                name: {"name": component.name, **to_plain_data(component.params)}
                for name, component in components.items()
            },
            **{name: to_plain_data(getattr(self, name)) for name in HASHED_SECTIONS},
        }

    @property
    def run_id(self) -> str:
        """Method, dataset, seed and hash of the result-affecting configuration."""
        text = json.dumps(self.hashed_config(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.method.name}-{self.dataset.name}-s{self.seed}-{digest}"

    @property
    def run_dir(self) -> Path:
        """Directory of the run's files."""
        return self.runs_dir / self.run_id


def to_plain_data(value: Any) -> Any:
    """Dataclasses, mappings, sequences, arrays and paths as JSON-compatible data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain_data(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain_data(entry) for entry in value]
    if hasattr(value, "tolist"):  # arrays and tensors
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def parse_config(raw: Mapping[str, Any]) -> RunConfig:
    """Validate a composed configuration without loading data. Raises UserError."""
    from benchmarks.data import DATASETS, default_data_dir
    from benchmarks.models import MODELS
    from methods.core.registry import METHODS
    from methods.core.task import TrainParams
    from noise import NOISE_MODELS
    from partition import PARTITIONERS

    _check_keys(raw)
    top = build_params(RunOptions, {key: raw[key] for key in field_names(RunOptions)}, "")
    train = dict(raw["train"]) if isinstance(raw["train"], Mapping) else raw["train"]
    compiled = train.pop("compile", False) if isinstance(train, dict) else False
    if compiled not in ("auto", True, False):
        raise invalid("train.compile", compiled, "true, false or auto")
    return RunConfig(
        seed=top.seed,
        scale=top.scale,
        dataset=_component(raw, "dataset", _params_by_name(DATASETS)),
        model=_model(raw, _params_by_name(MODELS)),
        partition=_component(raw, "partition", _params_by_name(PARTITIONERS)),
        noise=_component(raw, "noise", _params_by_name(NOISE_MODELS)),
        method=_component(raw, "method", _params_by_name(METHODS)),
        train=build_params(TrainParams, train, "train"),
        compile=compiled,
        federation=build_params(FederationConfig, raw["federation"], "federation"),
        budget=build_params(BudgetConfig, raw["budget"], "budget"),
        evaluate=build_params(EvaluationConfig, raw["evaluate"], "evaluate"),
        checkpoint=build_params(CheckpointConfig, raw["checkpoint"], "checkpoint"),
        executor=build_params(ExecutorConfig, raw["executor"], "executor"),
        tracking=_component(raw, "tracking", TRACKING),
        experiment_name=top.experiment_name,
        runs_dir=Path(top.runs_dir).expanduser(),
        data_dir=Path(top.data_dir).expanduser() if top.data_dir else default_data_dir(),
        force=top.force,
        dry_run=top.dry_run or top.dry,
    )


def _check_keys(raw: Mapping[str, Any]) -> None:
    if raw.get("experiment") is not None:
        raise UserError("cannot start an experiment as one run: add -m to start all of its runs")
    sections = [*COMPONENTS, *HASHED_SECTIONS, "checkpoint", "executor", "tracking"]
    known = [*field_names(RunOptions), *sections]
    for key in raw:
        if key not in known:
            raise unknown("key", key, known)
    for key in known:
        if key not in raw:
            raise missing(key)


def _params_by_name(registry: Registry[Any]) -> dict[str, type]:
    return {info.name: info.params for info in registry.all()}


def _component(raw: Mapping[str, Any], group: str, params: Mapping[str, type]) -> Component:
    values = dict(raw[group] or {})
    name = str(values.pop("name", None))
    if name not in params:
        raise unknown(group, name, params)
    return Component(name, build_params(params[name], values, group))


def _model(raw: Mapping[str, Any], params: Mapping[str, type]) -> Component:
    """The selected model and its parameters.

    conf/scale_dataset sets parameters of the dataset's usual model, such as `stem: imagenet`. They
    apply to every model that has them. Parameters that only other models have are dropped.
    """
    values = dict(raw["model"] or {})
    of_others = {key for cls in params.values() for key in field_names(cls)}
    of_others -= set(field_names(params.get(str(values.get("name")), NoParams)))
    kept = {key: value for key, value in values.items() if key not in of_others}
    return _component({"model": kept}, "model", params)
