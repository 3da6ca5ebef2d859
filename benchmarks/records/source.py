"""Source code of a run: version and commit of the suite, and digests of the selected components.

There is one digest per package. It covers the modules that define the components of a run and the
bases of their classes, and all modules of these packages that they import. Comments, docstrings
and layout do not count.
"""

import ast
import hashlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from benchmarks.config.schema import COMPONENTS, RunConfig, component_registries

IGNORED = {*sys.stdlib_module_names, "torch"}
ROOT = Path(__file__).resolve().parents[2]


def source_digests(config: RunConfig) -> dict[str, str]:
    """Digest of the source of each package that defines a component of the run."""
    registries = component_registries()
    infos = [registries[group].get(getattr(config, group).name) for group in COMPONENTS]
    return dict(_digests(frozenset(name for info in infos for name in _defining_modules(info))))


def _defining_modules(info: object) -> Iterator[str]:
    for value in vars(info).values():
        for part in inspect.getmro(value) if inspect.isclass(value) else [value]:
            if callable(part):
                yield getattr(part, "__module__", "builtins")


@cache  # The digest is that of the modules that were imported, also if files change later.
def _digests(names: frozenset[str]) -> dict[str, str]:
    packages = {_package(name) for name in names} - IGNORED
    modules: dict[str, str] = {}
    rest = list(names)
    while rest:
        name = rest.pop()
        if name in modules or name not in sys.modules or _package(name) not in packages:
            continue
        modules[name], imported = _read_module(sys.modules[name])
        rest += imported
    return {
        package: _hash(
            f"{name}\n{modules[name]}" for name in sorted(modules) if _package(name) == package
        )
        for package in sorted(packages)
    }


def _read_module(module: ModuleType) -> tuple[str, list[str]]:
    """Source without comments and docstrings, and the names of imported modules."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # no source, such as an empty file
        return "", []
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(relative, module.__package__)
            imported += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
    return ast.unparse(tree), imported


def _package(module: str) -> str:
    return module.partition(".")[0]


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@cache
def suite_commit() -> str:
    """Commit of the checkout that contains the suite, with `-dirty` after changes; else empty."""
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
