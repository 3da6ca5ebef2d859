"""Write the generated pages of the documentation: methods, hooks, components, import graph."""

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
OUT = HERE / "generated"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from import_graph import build_graph, find_cycles, read_sources  # noqa: E402

from benchmarks.data import DATASETS  # noqa: E402
from benchmarks.models import MODELS  # noqa: E402
from methods.core import params, registry  # noqa: E402
from methods.core.contract import ClientPool, Diagnosis, Method, ServerState  # noqa: E402
from methods.core.plugins import Registry  # noqa: E402
from methods.core.task import (  # noqa: E402
    Batch,
    Client,
    LocalTask,
    Payload,
    Reply,
    RoundContext,
    TaskSpec,
)
from noise import NOISE_MODELS  # noqa: E402
from partition import PARTITIONERS  # noqa: E402

OBJECTS = (LocalTask, Client, Batch, Payload, Reply, RoundContext, TaskSpec)
OBJECTS += (ClientPool, ServerState, Diagnosis)
PARAMETER_TYPES = ("Positive", "NonNegative", "PositiveInt", "NonNegativeInt")
PARAMETER_TYPES += ("Fraction", "ProperFraction", "PositiveFraction")
SPEED = ROOT / "reports" / "reproductions" / "speed" / "speed.json"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def parameter_table(cls: type) -> str:
    """Key, default, accepted values and meaning of each parameter."""
    rows = [
        [f"`{name}`", default if default == "required" else f"`{default}`", accepts, meaning]
        for name, default, accepts, meaning in params.describe_fields(cls)
    ]
    if not rows:
        return "This component has no parameters."
    return table(["Parameter", "Default", "Accepts", "Meaning"], rows)


def measured_cost(name: str) -> str:
    """Cost of a method relative to FedAvg, from the committed speed measurement."""
    entry = json.loads(SPEED.read_text())["parts"]["methods"].get(name)
    if entry is None:
        return "not measured"
    time, passes = entry["ratio"], entry["passes"]
    return f"{time:.2f} times the time and {passes:.2f} times the sample passes of FedAvg"


def method_page(info: registry.MethodInfo) -> str:
    """One page per method, from its docstring and parameters."""
    cls = info.cls
    docstring = inspect.getdoc(cls) or ""
    facts = table(
        ["", ""],
        [
            ["Paper", info.paper],
            ["Family", info.family],
            ["Models", str(info.num_models)],
            ["Client state", cls.client_state_doc],
            ["Cost", measured_cost(info.name)],
            ["Source", f"`{cls.__module__}`"],
        ],
    )
    parts = [f"# {info.name}", docstring, facts, "## Parameters", parameter_table(info.params)]
    return "\n\n".join(parts) + "\n"


def hook_table() -> str:
    """All hooks of the contract, from their docstrings."""
    docs = {name: getattr(hook, "__doc__", None) or "" for name, hook in vars(Method).items()}
    rows = [
        [f"`{signature(getattr(Method, name))}`", *hook_facts(doc)]
        for name, doc in docs.items()
        if "Side: " in doc
    ]
    return table(["Hook", "Purpose", "Side", "Called by", "May read"], rows)


def signature(function: Any) -> str:
    """Name and arguments of a function, without `self`."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return f"{function.__name__}({', '.join(names)})"


def object_section(cls: type) -> str:
    """Fields and methods of a class that hooks receive or return, from its source."""
    lines = inspect.getsource(cls).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    rows = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = lines[node.lineno - 1].partition("  # ")[2]
            rows.append([f"`{node.target.id}`", f"`{ast.unparse(node.annotation)}`", comment])
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            returned = f"`{ast.unparse(node.returns)}`" if node.returns else ""
            is_property = any(ast.unparse(mark) == "property" for mark in node.decorator_list)
            arguments = ", ".join(argument.arg for argument in node.args.args[1:])
            rest = f"*{node.args.vararg.arg}" if node.args.vararg else ""
            call = f"({', '.join(filter(None, [arguments, rest]))})"
            rows.append([f"`{node.name}{'' if is_property else call}`", returned, summary])
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    members = table(["Member", "Type", "Meaning"], rows)
    return f"## {cls.__name__}\n\n{summary}\n\n{members}"


def hooks_page() -> str:
    """The table of hooks, the objects that they use, and the types of parameters."""
    types = [[f"`{name}`", params.describe(getattr(params, name))] for name in PARAMETER_TYPES]
    return "\n\n".join(
        [
            "# Hooks of a method",
            "All names on this page are imported from `methods`.",
            hook_table(),
            *(object_section(cls) for cls in OBJECTS),
            "## Types of parameters",
            table(["Type", "Accepts"], types),
        ]
    )


def hook_facts(docstring: str) -> list[str]:
    """Purpose, side, caller and readable objects from the docstring of a hook."""
    text = " ".join(docstring.split())
    purpose, _, facts = text.partition(" Side: ")
    side, _, rest = facts.partition(" Called by: ")
    caller, _, readable = rest.partition(" May read: ")
    return [purpose.strip(), *(part.strip().rstrip(".") for part in (side, caller, readable))]


def components_page() -> str:
    """Noise models, partitions, models and datasets with their parameters."""
    groups: dict[str, Registry[Any]] = {
        "Noise models": NOISE_MODELS,
        "Partitions": PARTITIONERS,
        "Models": MODELS,
        "Datasets": DATASETS,
    }
    parts = ["# Noise models, partitions, models, datasets"]
    for title, components in groups.items():
        parts.append(f"## {title}")
        for component in components.all():
            summary = getattr(component, "summary", getattr(component, "origin", ""))
            convention = getattr(component, "convention", "")
            parts += [
                f"### {component.name}",
                summary,
                convention,
                parameter_table(component.params),
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def import_graph_page() -> str:
    """Dependencies between packages. Fails if there is a cycle."""
    graph = build_graph(read_sources())
    if cycles := find_cycles(graph):
        raise SystemExit(f"import cycle: {cycles}")
    packages: dict[str, set[str]] = {}
    for module, targets in graph.items():
        package = ".".join(module.split(".")[:2])
        used = packages.setdefault(package, set())
        used.update(".".join(target.split(".")[:2]) for target in targets)
        used.discard(package)
    rows = [
        [f"`{name}`", ", ".join(f"`{used}`" for used in sorted(packages[name])) or "-"]
        for name in sorted(packages)
    ]
    return (
        "# Import graph\n\nGenerated from the source. Lazy imports count. There is no cycle.\n\n"
        + table(["Package or module", "Imports"], rows)
        + "\n"
    )


def main() -> None:
    """Write all generated pages."""
    (OUT / "methods").mkdir(parents=True, exist_ok=True)
    methods = registry.list_methods()
    for info in methods:
        (OUT / "methods" / f"{info.name}.md").write_text(method_page(info))
    rows = [
        [f"[{info.name}](methods/{info.name}.md)", info.summary, info.paper] for info in methods
    ]
    names = "\n".join(f"methods/{info.name}" for info in methods)
    (OUT / "methods.md").write_text(
        f"# Methods\n\n{table(['Method', 'Summary', 'Paper'], rows)}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    )
    (OUT / "hooks.md").write_text(hooks_page() + "\n")
    (OUT / "components.md").write_text(components_page())
    (OUT / "import_graph.md").write_text(import_graph_page())


if __name__ == "__main__":
    main()
