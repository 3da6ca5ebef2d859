"""The command `python -m benchmarks.methods`."""

import pytest

from benchmarks.methods import main, make_table
from methods.core.registry import list_methods


def test_table_has_one_row_per_method() -> None:
    assert [*make_table().columns[0].cells] == [info.name for info in list_methods()]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "fedavg" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "python -m benchmarks.methods" in capsys.readouterr().out


def test_invalid_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fedavg"]) == 2
    assert capsys.readouterr().err.startswith("error: invalid argument 'fedavg'")
