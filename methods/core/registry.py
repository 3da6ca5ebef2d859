"""Registry of methods. Other packages add methods in the entry-point group `fln.methods`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from methods.core.contract import Method
from methods.core.params import NoParams, build_params
from methods.core.plugins import Registry

MethodClass = TypeVar("MethodClass", bound=type[Method])


@dataclass(frozen=True)
class MethodInfo:
    name: str
    cls: type[Method]
    params: type
    family: str
    paper: str
    summary: str  # first line of the class docstring
    static_step: bool  # a training step can be a CUDA graph

    @property
    def num_models(self) -> int:
        """Number of models that a client receives."""
        return len(self.cls.model_names)


METHODS: Registry[MethodInfo] = Registry("method", group="fln.methods", package="methods")


def register(
    *, family: str, paper: str, static_step: bool = False
) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: `@register(family="aggregation", paper="Author et al., Venue Year")`.

    `static_step`: the loss and the penalty run the same operators on every batch, and depend on the
    batch only through its tensors. They read and store nothing else that differs between batches.
    """

    def add(cls: MethodClass) -> MethodClass:
        summary = (cls.__doc__ or "").strip().split("\n")[0]
        annotated = get_type_hints(cls)["params"]
        params = NoParams if annotated is Any else annotated
        METHODS.add(MethodInfo(cls.name, cls, params, family, paper, summary, static_step))
        return cls

    return add


list_methods, get = METHODS.all, METHODS.get


def build(name: str, params: Mapping[str, Any]) -> Method:
    """Create a method from its name and parameters. Missing parameters have their defaults."""
    info = get(name)
    return info.cls(build_params(info.params, params, "method"))
