"""Invalid command lines: one line with the key and the expected values, exit code 2, no files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from damaged_files import write_damaged_files

from benchmarks import cli
from benchmarks.run import main

LINES: dict[str, dict[str, str | list[str]]] = yaml.safe_load(
    Path(__file__).with_name("wrong_command_lines.yaml").read_text(encoding="utf-8")
)
WORDS = {"{long}": "x" * 5000, "{open}": "[" * 300, "{brackets}": "[" * 300 + "]" * 300}
WORDS["{zeros}"] = "0" * 400
WORDS["{braces}"] = "{a:" * 300 + "1" + "}" * 300


@pytest.fixture(scope="module")
def damaged_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damaged")
    write_damaged_files(root)
    return root


def arguments_of(command: str, line: str, root: Path, runs: Path) -> list[str]:
    """The arguments of `fln`. A run has the smallest scale unless its line says otherwise."""
    arguments = line.split()
    given = {argument.partition("=")[0] for argument in arguments}
    shared = {"scale": "smoke", "executor": "serial", "runs_dir": str(runs)}
    shared = {"run": shared, "scenario": {"scale": "smoke"}}.get(command, {})
    arguments = [f"{key}={shared[key]}" for key in shared if key not in given] + arguments
    for name, word in (WORDS | {"{tmp}": str(root)}).items():
        arguments = [argument.replace(name, word) for argument in arguments]
    return arguments if command == "fln" else [command, *arguments]


def command_lines() -> list[Any]:
    """All lines. Hydra takes 0.2 s for each line of `run`, so that five of six are slow tests."""
    return [
        pytest.param(command, line, marks=pytest.mark.slow if command == "run" and i % 6 else ())
        for command, lines in LINES.items()
        for i, line in enumerate(lines)
    ]


@pytest.mark.parametrize(("command", "line"), command_lines())
def test_error_is_one_line_with_key_and_expected_values(
    command: str,
    line: str,
    damaged_files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments_of(command, line, damaged_files, tmp_path / "runs")) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1 and shown.err.endswith("\n")
    assert len(shown.err) < 2000
    parts = LINES[command][line]
    for words in [parts] if isinstance(parts, str) else parts:
        assert words.replace("{tmp}", str(damaged_files)) in shown.err
    assert not list(tmp_path.iterdir())


def test_arrays_of_the_users_own_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.npz"
    np.savez(
        path,
        train_images=np.zeros((4, 8, 8), np.uint8),
        train_labels=np.arange(3),
        test_images=np.zeros((2, 8, 8), np.uint8),
        test_labels=np.arange(2),
    )
    assert (
        main(
            ["scale=smoke", "dataset=npz", f"dataset.path={path}", f"runs_dir={tmp_path / 'runs'}"]
        )
        == 2
    )
    assert capsys.readouterr().err == (
        f"error: cannot read {path}: train_images is uint8 (4, 1, 8, 8), "
        "expected uint8 (3, 1, 8, 8)\n"
    )
