"""Registry of methods, and the public names of the package."""

import subprocess
import sys
from pathlib import Path

import pytest
from run_helpers import PLUGIN

import methods
from methods.core import registry
from methods.core.errors import UserError
from methods.fedavg import FedAvg
from methods.fedprox import FedProx, FedProxParams

DIRECTORY = Path(methods.__file__).parent


def test_finds_the_methods_of_this_and_of_other_packages() -> None:
    names = [info.name for info in registry.list_methods()]
    assert names == sorted(names) and len(names) == len(set(names))
    files = [path for path in DIRECTORY.rglob("*.py") if "\n@register(" in path.read_text()]
    modules = [path.stem if path.parent == DIRECTORY else path.parent.name for path in files]
    assert sorted(set(names) - {"class_prior", "norm_clipping"}) == sorted(modules), (
        "a method has its file's name"
    )
    external = registry.get("norm_clipping").cls
    assert external.__module__ == "example_plugin.norm_clipping"
    assert Path(str(sys.modules[external.__module__].__file__)).is_relative_to(PLUGIN)


def test_method_info() -> None:
    info = registry.get("fedprox")
    assert (info.name, info.cls, info.params) == ("fedprox", FedProx, FedProxParams)
    assert (info.family, info.paper) == ("regularization", "Li et al., MLSys 2020")
    assert info.summary == (FedProx.__doc__ or "").split("\n")[0]
    assert (info.num_models, registry.get("coteaching").num_models) == (1, 2)


def test_build_with_default_and_given_parameters() -> None:
    assert registry.build("fedprox", {}).params == FedProxParams()
    method = registry.build("fedprox", {"mu": 0.25})
    assert isinstance(method, FedProx) and vars(method) == {"params": FedProxParams(mu=0.25)}


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("fedproxx", {}, r"unknown method fedproxx: did you mean fedprox\? available: arfl, .*"),
        ("fedprox", {"nu": 1}, r"unknown key method\.nu: available: mu, form"),
        ("fedavg", {"mu": 1}, r"unknown key method\.mu: available: none"),
    ],
)
def test_unknown_names(name: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        registry.build(name, params)


def test_duplicate_name_is_an_error() -> None:
    class Duplicate(FedAvg):
        """Has the name of FedAvg."""

    with pytest.raises(UserError, match="^duplicate method fedavg: "):
        registry.register(family="baseline", paper="none, 2024")(Duplicate)
    assert registry.get("fedavg").cls is FedAvg


def test_public_names() -> None:
    assert methods.FedAvg is FedAvg and methods.register is registry.register
    assert all(getattr(methods, name) is not None for name in methods.__all__)
    with pytest.raises(AttributeError, match="^module 'methods' has no attribute 'FedAverage'$"):
        _ = methods.FedAverage


def test_errors_and_parameters_do_not_import_torch() -> None:
    program = """
import sys
import methods.core.errors, methods.core.params, methods.core.plugins
from methods import invalid, parameters
assert "torch" not in sys.modules
from methods import training
"""
    subprocess.run([sys.executable, "-c", program], cwd=DIRECTORY.parent, check=True)
