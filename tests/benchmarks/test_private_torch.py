"""The suite uses no private parts of torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "methods", "noise", "partition", "reports")
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


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_torch(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
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
