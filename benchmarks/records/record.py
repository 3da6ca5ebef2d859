"""Run record: configuration, scenario, results and cost of one finished run, in `record.json`."""

import math
import platform
from collections.abc import Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from benchmarks.config.schema import COMPONENTS, PROTOCOL_VERSION
from benchmarks.federation.cost import CostMeter
from benchmarks.records.files import RECORD_FILE, write_json
from benchmarks.records.source import suite_commit
from methods.core.errors import UserError
from methods.core.params import Fraction, NonNegative, NonNegativeInt, PositiveInt
from methods.core.plugins import all_entry_points
from methods.core.renames import rename_keys

TESTED = "evaluated models on the test split"  # what the accuracies of a summary are measured on
# Accuracies of a summary, and the evaluations they are from.
ACCURACIES = {
    "selected": "evaluation with the best accuracy on held-out samples with given labels",
    "last10": "mean of the last ten evaluations",
    "best": "best evaluation, chosen on the test split (oracle)",
    "final": "last evaluation",
}
Status = Literal["done", "diverged", "failed"]
# Both are results of the configuration. A failed run is repeated.
FINAL_STATUSES = ("done", "diverged")
PACKAGES = (
    "federated-label-noise",
    "torch",
    "torchvision",
    "numpy",
    "scikit-learn",
    "pandas",
    "hydra-core",
)
# Keys of the configuration that other code relies on.
_TYPES: dict[str, Any] = {
    "seed": NonNegativeInt,
    "scale": Literal["paper", "laptop", "smoke"],
    "protocol": str | None,
    "hyperparameters": str | None,
    "labels": Literal["given", "clean", None],
    **{f"{group}.name": str for group in COMPONENTS},
    "train.local_epochs": PositiveInt,
    "federation.num_clients": PositiveInt,
    "budget.participations": PositiveInt,
}
CONFIG_TYPES = {key: TypeAdapter[Any](kind) for key, kind in _TYPES.items()}


class CorruptRecordError(UserError):
    """A record that cannot be read. The message names the file and the reason."""


class _Section(BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class ScenarioSection(_Section):
    """Realized partition and label noise."""

    hash: str  # equal for runs with the same client indices and given labels
    noise_convention: str = ""
    noise_rate: float = 0.0  # over the samples of all clients
    noisy_clients: int = 0
    client_sizes: list[int] = []  # smallest and largest


class Summary(_Section):
    """Test accuracy of a run with status `done`."""

    best: Fraction
    best_round: int = 0
    last10: Fraction  # mean of the last ten evaluations
    final: Fraction
    # At the evaluation with the best accuracy on held-out samples, given labels; if there are any.
    selected: Fraction | None = None
    selected_round: int = 0


class DeviceSection(_Section):
    """Device of the workers."""

    type: str = "cpu"
    name: str = ""
    versions: dict[str, str] = {}
    peak_memory_mb: int = 0  # of the worker that used most
    dropout_generator: str = "cpu"  # of this device, seeded for each task
    nondeterministic: list[str] = []  # operators of the model without a deterministic form
    instruction_set: str = ""  # of the CPUs, such as AVX2
    arithmetic: str = ""  # digest of a fixed calculation on the CPUs; equal if they round equally


class Time(_Section):
    """Time, memory and execution. The only section that differs between repetitions of a run."""

    seconds_method: NonNegative
    seconds_evaluation: NonNegative = 0.0
    executor: str = ""
    workers: int = 1
    compiled: bool = False
    peak_memory_mb: int = 0  # of this process, plus that of the worker process that used most
    device: DeviceSection = DeviceSection()

    @property
    def seconds(self) -> float:
        return self.seconds_method + self.seconds_evaluation


def _require_version(version: int) -> int:
    if version != PROTOCOL_VERSION:
        raise ValueError(f"protocol version {version} is not comparable with {PROTOCOL_VERSION}")
    return version


def require_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a record. Raises ValueError if a key above is not valid."""
    for key, kind in CONFIG_TYPES.items():
        value: Any = config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        try:
            kind.validate_python(value, strict=True)
        except ValidationError:
            raise ValueError(f"missing or invalid config.{key}") from None
    return config


class Record(_Section):
    """Run record. The order of the fields is the order of the keys in the file."""

    protocol_version: Annotated[int, AfterValidator(_require_version)]
    run_id: str
    status: Status
    reason: str = ""  # of a status other than `done`
    config: Annotated[dict[str, Any], AfterValidator(require_config)]  # RunConfig.hashed_config()
    scenario: ScenarioSection
    oracle: str = ""  # the parameters that were chosen with the true noise, if any
    rounds: int
    # None, written as {}, unless the status is `done`.
    summary: Annotated[
        Summary | None,
        BeforeValidator(lambda value: None if value == {} else value),
        pydantic.PlainSerializer(
            lambda value: value.model_dump(exclude_unset=True) if value else {}
        ),
    ]
    metrics: dict[str, float]  # last finite values of the diagnostics
    cost: CostMeter
    confusion: list[list[int]] = []  # true class by predicted class at the last evaluation
    versions: dict[str, str] = {}
    source: dict[str, str] = {}  # digest of the components' source, by package
    time: Time

    @pydantic.model_validator(mode="after")
    def _require_summary(self) -> "Record":
        if self.status == "done" and self.summary is None:
            raise ValueError("missing summary")
        return self

    def to_dict(self) -> dict[str, Any]:
        """The content of the file, without keys that the record was read without."""
        return self.model_dump(exclude_unset=True)


def write_record(run_dir: Path, record: Record) -> None:
    write_json(run_dir / RECORD_FILE, record.to_dict())


def read_record(run_dir: Path) -> Record | None:
    """Read the record of a run; None if the run is unfinished. Raises CorruptRecordError."""
    path = run_dir / RECORD_FILE
    try:
        data = path.read_bytes()
        content = from_json(data, allow_inf_nan=False)
        _require_range(content)
        if b'"protocol_version"' not in data:
            data = to_json(rename_keys(content))
        return Record.model_validate_json(data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = str(error.strerror)
    except ValidationError as error:
        reason = _first_reason(error)
    except ValueError as error:
        reason = f"not a valid JSON object: {error}"
    raise CorruptRecordError(f"cannot read {path}: {reason}")


def _require_range(value: Any) -> None:
    """Raise ValueError for integers with more than 64 bits and for infinite numbers."""
    if isinstance(value, (dict, list)):
        for entry in value.values() if isinstance(value, dict) else value:
            _require_range(entry)
    elif isinstance(value, (int, float)):
        if abs(value) >= (2**63 if isinstance(value, int) else math.inf):
            raise ValueError(f"number out of range: {str(value)[:20]}")


def _first_reason(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"missing {key}"
    if not key:
        return "not a valid JSON object"
    expected = first["msg"].removeprefix("Input should be ")
    return f"invalid {key}={str(first['input'])[:40]!r}: expected {expected}"


def package_versions(components: Collection[str] = ()) -> dict[str, str]:
    """Versions of Python and of the packages that affect results, and the commit of the suite.

    `components` are import packages that define components: their distributions are included.
    """
    found = {"python": platform.python_version()}
    if commit := suite_commit():
        found["commit"] = commit
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    for entry in all_entry_points():
        if entry.dist and entry.module.partition(".")[0] in components:
            found[entry.dist.name] = entry.dist.version
    return found
