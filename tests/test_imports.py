"""Imports point one way, and what should be quick does not wait for torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from methods.core import registry

ROOT = Path(__file__).parent.parent
HEAVY_BENCHMARKS = (
    "benchmarks.loop",
    "benchmarks.federation",
    "benchmarks.executors",
    "benchmarks.config.sweep",
    "benchmarks.run",
    "benchmarks.models",
)
FORBIDDEN = {
    "methods": ("benchmarks", "reports", "noise", "partition"),
    "noise": ("benchmarks", "reports", "methods", "partition"),
    "partition": ("benchmarks", "reports", "methods", "noise"),
    "benchmarks": ("reports", "tests"),
    "reports": (*HEAVY_BENCHMARKS, "noise", "partition", "torch", "torchvision"),
}


SHARED = ("methods.core.errors", "methods.core.params", "methods.core.plugins")
ALLOWED = {
    "noise": SHARED,
    "partition": SHARED,
}
WANDB = {
    "benchmarks/tracking/wandb_tracker.py",
    "benchmarks/tracking/wandb_service.py",
    "reports/wandb_dashboard.py",
}  # the only files that import it: it takes a second


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions. Relative names are resolved."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
                if node.level
                else str(node.module)
            )
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", FORBIDDEN)
def test_imports_point_one_way(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported(path)
        if not name.startswith(
            (*ALLOWED.get(room, ()), *ALLOWED.get(str(path.relative_to(ROOT)), ()))
        )
        if any(name == other or name.startswith(f"{other}.") for other in FORBIDDEN[room])
    }
    assert wrong == set()


def test_wandb_is_imported_where_it_is_asked_for() -> None:
    files = [path for room in FORBIDDEN for path in (ROOT / room).rglob("*.py")]
    assert {
        str(path.relative_to(ROOT))
        for path in files
        if any(name.startswith("wandb") for name in imported(path))
    } == WANDB


def test_the_search_sees_imports_of_every_form(tmp_path: Path) -> None:
    assert {
        "benchmarks.data",
        "benchmarks.federation.pool.ClientPool",
        "methods.core.registry",
    } <= set(imported(ROOT / "benchmarks" / "loop" / "runner.py"))
    assert "hydra.errors" in set(
        imported(ROOT / "benchmarks" / "config" / "compose.py")
    ) and "benchmarks.loop.runner.execute_run" in set(imported(ROOT / "benchmarks" / "run.py"))


def test_the_search_sees_relative_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("from . import one\nfrom .two import Three\n")
    found = set(imported(tmp_path / "package" / "module.py"))
    assert found == {"package", "package.one", "package.two", "package.two.Three"}


def modules_after(*command: str) -> tuple[str, set[str]]:
    """Run `python -m` in a new process. Returns its output and the imported modules."""
    program = f"""
import runpy, sys
sys.argv = {list(command)!r}
try:
    runpy.run_module({command[0]!r}, run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
print("IMPORTED", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown, _, names = done.stdout.partition("IMPORTED ")
    return shown, set(names.split())


def test_help_lists_every_method_and_does_not_wait_for_torch() -> None:
    shown, modules = modules_after("benchmarks.run", "--help")
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("method="))
    ours = [
        info.name for info in registry.list_methods() if info.cls.__module__.startswith("methods.")
    ]
    assert line.split("=", 1)[1].replace("|", " ").split() == ours
    assert modules.isdisjoint({"torch", "numpy", "sklearn", "rich", "wandb"})
