"""The command `fln`, and the files that `fln new-method` writes."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from benchmarks import cli, new_method
from benchmarks.methods import main as list_methods
from methods.core.errors import UserError

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "compare components dashboard data devices figures methods new-method page run scenario speed "
    "status tables tune"
)


def run_python(*arguments: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a new process with an additional import path."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    listed = [line.split()[1] for line in text.splitlines() if line.startswith("  fln ")]
    assert listed == COMMANDS.split()
    assert "fln data        List and download datasets\n" in text


def test_help_imports_no_heavy_module() -> None:
    program = "from benchmarks import cli; import sys; cli.main(['--help']); print(*sys.modules)"
    modules = run_python("-c", program, cwd=ROOT).stdout.splitlines()[-1].split()
    assert {"torch", "pandas", "rich", "hydra"}.isdisjoint(modules)


@pytest.mark.parametrize("name", COMMANDS.split())
def test_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.out and captured.err == ""


def test_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tabels"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown command tabels: did you mean tables? available: ")
    assert error.count("\n") == 1


def test_arguments_and_exit_code_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "seed=one"]) == 2
    assert "invalid seed='one'" in capsys.readouterr().err
    assert cli.main(["run", "scale=smoke", "dry_run=true"]) == 0


def test_commands_of_installed_packages_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = [EntryPoint("mine", "my_package:main", cli.GROUP)]
    monkeypatch.setattr(cli, "entry_points", lambda group: installed)
    assert cli.find_commands().keys() == {"mine", *COMMANDS.split()}


def test_commands_of_an_installed_suite_need_no_setup_cfg(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = [EntryPoint("run", "benchmarks.run:main", cli.GROUP)]
    monkeypatch.setattr(cli, "entry_points", lambda group: installed)
    monkeypatch.setattr(cli, "SETUP", Path("/nowhere/setup.cfg"))
    assert cli.find_commands() == {"run": installed[0]}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the suite without reports and data."""
    directory = tmp_path_factory.mktemp("clone")
    for name in ("benchmarks", "conf", "hydra_plugins", "methods", "noise", "partition", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "reports", "frozen")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    for name in ("setup.cfg", "ruff.toml"):
        shutil.copy(ROOT / name, directory)
    return directory


def test_new_method_in_a_clone_passes_the_contract_suite(clone: Path) -> None:
    run = run_python("-m", "benchmarks.methods", "new", "soft_labels", cwd=clone)
    assert run.returncode == 0, run.stderr
    written = ["methods/soft_labels.py", "tests/methods/test_soft_labels.py"]
    paths = {*written, "conf/method/soft_labels.yaml"}
    assert {f"wrote {clone / path}" for path in paths} == {*run.stdout.splitlines()[:3]}
    suite = [f"tests/methods/test_{name}.py" for name in ("contract", "contract_runs")]
    tests = run_python(
        "-m", "pytest", *suite, "tests/methods/test_soft_labels.py", "-k", "soft_labels", cwd=clone
    )
    assert tests.returncode == 0, tests.stdout
    for command in (["check"], ["format", "--check"]):
        ruff = run_python("-m", "ruff", *command, *written, cwd=clone)
        assert ruff.returncode == 0, ruff.stdout


def test_new_package_passes_the_contract_suite(tmp_path: Path) -> None:
    package = tmp_path / "my-plugin"
    assert new_method.main(["soft_labels", f"package={package}"]) == 0
    info = package / "my_plugin-0.1.0.dist-info"  # as an installation would write it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 0.1.0\n")
    entry = 'soft_labels = "my_plugin.soft_labels"'
    assert entry in (package / "pyproject.toml").read_text()
    (info / "entry_points.txt").write_text("[fln.methods]\n" + entry.replace('"', ""))
    own = run_python("-m", "pytest", "-q", "tests", cwd=package, path=f"{ROOT}:{package}")
    assert own.returncode == 0, own.stdout
    suite = ["tests/methods/test_contract.py", "-k", "soft_labels"]
    tests = run_python("-m", "pytest", *suite, cwd=ROOT, path=str(package))
    assert tests.returncode == 0, tests.stdout
    options = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path / 'runs'}"]
    run = run_python(
        "-m", "benchmarks.cli", "run", "method=soft_labels", *options, cwd=ROOT, path=str(package)
    )
    assert run.returncode == 0 and "soft_labels" in run.stdout, run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing NAME: fln new-method NAME"),
        (["Mine"], "invalid NAME='Mine': expected lower-case letters"),
        (["fedavg"], f"cannot write {ROOT / 'methods' / 'fedavg.py'}: it exists"),
        (["mine", "dir=x"], "unknown key dir"),
        (["mine", "package=/nowhere/3d"], "invalid package='/nowhere/3d': expected a directory"),
    ],
)
def test_invalid_new_method_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list_methods(["new", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1


def test_new_method_needs_a_clone_or_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_method, "ROOT", tmp_path)
    with pytest.raises(UserError, match="not a clone of the suite; set package=DIR"):
        new_method.write_method("mine", None)
