"""Compilation of C++ files."""

import shutil
from pathlib import Path

import pytest

from methods.core.errors import UserError
from methods.toolkit import native

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "one.cpp"
    path.write_text('extern "C" int one() { return 1; }')
    return path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("false", r"false failed \(exit code 1\)"),
        ("no-such-compiler -O2", "C\\+\\+ compiler no-such-compiler not found"),
        ("/", "cannot run /: Permission denied"),
        ("sh -c 'exec sleep 60'", "sh took more than 0.2 s"),
    ],
)
def test_failing_compiler_is_one_line(
    monkeypatch: pytest.MonkeyPatch, source: Path, command: str, message: str
) -> None:
    monkeypatch.setenv("CXX", command)
    if "sleep" in command:
        monkeypatch.setattr(native, "COMPILER_SECONDS", 0.2)
    with pytest.raises(UserError, match=f"^{message}$"):
        native.load_library.__wrapped__(source)


def test_unknown_option_of_the_compiler_is_left_out(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    compiler = tmp_path / "compiler with a space"
    compiler.write_text('#!/bin/sh\ncase "$*" in *march=native*) exit 1;; esac\nexec g++ "$@"\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", f"env '{compiler}'")
    monkeypatch.setenv("FLN_COMPILED", str(tmp_path / "cache"))
    assert native.load_library.__wrapped__(source).one() == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_unusable_cache_is_one_line(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLN_COMPILED", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        UserError, match=r".*cache is not usable \(Not a directory\); set FLN_COMPILED"
    ):
        native.load_library.__wrapped__(source)


def test_cache_that_others_can_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    (cache := tmp_path / "cache").mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("FLN_COMPILED", str(cache))
    with pytest.raises(UserError, match="must be writable only by its owner"):
        native.load_library.__wrapped__(source)
    assert not list(cache.iterdir())
