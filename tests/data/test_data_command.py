"""`python -m benchmarks.data`: the table, the exit codes, and that listing does not wait for torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.data import default_data_dir, names, status
from benchmarks.data.__main__ import main


def test_the_table_has_a_row_for_every_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data-dir", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    for name in names():
        assert name in table
    assert "60000 + 10000" in table
    assert status("digits", tmp_path) == "ready"
    assert status("mnist", tmp_path) == "can be fetched"
    assert status("clothing1m", tmp_path) == "put it at clothing1m"


def test_a_wrong_name_is_one_line_and_nothing_is_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "cifar10", "cifra", "--data-dir", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"error: dataset 'cifra' is unknown; legal: {', '.join(names())}\n"


def test_what_cannot_be_fetched_is_explained_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["fetch", "clothing1m", "imagenet100", "npz", "digits", "--data-dir", str(tmp_path)])
        == 2
    )
    output = capsys.readouterr()
    assert (
        f"put it at {tmp_path}/clothing1m/ with images/ and the official lists noisy_train_key_list.txt"
        in output.err
    )
    assert f"put it at {tmp_path}/imagenet100/ with train/<wnid>/*.JPEG" in output.err
    assert "named in dataset.path" in output.err
    assert output.err.count("\n") == 3
    assert output.out == "digits: ready (part of scikit-learn, nothing to fetch)\n"


def test_the_data_folder_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLN_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    monkeypatch.delenv("FLN_DATA")
    assert default_data_dir() == Path.home() / ".cache/fln-data"


def test_listing_does_not_import_torch() -> None:
    code = "import sys, benchmarks.data.__main__ as command; command.main([]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    import benchmarks.data

    with pytest.raises(AttributeError, match="'benchmarks.data' has no attribute 'lod'"):
        benchmarks.data.lod  # noqa: B018
