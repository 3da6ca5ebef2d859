"""Structure of the code base: imports, start-up time, sizes of files and functions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from import_graph import (
    ROOT,
    build_graph,
    find_cycles,
    imported_names,
    module_name,
    read_sources,
    source_files,
)

from methods.core import registry

MAX_FILE_LINES = 400
WANDB_MODULES = {  # W&B takes a second to import.
    "benchmarks.tracking.wandb_tracker",
    "benchmarks.tracking.wandb_service",
    "reports.wandb_dashboard",
}
MAX_FUNCTION_LINES = 60
FORBIDDEN = {
    "methods": ("noise", "partition", "benchmarks", "reports", "hydra_plugins"),
    "noise": ("partition", "benchmarks", "reports", "hydra_plugins"),
    "partition": ("noise", "benchmarks", "reports", "hydra_plugins"),
    "benchmarks": ("reports", "hydra_plugins", "tests"),
    "reports": ("hydra_plugins", "tests", "torch", "torchvision"),
    "hydra_plugins": ("reports", "tests"),
}
ALLOWED_IN_NOISE_AND_PARTITION = (
    "methods.core.archives",
    "methods.core.errors",
    "methods.core.params",
    "methods.core.plugins",
)


def wrong_imports(module: str, package: str, source: str) -> list[str]:
    """Imports of a module that its package must not have."""
    top = module.partition(".")[0]
    names = list(imported_names(source, package))
    wrong = [name for name in names if name.partition(".")[0] in FORBIDDEN[top]]
    if top in ("noise", "partition"):
        of_methods = [name for name in names if name.partition(".")[0] == "methods"]
        wrong += [
            name for name in of_methods if not name.startswith(ALLOWED_IN_NOISE_AND_PARTITION)
        ]
    if top not in ("hydra_plugins",):
        wrong += [name for name in names if name.startswith("hydra._internal")]
    return wrong


def test_imports_point_one_way() -> None:
    found = {
        module: wrong
        for module, (package, source) in read_sources().items()
        if (wrong := wrong_imports(module, package, source))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("methods.fedavg", "import benchmarks.run"),
        ("benchmarks.loop.runner", "def f():\n    from reports.figures import style"),
        ("noise.base", "from methods.fedavg import FedAvg"),
        ("noise.base", "from ..benchmarks import data"),
        ("benchmarks.run", "from hydra._internal.utils import x"),
    ],
)
def test_wrong_imports_are_found(module: str, source: str) -> None:
    assert wrong_imports(module, module.rpartition(".")[0], source)


def test_there_is_no_import_cycle() -> None:
    graph = build_graph(read_sources())
    assert len(graph) > 100
    assert find_cycles(graph) == []


def test_import_cycles_are_found() -> None:
    sources = {
        "a": ("", "import b"),
        "b": ("", "def f():\n    from c.d import name"),
        "c": ("c", ""),
        "c.d": ("c", "import a"),
        "e": ("", "import a"),
    }
    assert find_cycles(build_graph(sources)) == [["a", "b", "c.d"]]


@pytest.mark.parametrize("path", source_files(), ids=module_name)
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MAX_FILE_LINES, path.relative_to(ROOT)
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
        if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_wandb_is_imported_in_few_modules() -> None:
    found = {
        module
        for module, (package, source) in read_sources().items()
        if any(name.partition(".")[0] == "wandb" for name in imported_names(source, package))
    }
    assert found == WANDB_MODULES


def test_help_lists_every_method_without_importing_torch() -> None:
    program = """
import runpy, sys
sys.argv = ["benchmarks.run", "--help"]
try:
    runpy.run_module("benchmarks.run", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
print("IMPORTED", *sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.partition("IMPORTED ")
    listed = shown.partition("method=  ")[2].partition("dataset=  ")[0]
    names = [info.name for info in registry.list_methods() if info.cls.__module__[:8] == "methods."]
    assert set(names) <= set(listed.replace("|", " ").split())
    assert {"torch", "numpy", "sklearn", "rich", "wandb"}.isdisjoint(modules.split())
