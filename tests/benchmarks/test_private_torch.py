"""Private parts of torch: names, supported versions, and use in benchmarks.engine only."""

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "methods", "noise", "partition", "reports")
ENGINE = ROOT / "benchmarks" / "engine"

SUPPORTED_VERSIONS = ("2.13",)
PRIVATE_NAMES = {
    "torch._functorch.aot_autograd.aot_function": "traces and compiles forward and backward pass",
    "torch._functorch.partitioners.default_partition": "stores activations for the backward pass",
    "torch._inductor.compile_fx.compile_fx_inner": "compiles a traced graph",
    "torch._inductor.config": "options of the compiler, set with `config.patch`",
    "torch._inductor.decomposition.select_decomp_table": "decompositions of the compiler",
    "torch.utils._python_dispatch.TorchDispatchMode": "replaces operators in inference",
}
# Private attributes of torch.nn.Module and torch.Tensor.
PRIVATE_ATTRIBUTES = {
    *(name for name in vars(torch.nn.Module()) if name.startswith("_")),
    *(name for name in dir(torch.Tensor) if name.startswith("_")),
    *(name for name in dir(torch.nn.Module) if name.startswith("_")),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_uses(source: str) -> Iterator[str]:
    """Private names of torch in a source file: imports, `torch._x`, and attributes of modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            if is_private(node.attr) and node.attr in PRIVATE_ATTRIBUTES:
                yield names[0]
        else:
            continue
        for name in names:
            root, *parts = name.split(".")
            if root in ("torch", "torchvision") and any(map(is_private, parts)):
                yield name


def uses_in(paths: list[Path]) -> set[str]:
    return {
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in private_uses(path.read_text())
    }


def test_torch_version_is_supported() -> None:
    version = ".".join(torch.__version__.split(".")[:2])
    assert version in SUPPORTED_VERSIONS, (
        f"torch {version} is installed, benchmarks.engine supports {SUPPORTED_VERSIONS}; "
        "run the tests of the engine and the frozen digests, then add the version"
    )


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_private_name_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    exists = hasattr(import_module(module), attribute)
    assert exists or find_spec(name), (
        f"torch {torch.__version__} has no {name} ({PRIVATE_NAMES[name]}); "
        f"benchmarks.engine supports torch {', '.join(SUPPORTED_VERSIONS)}"
    )


def test_engine_uses_the_declared_names() -> None:
    found = {use.split(": ")[1] for use in uses_in(sorted(ENGINE.rglob("*.py")))}
    assert found == set(PRIVATE_NAMES)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_torch_outside_the_engine(package: str) -> None:
    files = [path for path in (ROOT / package).rglob("*.py") if ENGINE not in path.parents]
    assert files
    assert uses_in(files) == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch._dynamo", ["torch._dynamo"]),
        ("from torch._C import Generator", ["torch._C.Generator"]),
        ("from torch import _foreach_add", ["torch._foreach_add"]),
        (
            "def f():\n    from torch.utils._pytree import tree_map",
            ["torch.utils._pytree.tree_map"],
        ),
        ("torch._foreach_add_(a, b)", ["torch._foreach_add_"]),
        ("x = torch.nn.utils._stateless.functional_call", ["torch.nn.utils._stateless"]),
        ("model.layer._buffers['mean'] = x", ["model.layer._buffers"]),
        ("net._parameters.clear()", ["net._parameters"]),
        ("version = tensor._version", ["tensor._version"]),
        ("self._buffers.clear()", ["self._buffers"]),
        ("self._buffer_shapes = model._engine", []),
        ("import torch\nfrom torch.nn import functional\nself._engine = torch.__version__", []),
    ],
)
def test_search_finds_private_names(source: str, expected: list[str]) -> None:
    assert sorted(set(private_uses(source)) & set(expected)) == expected
    assert bool(set(private_uses(source))) == bool(expected)
