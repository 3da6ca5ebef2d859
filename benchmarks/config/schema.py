"""Typed configuration of a run, and its run id."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from benchmarks.config import protocols
from methods.core import params as declared
from methods.core.errors import UserError, invalid, missing, unknown
from methods.core.params import NonNegative, NoParams, PositiveInt, Tuple, build_params, parameters
from methods.core.plugins import Registry

PROTOCOL_VERSION = 2  # increased when numbers of existing configurations change
FIRST_TUNING_SEED = 1000  # `fln tune` uses seeds from here on; tuned results use smaller ones
SCALES = protocols.SCALES
COMPONENTS = ("dataset", "model", "partition", "noise", "method")
HASHED_SECTIONS = ("train", "federation", "budget", "evaluate")
_DEVICE = "^(auto|cpu|(cuda|mps|xpu)(:[0-9]{1,3})?)$"
Device = Annotated[str, Field(pattern=_DEVICE, description="auto, cpu, cuda, cuda:N, mps or xpu")]
_CHARACTERS = r"1 to 128 characters without any of / \ # ? % :"
WandbName = Annotated[str, Field(pattern=r"^[^/\\#?%:]{1,128}$", description=_CHARACTERS)]


@parameters
class FederationConfig:
    num_clients: PositiveInt  # N
    clients_per_round: PositiveInt  # m

    @model_validator(mode="after")
    def _check_cohort(self) -> "FederationConfig":
        if self.clients_per_round > self.num_clients:
            expected = f"an integer in [1, federation.num_clients={self.num_clients}]"
            raise invalid("federation.clients_per_round", self.clients_per_round, expected)
        return self


@parameters
class BudgetConfig:
    """Upper limit of the training cost; the same for all methods."""

    participations: PositiveInt  # local updates of clients


@parameters
class EvaluationConfig:
    """When and on what models are evaluated."""

    every: PositiveInt  # evaluation interval in rounds of clients_per_round participations
    memorization_samples: declared.NonNegativeInt  # for the memorization metrics; 0: none
    validation: declared.ProperFraction = 0.0  # share of each client's samples that are held out


@parameters
class CheckpointConfig:
    every_seconds: NonNegative


@parameters
class WorkerResources:
    """What one Ray worker occupies."""

    cpus: NonNegative = 1.0
    gpus: NonNegative = 0.0


@parameters
class ExecutorConfig:
    """Where client tasks run."""

    name: Literal["serial", "processes", "ray"] = "processes"
    workers: PositiveInt | Literal["auto"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"  # results are equal up to rounding
    address: str | None = None  # of a Ray cluster; null: Ray starts on this machine
    resources: WorkerResources = WorkerResources()
    device: Device = "auto"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    cuda_graph: bool = False


@parameters
class WandbTracking:
    """Weights & Biases in addition to the record."""

    mode: Literal["online", "offline", "disabled"]
    project: WandbName
    entity: WandbName | None  # null: the default entity of the account


TRACKING = {"none": NoParams, "wandb": WandbTracking}


@dataclass(frozen=True)
class Component:
    """The selected option of a config group and its parameters."""

    name: str
    params: Any
    content: str = ""  # digest of its data and files; empty if it has none, or none that is known

    def to_hashed(self) -> dict[str, Any]:
        """Name, parameters and content of files as plain data, without paths."""
        values = {"name": self.name, **to_plain_data(self.params), "content": self.content}
        dropped = declared.data_file_names(type(self.params))
        return {k: v for k, v in values.items() if k not in dropped and (k, v) != ("content", "")}


@parameters
class RunConfig:
    """Validated configuration of one run."""

    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]  # range of numpy's legacy generator
    scale: Literal["paper", "laptop", "smoke"]
    protocol: str
    hyperparameters: Literal["published", "common", "tuned", "tuned_oracle"]  # as used
    labels: Literal["given", "clean"]  # that clients train on
    references: bool  # add reference runs
    dataset: Component
    model: Component
    partition: Component
    noise: Component
    method: Component
    train: Any  # methods.core.task.TrainParams
    federation: FederationConfig
    budget: BudgetConfig
    evaluate: EvaluationConfig
    checkpoint: CheckpointConfig
    executor: ExecutorConfig
    tracking: Component
    oracle: Tuple[str]  # keys whose values were chosen with the true noise
    experiment_name: str | None  # experiment that the run belongs to
    runs_dir: Path
    data_dir: Path
    force: bool
    stale: Literal["auto", "rerun", "keep", "error"]
    dry_run: bool

    @model_validator(mode="after")
    def _check_seed(self) -> "RunConfig":
        if self.hyperparameters.startswith("tuned") and self.seed >= FIRST_TUNING_SEED:
            expected = f"less than {FIRST_TUNING_SEED} with hyperparameters=tuned"
            raise invalid("seed", self.seed, f"{expected}: tuning uses the others")
        return self

    def hashed_config(self) -> dict[str, Any]:
        """Result-affecting configuration as plain data, without paths, device and tracking."""
        hashed = {
            "protocol_version": PROTOCOL_VERSION,
            "seed": self.seed,
            "scale": self.scale,
            "protocol": self.protocol,
            "hyperparameters": self.hyperparameters,
            **({"oracle": list(self.oracle)} if self.oracle else {}),
            **{name: getattr(self, name).to_hashed() for name in COMPONENTS},
            **{name: to_plain_data(getattr(self, name)) for name in HASHED_SECTIONS},
        }
        more = {"labels": self.labels, "precision": self.executor.precision}
        return drop_defaults(hashed | more)

    def hashed_value(self, key: str) -> Any:
        """Value of a result-affecting key such as `method.lambda_u`. Raises UserError."""
        value: Any = self.hashed_config()
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise unknown("key in oracle", key, value if isinstance(value, dict) else ())
            value = value[name]
        if isinstance(value, dict):
            raise unknown("key in oracle", key, [f"{key}.{name}" for name in value])
        return value

    @property
    def oracle_reason(self) -> str:
        """Which choices of the configuration used clean labels; empty if none did."""
        chosen = ", ".join(f"{key}={self.hashed_value(key)}" for key in self.oracle)
        reasons = [f"{chosen} chosen with the true noise"] if chosen else []
        if self.labels == "clean":
            reasons.append("reference run on clean labels")
        if self.hyperparameters == "tuned_oracle":
            reasons.append("hyperparameters are tuned on clean labels")
        return "; ".join(reasons)

    @cached_property
    def run_id(self) -> str:
        """Method, dataset, seed and hash of the result-affecting configuration."""
        text = json.dumps(self.hashed_config(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.method.name}-{self.dataset.name}-s{self.seed}-{digest}"

    @property
    def run_dir(self) -> Path:
        return self.runs_dir / self.run_id


def drop_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Remove later keys with their usual value, so that earlier runs keep their ids."""
    if not config["evaluate"].get("validation"):
        config["evaluate"].pop("validation", None)
    for key, usual in (("labels", "given"), ("precision", "fp32")):
        if config.get(key) == usual:
            del config[key]
    return config


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
    from benchmarks.data import default_data_dir
    from methods.core.task import TrainParams

    _check_keys(raw)
    values = {key: value for key, value in raw.items() if key not in ("dry", "experiment")}
    values["dry_run"] = raw["dry_run"] if raw["dry"] is False else raw["dry"]
    for key in ("runs_dir", "data_dir"):
        if raw[key] == "":
            raise invalid(key, "", "a path")
        if isinstance(raw[key], str):
            values[key] = Path(raw[key]).expanduser()
    if raw["data_dir"] is None:
        values["data_dir"] = default_data_dir()
    values["train"] = build_params(TrainParams, raw["train"], "train")
    for group, registry in component_registries().items():
        classes = {info.name: info.params for info in registry.all()}
        values[group] = _parse_component(group, raw[group], classes)
        if isinstance(values["data_dir"], Path):
            values[group] = _add_content(group, values[group], values["data_dir"])
    values["tracking"] = _parse_component("tracking", raw["tracking"], TRACKING)
    config = build_params(RunConfig, values, "")
    for key in config.oracle:
        config.hashed_value(key)
    return config


