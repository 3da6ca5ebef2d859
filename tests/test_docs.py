"""Generated pages of the documentation are complete."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from import_graph import ROOT
from run_helpers import run_to_end

sys.path.append(str(ROOT / "docs"))

import generate

from benchmarks.config.schema import Component, RunConfig
from methods.core import registry
from methods.core.contract import Method
from methods.core.params import describe_fields

OURS = [info for info in registry.list_methods() if info.cls.__module__.startswith("methods.")]
HOOKS = [name for name, value in vars(Method).items() if inspect.isfunction(value)]


def test_the_table_of_hooks_has_every_hook_with_all_facts() -> None:
    rows = [line.strip("| ").split(" | ") for line in generate.hook_table().splitlines()[2:]]
    names = [row[0].strip("`").partition("(")[0] for row in rows]
    assert names == [name for name in HOOKS if not name.startswith("_")]
    for row in rows:
        assert len(row) == 5 and all(row), row
        assert row[2] in ("server", "client"), row


@pytest.mark.parametrize("info", OURS, ids=lambda info: info.name)
def test_method_page_describes_every_parameter(info: registry.MethodInfo) -> None:
    page = generate.method_page(info)
    assert page.startswith(f"# {info.name}\n")
    assert "Deviations:\n\n1. " in page and info.paper in page
    assert [field.name for field in describe_fields(info.params) if not field.meaning] == []


def test_field_comments_are_read_from_base_classes_too() -> None:
    fields = {field.name: field for field in describe_fields(registry.get("jointopt").params)}
    assert "alpha" in fields["alpha"].meaning and fields["budget_fraction"].meaning


def test_the_method_of_the_guide_works(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., RunConfig]
) -> None:
    """The first code block of the guide is registered and trains."""
    guide = (ROOT / "docs" / "extend" / "method.md").read_text()
    source = guide.partition("```python\n")[2].partition("```")[0]
    monkeypatch.setattr(registry.METHODS, "_components", dict(registry.METHODS._components))
    exec(compile(source, "guide", "exec"), {"__name__": "guide"})
    component = Component("mine", registry.get("mine").params(strength=0.1))
    run = run_to_end(replace(configure(), method=component))
    assert run.curve and run.method.name == "mine"
