"""Hydra's flags, sweep syntax, launchers, sweepers and search path, as documented by Hydra."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from run_helpers import PLUGIN

from benchmarks.config import sweep
from benchmarks.config.compose import compose_run, hydra_session
from benchmarks.config.experiments import CONF
from benchmarks.run import main
from hydra_plugins.fln.search_path import InstalledPackages, plugin_conf_dirs
from methods.core.errors import UserError

SMALL = ["scale=smoke", "executor=serial", "budget.participations=8"]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Output of a command with exit code 0."""
    assert main(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_cfg_job_prints_keys_that_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    choices = ["method=fedprox", "dataset=cifar10"]
    config = yaml.safe_load(shown(capsys, *choices, "noise.rho=0.4", "--cfg", "job"))
    assert config["method"]["name"] == "fedprox" and config["noise"]["rho"] == 0.4
    assert "hydra" not in config
    typed = [
        f"{section}.{key}={yaml.safe_dump(value).splitlines()[0]}"
        for section, values in config.items()
        if isinstance(values, dict)
        for key, value in values.items()
    ]
    assert len(typed) > 20
    assert compose_run([*choices, *typed]) == compose_run([*choices, "noise.rho=0.4"])


def test_cfg_hydra_all_and_package(capsys: pytest.CaptureFixture[str]) -> None:
    hydra = yaml.safe_load(shown(capsys, "--cfg", "hydra"))["hydra"]
    assert hydra["sweeper"]["_target_"] == "hydra_plugins.fln.sweeper.CheckedSweeper"
    assert {"seed", "hydra"} <= yaml.safe_load(shown(capsys, "--cfg", "all")).keys()
    noise = shown(capsys, "noise=pairwise", "--cfg", "job", "--package", "noise")
    assert noise.startswith("# @package noise\nname: pairwise\n")


def test_resolve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLN_DATA", "/data/fln")
    assert "${oc.env:FLN_DATA,null}" in shown(capsys, "--cfg", "job")
    assert "data_dir: /data/fln" in shown(capsys, "--cfg", "job", "--resolve")


def shown_by_new_process(*arguments: str) -> str:
    """Output of a command that configures logging in its process."""
    command = [sys.executable, "-m", "benchmarks.run", *arguments]
    run = subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    return run.stdout


@pytest.mark.parametrize("topic", ["all", "defaults", "searchpath"])
def test_info(topic: str) -> None:
    text = shown_by_new_process("--info", topic)
    assert ("settings/tuned/digits/fedavg/digits/laptop" in text) == (topic != "searchpath")
    assert (str(CONF) in text) == (topic != "defaults")
    assert ("CheckedSweeper" in text) == (topic == "all")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help")
    assert "fln run -m experiment=fedcorr_table2" in text and "norm_clipping" in text
    assert shown(capsys, "--version").startswith("Hydra 1.3")
    assert "hydra/launcher" in shown_by_new_process("--hydra-help")


def test_config_dir_adds_options_and_experiments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "mild.yaml").write_text("defaults: [rho_tau]\nrho: 0.1\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "common: noise=mild\nrows: [method=fedavg, method=fedprox]\n"
    )
    options = ["--config-dir", str(tmp_path)]
    assert "rho: 0.1" in shown(capsys, "noise=mild", "--cfg", "job", *options)
    listed = shown(capsys, "-m", "experiment=mine", "scale=smoke", "dry_run=true", *options)
    assert "2 runs, 0 done" in listed and "experiment_name=mine" in listed


def test_config_name_selects_another_primary_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\nseed: 7\n")
    options = ["--config-dir", str(tmp_path), "--config-name", "mine"]
    assert "seed: 7" in shown(capsys, "--cfg", "job", *options)
    listed = shown(capsys, "-m", "method=fedavg,fedprox", "dry=true", *options)
    assert "2 runs, 0 done" in listed and "fedavg-digits-s7-" in listed


