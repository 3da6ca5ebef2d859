"""Contract suite, without runs: checks of every registered method, also of other packages.

`test_contract_runs.py` has the checks that need runs.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from method_helpers import every_method

from benchmarks.config.experiments import CONF
from hydra_plugins.fln.search_path import plugin_conf_dirs
from methods.core import registry
from methods.core.contract import Method
from methods.core.task import LocalTask, Reply
from methods.dividemix import DivideMix
from methods.fedavg import FedAvg
from methods.fedcnml import FedCNML
from methods.toolkit.final_stage import FinalStageDelegation

HOOKS = {name: hook for name, hook in vars(Method).items() if inspect.isfunction(hook)}
del HOOKS["__init__"]
CLIENT_HOOKS = {name for name, hook in HOOKS.items() if "Side: client." in (hook.__doc__ or "")}

# Classes with a `local_update` of their own. Other methods use the hooks of `FedAvg.local_update`.
OWN_LOCAL_UPDATE = {
    FedAvg: "the training loop",
    DivideMix: "divides the samples before each epoch",
    FedCNML: "takes the models from the client state",
    FinalStageDelegation: "calls the delegate",
}


@every_method
def test_params_equal_yaml(info: registry.MethodInfo) -> None:
    directories = (CONF, *plugin_conf_dirs())
    paths = [directory / "method" / f"{info.name}.yaml" for directory in directories]
    (path,) = (path for path in paths if path.exists())
    values = yaml.safe_load(path.read_text())
    assert values.pop("name") == info.name
    assert values == dataclasses.asdict(info.params())
    assert registry.build(info.name, values).params == info.params()


@every_method
def test_docstring_has_summary_and_numbered_deviations(info: registry.MethodInfo) -> None:
    doc = inspect.cleandoc(info.cls.__doc__ or "")
    assert re.fullmatch(r"[A-Z].{20,150}\.", info.summary), "the first line is one sentence"
    assert re.search(r"\n\nDeviations:(\n\n1\. \S| none)", doc), "a numbered list, or `none`"
    assert info.family and re.search(r"\d{4}", info.paper)


@pytest.mark.parametrize("name", HOOKS)
def test_hook_documents_side_caller_and_access(name: str) -> None:
    doc = HOOKS[name].__doc__ or ""
    for part in (r"Side: (server|client)\.", r"Called by: \S", r"May read: \S"):
        assert re.search(part, doc), f"{name}: no {part!r}"


@every_method
def test_local_update_is_replaced_only_where_listed(info: registry.MethodInfo) -> None:
    replacing = {cls for cls in info.cls.__mro__ if "local_update" in vars(cls)} - {Method}
    assert replacing <= OWN_LOCAL_UPDATE.keys(), "use the hooks of FedAvg.local_update"


def client_functions(cls: type) -> dict[str, Callable[..., Any]]:
    """Functions of a class that run on clients: client-side hooks, and all that take a task."""
    functions = inspect.getmembers(cls, inspect.isfunction)
    return {
        name: function
        for name, function in functions
        if name in CLIENT_HOOKS or "task" in inspect.signature(function).parameters
    }


def attributes_set(function: Callable[..., Any]) -> list[str]:
    """Names of the attributes that a function sets on `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and re.match(r"self\b", ast.unparse(node))
    ]


@every_method
def test_client_functions_set_nothing_on_self(info: registry.MethodInfo) -> None:
    functions = client_functions(info.cls)
    assert CLIENT_HOOKS <= functions.keys()
    assert {name: attributes_set(function) for name, function in functions.items()} == {
        name: [] for name in functions
    }


def test_attributes_set_finds_counterexample() -> None:
    class Careless(FedAvg):
        def examine(self, task: LocalTask) -> Reply:
            self.last_client = task.client.id
            self.state.models["model"] = task.payload.models["model"]
            return task.client.reply({})

    found = attributes_set(client_functions(Careless)["examine"])
    assert sorted(found) == ["self.last_client", "self.state.models['model']"]
