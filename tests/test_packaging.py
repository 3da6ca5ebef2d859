"""The wheel: contents, and commands in an empty directory."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("benchmarks", "conf", "hydra_plugins", "methods", "noise", "partition", "reports")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the content of the wheel, as pip would install it."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "reproductions")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(target)]
    build = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    with zipfile.ZipFile(target / build.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(target)
    return target


def run_installed(installed: Path, cwd: Path, *arguments: str) -> str:
    """Output of `fln` with the installed suite only."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.cli", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_wheel_has_all_files(installed: Path) -> None:
    suffixes = {".py", ".yaml", ".csv", ".cpp", ".jinja", ".js", ".css", ".html", ".template"}
    for name in PACKAGES:
        paths = [path for path in (ROOT / name).rglob("*") if path.suffix in suffixes]
        expected = {path.relative_to(ROOT) for path in paths if "reproductions" not in path.parts}
        found = {path.relative_to(installed) for path in (installed / name).rglob("*")}
        assert expected <= found
    typed = [installed / name / "py.typed" for name in PACKAGES if not name.startswith("conf")]
    typed[1] = installed / "hydra_plugins" / "fln" / "py.typed"
    assert all(path.is_file() for path in typed)


def test_commands_run_in_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    shown = run_installed(installed, tmp_path)
    assert "fln tables" in shown and "fln run" in shown
    sweep = ["-m", "scale=smoke", "executor=serial", "budget.participations=8", "seed=1,2"]
    assert "2 done, 0 diverged" in run_installed(installed, tmp_path, "run", *sweep)
    shown = run_installed(installed, tmp_path, "run", "--info", "searchpath")
    assert f"file://{installed}/conf" in shown
    shown = run_installed(installed, tmp_path, "tables", "table=fedcorr_table2", "out=tables")
    assert "fedcorr_table2" in shown
    run_installed(installed, tmp_path, "page")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "tables"}
