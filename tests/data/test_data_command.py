"""The command `python -m benchmarks.data`: table, downloads, exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.data import DATASETS, default_data_dir
from benchmarks.data.__main__ import main


def test_table_lists_every_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"data_dir={tmp_path}"]) == 0
    table = capsys.readouterr().out
    for name in DATASETS.names():
        assert name in table
    assert "60000 + 10000" in table


def test_status(tmp_path: Path) -> None:
    assert {name: DATASETS.get(name).status(tmp_path) for name in DATASETS.names()} == {
        "cifar10": "not downloaded",
        "cifar100": "not downloaded",
        "clothing1m": "manual download required",
        "digits": "ready",
        "fashion_mnist": "not downloaded",
        "imagenet100": "manual download required",
        "mnist": "not downloaded",
        "npz": "needs dataset.path",
        "stripes": "ready",
    }


@pytest.mark.parametrize(
    "arguments", [["fetch=cifar10,cifra"], ["fetch", "cifar10", "cifra"], ["fetch=cifra"]]
)
def test_unknown_name_prevents_all_downloads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([*arguments, f"data_dir={tmp_path}"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    available = ", ".join(DATASETS.names())
    assert output.err == (
        f"error: unknown dataset cifra: did you mean cifar10? available: {available}\n"
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "fetsh=mnist",
            "unknown key fetsh: did you mean fetch? available: fetch, source, data_dir",
        ),
        ("mnist", "invalid argument 'mnist': expected key=value"),
        ("source=web", "invalid source=web: available: auto, torchvision, package"),
    ],
)
def test_invalid_argument_is_one_line(
    capsys: pytest.CaptureFixture[str], argument: str, message: str
) -> None:
    assert main([argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {option}=" in text for option in ("fetch", "source", "data_dir"))


@pytest.mark.parametrize("form", ["key=value", "words"])
def test_manual_instructions_do_not_stop_other_downloads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    names = ["clothing1m", "imagenet100", "npz", "digits"]
    arguments = [f"fetch={','.join(names)}"] if form == "key=value" else ["fetch", *names]
    assert main([*arguments, f"data_dir={tmp_path}"]) == 2
    output = capsys.readouterr()
    assert f"into {tmp_path}/clothing1m/ with images/ and the official lists noisy_tr" in output.err
    assert f"into {tmp_path}/imagenet100/ with train/<wnid>/*.JPEG" in output.err
    assert "set dataset.path=FILE.npz" in output.err
    assert output.err.count("\n") == 3
    assert output.out == "digits: ready (part of scikit-learn)\n"


def test_data_dir_is_set_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLN_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    monkeypatch.delenv("FLN_DATA")
    assert default_data_dir() == Path.home() / ".cache/fln-data"


def test_listing_does_not_import_torch() -> None:
    code = (
        "import sys, benchmarks.data.__main__ as command; command.main([]); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_unknown_attribute_is_an_attribute_error() -> None:
    import benchmarks.data

    with pytest.raises(AttributeError, match=r"'benchmarks.data' has no attribute 'lod'"):
        benchmarks.data.lod  # noqa: B018