def test_overrides_on_both_sides_of_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2 runs" in shown(capsys, "scale=smoke", "-m", "seed=1,2", "dry=true")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=1,2", [1, 2]),
        ("seed=range(1,4)", [1, 2, 3]),
        ("seed=choice(3,1)", [3, 1]),
        ("seed=sort(3,1,2)", [1, 2, 3]),
        ("method=glob(fedc*)", ["fedcnml", "fedcorr"]),
        ("method=glob([fedp*,poc])", ["fedprox", "poc"]),
        ("+method.mu=1,2", [1.0, 2.0]),
        ("++seed=1,2", [1, 2]),
    ],
)
def test_sweep_syntax(override: str, expected: list[object]) -> None:
    key = override.lstrip("+").partition("=")[0]
    base = (
        ["scale=smoke", "~method.mu", "method=fedprox"] if key == "method.mu" else ["scale=smoke"]
    )
    runs = sweep.expand([*base, override])
    found: list[object] = []
    for _, config in runs:
        values = {"seed": config.seed, "method": config.method.name}
        found.append(values[key] if key in values else config.method.params.mu)
    assert found == expected


def test_add_force_add_and_delete() -> None:
    with pytest.raises(UserError, match="missing seed"):
        compose_run(["~seed"])
    assert compose_run(["++seed=3", "++noise.rho=0.2"]).noise.params.rho == 0.2
    assert compose_run(["noise.rho=0.3", "++noise.rho=0.2"]).noise.params.rho == 0.2
    assert compose_run(["++noise.rho=0.2", "noise.rho=0.3"]).noise.params.rho == 0.3


def test_sweep_dir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_dir = tmp_path / "sweep"
    arguments = ["-m", *SMALL, f"runs_dir={tmp_path / 'runs'}", f"hydra.sweep.dir={sweep_dir}"]
    assert "1 done" in shown(capsys, *arguments)
    assert sweep_dir.is_dir() and not (tmp_path / "runs" / ".multirun").exists()


def test_sweep_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """hydra.sweeper.params as in Hydra's basic sweeper; the command line overrides it."""
    (tmp_path / "mine.yaml").write_text(
        "defaults: [config, _self_]\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2,3'}}}\n"
    )
    options = ["dry=true", "--config-dir", str(tmp_path), "--config-name", "mine"]
    assert "3 runs" in shown(capsys, *options)
    assert "2 runs" in shown(capsys, "seed=8,9", *options)


def test_basic_sweeper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", *SMALL, f"runs_dir={tmp_path}", "hydra/sweeper=basic", "seed=1,2"]
    assert main(arguments) == 0
    assert len(list(tmp_path.glob("*/record.json"))) == 2
    capsys.readouterr()
    assert main([*arguments, "noise.rho=1.4"]) == 2
    assert "error: invalid noise.rho=1.4" in capsys.readouterr().err


def test_shell_completion(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "hydra_bash_completion" in shown(capsys, "--shell-completion", "install=bash")
    line = "fln-run method=fedc"
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    completed = shown(capsys, "-sc", "query=bash").split()
    assert completed == ["method=fedcnml", "method=fedcorr"]


def test_main_restores_global_hydra_and_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with hydra_session():
        before, arguments = GlobalHydra.instance().hydra, sys.argv
        assert main(["--cfg", "job"]) == 0
        sweep.expand(SMALL)
        assert before is not None and GlobalHydra.instance().hydra is before
        assert sys.argv is arguments


class FakeSearchPath(ConfigSearchPath):
    """A search path as Hydra hands it to plugins."""

    def __init__(self, main_path: str):
        from hydra.core.config_search_path import SearchPathElement

        self.elements = [SearchPathElement("main", main_path)]

    def get_path(self):  # type: ignore[no-untyped-def]
        return self.elements

    def append(self, provider, path, anchor=None):  # type: ignore[no-untyped-def]
        from hydra.core.config_search_path import SearchPathElement

        self.elements.append(SearchPathElement(provider, path))

    def prepend(self, provider, path, anchor=None):  # type: ignore[no-untyped-def]
        from hydra.core.config_search_path import SearchPathElement

        self.elements.insert(0, SearchPathElement(provider, path))


@pytest.mark.parametrize(("main_path", "is_suite"), [(f"{CONF}", True), ("/other/conf", False)])
def test_search_path_of_installed_packages(main_path: str, is_suite: bool) -> None:
    directory = PLUGIN / "example_plugin" / "conf"
    assert directory in plugin_conf_dirs()
    search_path = FakeSearchPath(main_path)
    InstalledPackages().manipulate_search_path(search_path)
    found = [element.path for element in search_path.elements]
    plugins = [f"file://{path}" for path in plugin_conf_dirs()]
    assert found == (["fln://protocols", main_path, *plugins] if is_suite else [main_path])


def test_errors_of_hydra_are_exceptions() -> None:
    main(["--cfg", "job", "method=nothing"])
    assert os.environ["HYDRA_FULL_ERROR"] == "1"