def component_registries() -> dict[str, Registry[Any]]:
    """Registry of each group in COMPONENTS."""
    from benchmarks.data import DATASETS
    from benchmarks.models import MODELS
    from methods.core.registry import METHODS
    from noise import NOISE_MODELS
    from partition import PARTITIONERS

    registries = (DATASETS, MODELS, PARTITIONERS, NOISE_MODELS, METHODS)
    return dict(zip(COMPONENTS, registries, strict=True))


def _add_content(group: str, component: Component, data_dir: Path) -> Component:
    """The component with the digest of the data or files that it reads."""
    from benchmarks.data import DATASETS, content

    params = component.params
    paths = [getattr(params, name) for name in declared.data_file_names(type(params))]
    parts = [content.file_content(Path(path).expanduser(), data_dir) for path in paths if path]
    if group == "dataset":
        parts.append(content.dataset_content(DATASETS.get(component.name), data_dir, params))
    return dataclasses.replace(component, content=" ".join(filter(None, parts)))


def _check_keys(raw: Mapping[str, Any]) -> None:
    if raw.get("experiment") is not None:
        raise UserError("cannot start an experiment as one run: add -m to start all of its runs")
    known = [*declared.field_names(RunConfig), "dry"]
    for key in raw:
        if key not in known:
            raise unknown("key", key, known)
    for key in known:
        if key not in raw:
            raise missing(key)


def _parse_component(
    group: str, raw: Mapping[str, Any] | None, classes: Mapping[str, type]
) -> Component:
    """The selected option of a group and its parameters, given the parameter classes by name.

    Protocols set parameters of the dataset's usual model, such as `stem: imagenet`. They apply to
    every model that has them. Parameters that only other models have are dropped.
    """
    if not isinstance(raw or {}, Mapping):
        raise invalid(group, raw, "a mapping with the key name")
    values = dict(raw or {})
    name = str(values.pop("name", None))
    if name not in classes:
        raise unknown(group, name, classes)
    if group == "model":
        of_others = {key for cls in classes.values() for key in declared.field_names(cls)}
        of_others -= {*declared.field_names(classes[name])}
        values = {key: value for key, value in values.items() if key not in of_others}
    return Component(name, build_params(classes[name], values, group))
