"""Image classifiers by name.

Initial weights are sampled from torch's global generator. The caller of `build` seeds it.
"""

from typing import Any

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape
from methods.core.errors import invalid
from methods.core.params import build_params, field_names

__all__ = ["MODELS", "build", "validate_model"]


def validate_model(name: str, shape: Shape, params: Any = None) -> None:
    """Raise UserError if the model does not support images of this shape or cannot be built."""
    info = MODELS.get(name)
    if not supports_shape(info, shape):
        supported = ", ".join(model.name for model in MODELS.all() if supports_shape(model, shape))
        expected = f"a model for {'x'.join(map(str, shape))} images ({supported})"
        size = info.min_image_size
        raise invalid("model", name, f"{expected}; {name} requires at least {size}x{size}")
    if info.extra_check is not None:
        info.extra_check(shape, _or_defaults(info, params))


def build(name: str, num_classes: int, shape: Shape, params: Any = None) -> ImageClassifier:
    """Create a model on the CPU, in training mode.

    `params` is an instance of the model's parameter class. None: its defaults.
    """
    validate_model(name, shape, params)
    info = MODELS.get(name)
    params = _or_defaults(info, params)
    values = {key: getattr(params, key) for key in field_names(info.params)}
    return info.builder(num_classes=num_classes, shape=shape, **values)


def supports_shape(info: ModelInfo, shape: Shape) -> bool:
    """True if the images are large enough for the model."""
    return min(shape[1:]) >= info.min_image_size


def _or_defaults(info: ModelInfo, params: Any) -> Any:
    return build_params(info.params, {}, "model") if params is None else params
