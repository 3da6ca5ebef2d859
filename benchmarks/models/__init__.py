"""Image classifiers by name.

Initial weights are sampled from torch's global generator. The caller of `build` seeds it.
"""

from typing import Any

from benchmarks.models.base import MODELS, ImageClassifier, Shape
from methods.core.errors import invalid
from methods.core.params import field_names

__all__ = ["MODELS", "build", "validate_model"]


def validate_model(name: str, shape: Shape, params: Any = None) -> None:
    """Raise UserError if the model does not support images of this shape or cannot be built."""
    info, smallest_side = MODELS.get(name), min(shape[1:])
    if smallest_side < (size := info.min_image_size):
        fitting = (model.name for model in MODELS.all() if smallest_side >= model.min_image_size)
        expected = f"a model for {'x'.join(map(str, shape))} images ({', '.join(fitting)})"
        raise invalid("model", name, f"{expected}; {name} requires at least {size}x{size}")
    if info.extra_check is not None:
        info.extra_check(shape, params or info.params())


def build(name: str, num_classes: int, shape: Shape, params: Any = None) -> ImageClassifier:
    """Create a model on the CPU, in training mode.

    `params` is an instance of the model's parameter class. None: its defaults.
    """
    validate_model(name, shape, params)
    info = MODELS.get(name)
    params = params or info.params()
    values = {key: getattr(params, key) for key in field_names(info.params)}
    return info.builder(num_classes=num_classes, shape=shape, **values)
