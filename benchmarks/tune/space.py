"""Search spaces: conf/search/METHOD.yaml of the suite and of installed packages.

    method.mu: {low: 0.001, high: 1.0, log: true}  # the source of the range

Keys are keys of the run configuration. Integers are searched where the recipe has an integer.
conf/search/default.yaml applies to every method; with `relative`, bounds are factors of the
recipe's value. A method without a file has these parameters only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from benchmarks.config.compose import Composer
from benchmarks.config.schema import RunConfig
from methods.core.errors import invalid, require_package, unknown
from methods.core.params import build_params, parameters

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

DEFAULT = "default"
MAX_OWN_PARAMETERS = 2  # parameters of a method, beside those of conf/search/default.yaml
Values = dict[str, float]


@parameters
class Range:
    """Bounds of one parameter, as written in the file."""

    low: float
    high: float
    log: bool = False
    relative: bool = False


@dataclass(frozen=True)
class SearchedParameter:
    """A parameter with its bounds and the value of the recipe."""

    key: str
    low: float
    high: float
    log: bool
    recipe: float

    @property
    def is_integer(self) -> bool:
        return isinstance(self.recipe, int)

    @property
    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.is_integer:
            return IntDistribution(math.ceil(self.low), math.floor(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def round(self, value: float) -> float:
        """The value with three significant digits, within the bounds."""
        if self.is_integer:
            return int(value)
        return min(max(float(f"{value:.3g}"), self.low), self.high)


def load_space(recipe: RunConfig, overrides: Sequence[str] = ()) -> list[SearchedParameter]:
    """Search space of a method around its recipe. Requires an initialized Hydra."""
    method = recipe.method.name
    searchpath = [text for text in overrides if text.startswith("hydra.searchpath=")]
    loader = GlobalHydra.instance().config_loader()
    options = loader.get_group_options("search", overrides=searchpath)
    shared, own = (_read(name, searchpath) if name in options else {} for name in (DEFAULT, method))
    if len(own.keys() - shared.keys()) > MAX_OWN_PARAMETERS:
        names = ", ".join(own)
        raise invalid(f"search/{method}.yaml", names, f"at most {MAX_OWN_PARAMETERS} parameters")
    config = recipe.hashed_config()
    return [_resolve(key, bounds, config) for key, bounds in (shared | own).items()]


def sample_values(space: Sequence[SearchedParameter], trials: int) -> list[Values]:
    """Values of all trials: the recipe, then points of a scrambled Sobol sequence."""
    import warnings

    optuna = import_optuna()
    distributions = {parameter.key: parameter.distribution for parameter in space}
    recipe = {parameter.key: parameter.recipe for parameter in space}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.QMCSampler(scramble=True, seed=0)
    study = optuna.create_study(sampler=sampler)
    # The sampler takes the parameters of the sequence from a finished trial.
    first = optuna.trial.create_trial(params=recipe, distributions=distributions, value=0.0)
    study.add_trial(first)
    sampled = [study.ask(distributions).params for _ in range(trials - 1)]
    return [recipe, *({p.key: p.round(values[p.key]) for p in space} for values in sampled)]


def import_optuna() -> Any:
    """Optuna, without its messages. Raises UserError if it is not installed."""
    require_package("optuna", extra="tune")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _read(name: str, searchpath: Sequence[str]) -> dict[str, Range]:
    config = Composer(shared=searchpath).compose([f"+search={name}"])
    content: Any = OmegaConf.to_container(config.search)
    file = f"search/{name}.yaml"
    return {key: build_params(Range, value, f"{file}: {key}") for key, value in content.items()}


def _resolve(key: str, bounds: Range, config: Mapping[str, Any]) -> SearchedParameter:
    section, _, name = key.partition(".")
    values = config[section] if section in ("train", "method") else {}
    if name not in values:
        available = [f"{group}.{each}" for group in ("train", "method") for each in config[group]]
        raise unknown("key", key, available)
    recipe = values[name]
    if isinstance(recipe, bool) or not isinstance(recipe, (int, float)):
        raise invalid(key, recipe, "a number, because it is searched between two numbers")
    factor = recipe if bounds.relative else 1
    low, high = bounds.low * factor, bounds.high * factor
    if not low < high or (bounds.log and low <= 0):
        raise invalid(f"search space of {key}", [low, high], "low < high, and low > 0 with log")
    if not low <= recipe <= high:
        raise invalid(key, recipe, f"a value within the search space [{low:g}, {high:g}]")
    return SearchedParameter(key, low, high, bounds.log, recipe)
