"""The component registry: built-in modules, entry points of other packages, and its errors."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from methods.core.errors import UserError
from methods.core.plugins import Registry


@dataclass(frozen=True)
class Color:
    name: str


def make_registry() -> Registry[Color]:
    return Registry("color", "fln_test.colors", "color_package")


COLORS = make_registry()  # replaced for each test; used by the modules that a test writes


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write a module or a package under a directory of the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(globals(), "COLORS", make_registry())
    written = []

    def write(path: str, *colors: str, head: str = "") -> None:
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        adds = [f"COLORS.add(Color({color!r}))" for color in colors]
        file.write_text("\n".join([f"from {__name__} import COLORS, Color", head, *adds]))
        written.append(path.partition("/")[0].removesuffix(".py"))
        importlib.invalidate_caches()

    write("color_package/__init__.py")
    yield write
    for name in list(sys.modules):
        if name.partition(".")[0] in written:
            del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path) -> Callable[[str], None]:
    """Declare a module as an entry point of an installed package of the same name."""

    def declare(module: str) -> None:
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fln_test.colors]\n{module} = {module}\n")

    return declare


def test_components_of_the_package_and_of_other_packages(
    write_module: Callable[..., None], install: Callable[[str], None]
) -> None:
    write_module("color_package/reds.py", "scarlet", "crimson")
    write_module("color_package/__main__.py", head="raise SystemExit('not imported')")
    write_module("other.py", "green", head="assert COLORS.get('scarlet')")
    install("other")
    assert COLORS.names() == ["crimson", "green", "scarlet"]
    assert COLORS.all() == [Color("crimson"), Color("green"), Color("scarlet")]
    assert COLORS.get("green") == Color("green")


def test_unknown_name_is_a_user_error(write_module: Callable[..., None]) -> None:
    write_module("color_package/reds.py", "scarlet")
    with pytest.raises(UserError) as error:
        COLORS.get("scarlett")
    assert str(error.value) == "unknown color scarlett: did you mean scarlet? available: scarlet"


def test_duplicate_name_is_an_error(write_module: Callable[..., None]) -> None:
    COLORS.add(Color("red"))
    with pytest.raises(UserError, match="^duplicate color red: expected a unique name$"):
        COLORS.add(Color("red"))
    assert COLORS.names() == ["red"]


@pytest.mark.parametrize(
    "head, reason",
    [
        ("COLORS.add(Color('scarlet'))", "UserError: duplicate color scarlet: .*"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_failing_entry_point_names_its_package_at_every_lookup(
    write_module: Callable[..., None], install: Callable[[str], None], head: str, reason: str
) -> None:
    write_module("color_package/reds.py", "scarlet")
    write_module("broken.py", head=head)
    install("broken")
    expected = (
        f"^cannot load color broken of package broken: {reason}; fix or uninstall the package$"
    )
    for _ in range(2):
        with pytest.raises(UserError, match=expected):
            COLORS.names()
