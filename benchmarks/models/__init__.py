"""Networks by name, each with features() and head().

Weights are drawn from torch's generator alone: whoever calls `build` seeds it.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.models.base import ImageClassifier, ModelInfo, Shape
from benchmarks.models.cnn9 import CNN9_INFO
from benchmarks.models.digits_cnn import DIGITS_CNN
from benchmarks.models.lenet import LENET5
from benchmarks.models.mlp import MLP_INFO
from benchmarks.models.resnet import RESNET18, RESNET34, RESNET50
from benchmarks.models.vgg import VGG11_INFO
from methods.core.errors import UserError

__all__ = ["MODELS", "build", "check", "names"]

MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (CNN9_INFO, DIGITS_CNN, LENET5, MLP_INFO, RESNET18, RESNET34, RESNET50, VGG11_INFO)
}


def names() -> tuple[str, ...]:
    return tuple(MODELS)


def check(name: str, shape: Shape, params: Mapping[str, Any]) -> None:
    """Refuse, in one line and before anything is built, a model that cannot read such images or such parameters."""
    if name not in MODELS:
        raise UserError(f"model: {name!r} is unknown; legal: {', '.join(names())}")
    info = MODELS[name]
    for key, value in params.items():
        if key not in info.params:
            legal = ", ".join(info.params) or "none"
            raise UserError(f"model {name}: parameter {key!r} is unknown; legal: {legal}")
        if not info.params[key].accepts(value):
            raise UserError(
                f"model {name}: {key}={value!r} is illegal; legal: {info.params[key].legal}"
            )
    if not fits(info, shape):
        others = ", ".join(other for other in names() if fits(MODELS[other], shape))
        size = "x".join(map(str, shape))
        raise UserError(
            f"model {name}: {size} images are too small; legal: {info.smallest}x{info.smallest} and larger,"
            f" or for this size one of {others}"
        )
    info.check_further(shape, with_defaults(info, params))


def build(
    name: str, num_classes: int, shape: Shape, params: Mapping[str, Any] = {}
) -> ImageClassifier:
    """A freshly initialised network, on the CPU and in training mode."""
    check(name, shape, params)
    info = MODELS[name]
    return info.network(num_classes=num_classes, shape=shape, **with_defaults(info, params))


def fits(info: ModelInfo, shape: Shape) -> bool:
    return min(shape[1:]) >= info.smallest


def with_defaults(info: ModelInfo, params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: parameter.default for key, parameter in info.params.items()} | dict(params)
