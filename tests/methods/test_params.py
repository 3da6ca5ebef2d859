"""Parameter classes: accepted values, error messages, and the constraints of the methods."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from methods.core.errors import UserError, invalid
from methods.core.params import (
    Fraction,
    NonNegativeInt,
    Positive,
    Tuple,
    build_params,
    describe,
    parameters,
)
from methods.core.registry import build


@parameters
class ExampleParams:
    size: NonNegativeInt  # required
    rate: Fraction = 0.5
    form: Literal["a", "b"] = "a"
    is_on: bool = False
    limits: Tuple[Positive] = (1.0,)

    @model_validator(mode="after")
    def _check_form(self) -> "ExampleParams":
        if self.form == "b" and self.rate == 0:
            raise invalid("section.rate", self.rate, "a number above 0 with section.form=b")
        return self


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "missing section.size: set section.size=VALUE"),
        ({"size": -1}, "invalid section.size=-1: expected an integer of at least 0"),
        ({"size": 1.0}, "invalid section.size=1.0: expected an integer of at least 0"),
        ({"size": True}, "invalid section.size=true: expected an integer of at least 0"),
        ({"size": 1, "rate": 1.4}, "invalid section.rate=1.4: expected a number in [0, 1]"),
        ({"size": 1, "rate": "1"}, "invalid section.rate='1': expected a number in [0, 1]"),
        ({"size": 1, "rate": None}, "invalid section.rate=null: expected a number in [0, 1]"),
        (
            {"size": 1, "rate": float("nan")},
            "invalid section.rate=nan: expected a number in [0, 1]",
        ),
        ({"size": 1, "form": "c"}, "invalid section.form='c': expected a or b"),
        ({"size": 1, "is_on": 1}, "invalid section.is_on=1: expected true or false"),
        (
            {"size": 1, "limits": [1.0, 0.0]},
            "invalid section.limits=[1.0, 0.0]: expected a list, each entry a number above 0",
        ),
        (
            {"size": 1, "form": "b", "rate": 0.0},
            "invalid section.rate=0.0: expected a number above 0 with section.form=b",
        ),
        (
            {"size": 1, "rat": 0.1},
            "unknown key section.rat: did you mean rate? "
            "available: size, rate, form, is_on, limits",
        ),
        (3, "invalid section=3: expected keys size, rate, form, is_on, limits"),
    ],
)
def test_error_messages(values, message):
    with pytest.raises(UserError) as error:
        build_params(ExampleParams, values, "section")
    assert str(error.value) == message


def test_integers_become_floats_and_lists_become_tuples():
    params = build_params(ExampleParams, {"size": 3, "rate": 1, "limits": [1, 2.5]}, "section")
    assert params == ExampleParams(size=3, rate=1.0, limits=(1.0, 2.5))
    assert type(params.rate) is float


def test_parameters_are_frozen():
    with pytest.raises(AttributeError):
        ExampleParams(size=1).size = 2


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Annotated[float, Field(gt=0, lt=1)], "a number in (0, 1)"),
        (Annotated[int, Field(le=9)], "an integer of at most 9"),
        (Annotated[int, Field(lt=9)], "an integer below 9"),
        (Literal["a", "b", "c"], "a, b or c"),
        (float | None, "a number or null"),
    ],
)
def test_descriptions_of_types(hint, text):
    assert describe(hint) == text


@pytest.mark.parametrize(
    ("method", "key", "value", "expected"),
    [
        ("fedprox", "mu", -0.1, "a number of at least 0"),
        ("fedprox", "form", "cubed", "squared or norm"),
        ("feddyn", "alpha", 0.0, "a number above 0"),
        ("poc", "d", 0, "an integer of at least 1"),
        ("poc", "weighting", "size", "plain or samples"),
        ("arfl", "confidence_interval", 0.0, "a number above 0"),
        ("arfl", "delta", 1.5, "a number in [0, 1]"),
        ("symmetric_ce", "alpha", -1, "a number of at least 0"),
        ("symmetric_ce", "beta", -1, "a number of at least 0"),
        ("lsg", "supervised_form", "double", "softmax_twice or literal"),
        ("lsg", "distillation", "mse", "kl, js or none"),
        ("lsg", "kl_reduction", "sum", "mean, batchmean or linear"),
        ("lsg", "ema_alpha", 1.0, "a number in [0, 1)"),
        ("lsg", "temperature", 0.0, "a number above 0"),
        ("lsg", "sharpen_temperature", -1.0, "a number above 0"),
        ("lsg", "lambda_", -0.1, "a number of at least 0"),
        ("lsg", "warmup_fraction", 1.5, "a number in [0, 1]"),
        ("fedlsr", "entropy_form", "both", "fixed or code"),
        ("fedlsr", "gamma", -1.0, "a number of at least 0"),
        ("fedlsr", "lambda_e", -1.0, "a number of at least 0"),
        ("fedlsr", "temperature", 0.0, "a number above 0"),
        ("fedlsr", "warmup_fraction", -0.1, "a number in [0, 1]"),
        ("coteaching", "forget_rate", 1.0, "a number in [0, 1)"),
        ("coteaching", "ramp_fraction", 1.5, "a number in [0, 1]"),
        ("rofl", "forget_rate", 1.0, "a number in [0, 1)"),
        ("rofl", "ramp_fraction", 2.0, "a number in [0, 1]"),
        ("rofl", "pseudo_label_start_fraction", -0.1, "a number in [0, 1]"),
        ("rofl", "lambda_cen", -1.0, "a number of at least 0"),
        ("rofl", "lambda_e", -1.0, "a number of at least 0"),
        ("rofl", "pseudo_label_view", "strong", "train or plain"),
    ],
)
def test_constraints_of_methods(method, key, value, expected):
    with pytest.raises(UserError) as error:
        build(method, {key: value})
    assert str(error.value) == f"invalid method.{key}={value!r}: expected {expected}"
