"""The registry: how methods are found, and what it says of a name or a parameter that does not exist."""

import dataclasses
from pathlib import Path

import pytest
from running import PLUGIN

from methods.core import registry
from methods.fedavg import FedAvg
from methods.fedprox import FedProx, FedProxParams

FOLDER = Path(registry.__file__).parent.parent


def test_finds_every_method_of_the_folder_and_those_of_other_packages() -> None:
    names = [info.name for info in registry.list_methods()]
    assert names == sorted(names) and len(names) == len(set(names))
    files = [path for path in FOLDER.rglob("*.py") if "\n@register(" in path.read_text()]
    ours = [path.stem if path.parent == FOLDER else path.parent.name for path in files]
    assert sorted(set(names) - {"norm_clipping"}) == sorted(ours), "a method is named as its file"
    foreign = registry.get("norm_clipping")
    assert foreign.cls.__module__ == "example_plugin.norm_clipping"
    assert Path(str(__import__(foreign.cls.__module__).__file__)).is_relative_to(PLUGIN)


def test_entry_says_what_a_method_is() -> None:
    info = registry.get("fedprox")
    assert (info.cls, info.params, info.family, info.paper) == (
        FedProx,
        FedProxParams,
        "regularisation",
        "Li et al., MLSys 2020",
    )
    assert (
        info.summary == "FedAvg whose local loss holds the weights near the received model."
        and info.num_models == 1
    )
    assert registry.get("coteaching").num_models == 2
    assert dataclasses.fields(info)[0].name == "name" and "fedprox" in str(info)


def test_builds_with_defaults_and_changes() -> None:
    assert registry.build("fedprox", {}).params == FedProxParams()
    method = registry.build("fedprox", {"mu": 0.25})
    assert (
        isinstance(method, FedProx)
        and method.params == FedProxParams(mu=0.25)
        and vars(method) == {"params": method.params}
    )


def test_errors_name_what_is_legal() -> None:
    with pytest.raises(
        ValueError,
        match=r"^method='fedproxx' is unknown; legal: arfl, coteaching, .*, symmetric_ce$",
    ):
        registry.build("fedproxx", {})
    with pytest.raises(
        ValueError, match=r"^method\.nu is not a parameter of fedprox; legal: mu, form$"
    ):
        registry.build("fedprox", {"nu": 1})
    with pytest.raises(ValueError, match=r"^method\.mu is not a parameter of fedavg; legal: none$"):
        registry.build("fedavg", {"mu": 1})


def test_name_that_is_taken_is_refused() -> None:
    class Usurper(FedAvg):
        """Calls itself FedAvg."""

    with pytest.raises(
        ValueError,
        match=r"^method name 'fedavg' is taken by methods\.fedavg; test_registry must choose another$",
    ):
        registry.register(family="baseline", paper="none, 2024")(Usurper)
    assert registry.get("fedavg").cls is FedAvg
