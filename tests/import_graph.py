"""Import graph of the source packages, read from the syntax tree. Lazy imports count."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("methods", "noise", "partition", "benchmarks", "reports", "hydra_plugins")
Graph = Mapping[str, set[str]]


def source_files() -> list[Path]:
    """All Python files outside tests and docs."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    """Dotted name of a file; a package for its `__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, package: str) -> Iterator[str]:
    """All names that a module imports, also inside functions. Relative names are resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def build_graph(sources: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Edges between modules, from `{module: (package, source)}`."""
    graph: dict[str, set[str]] = {module: set() for module in sources}
    for module, (package, source) in sources.items():
        for name in imported_names(source, package):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                graph[module].add(name)
    return graph


def read_sources() -> dict[str, tuple[str, str]]:
    """Package and text of every source module."""
    sources = {}
    for path in source_files():
        name = module_name(path)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        sources[name] = (package, path.read_text())
    return sources


def find_cycles(graph: Graph) -> list[list[str]]:
    """Strongly connected components with more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                cycles.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return cycles
