"""Registries of components: methods, noise models, partitioners, datasets and models.

    NOISE_MODELS: Registry[NoiseModel] = Registry("noise model", group="fln.noise", package="noise")
    NOISE_MODELS.add(NoiseModel(name="none", ...))

Every module of `package` adds its own components when it is imported. Other installed packages
name their modules in an entry-point group, for example in `pyproject.toml`:

    [project.entry-points."fln.noise"]
    uniform = "my_package.uniform"
"""

import importlib
import pkgutil
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeVar

from methods.core.errors import UserError, first_line, unknown


class Named(Protocol):
    """A component with a unique name, such as a frozen dataclass with a field `name`."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def first_sentence(component: object) -> str:
    """First line of a docstring, without its period."""
    return (component.__doc__ or "").strip().split("\n")[0].rstrip(".")


def all_entry_points() -> list[EntryPoint]:
    """Entry points of all installed packages in the groups `fln.*`."""
    groups = [group for group in entry_points().groups if group.startswith("fln.")]
    return [entry for group in groups for entry in entry_points(group=group)]


class Registry(Generic[T]):
    """Components of one kind by name. The first lookup imports the modules that add them."""

    def __init__(self, kind: str, group: str, package: str):
        self.kind = kind  # for error messages
        self.group = group  # entry-point group of other packages
        self.package = package  # package with the built-in components
        self._components: dict[str, T] = {}
        self._is_loaded = False

    def add(self, component: T) -> T:
        """Register a component. A name that is in use is an error."""
        if component.name in self._components:
            raise UserError(f"duplicate {self.kind} {component.name}: expected a unique name")
        self._components[component.name] = component
        return component

    def get(self, name: str) -> T:
        """Return the component of this name. Any other name is a UserError."""
        self._load()
        if name not in self._components:
            raise unknown(self.kind, name, self.names())
        return self._components[name]

    def names(self) -> list[str]:
        self._load()
        return sorted(self._components)

    def all(self) -> list[T]:
        return [self._components[name] for name in self.names()]

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True  # before the imports: a module may look up a component
        try:
            for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
                if not module.name.startswith("_"):  # `__main__` is a command
                    importlib.import_module(f"{self.package}.{module.name}")
            for entry in entry_points(group=self.group):
                self._load_entry(entry)
        except BaseException:
            self._is_loaded = False  # the next lookup reports the error again
            raise

    def _load_entry(self, entry: EntryPoint) -> None:
        try:
            entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.module
            raise UserError(
                f"cannot load {self.kind} {entry.name} of package {package}: "
                f"{type(error).__name__}: {first_line(error)}; fix or uninstall the package"
            ) from error
