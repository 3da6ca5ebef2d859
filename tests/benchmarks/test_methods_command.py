"""The command `python -m benchmarks.methods`."""

import pytest

from benchmarks.methods import main, make_table
from methods.core.registry import list_methods


def test_table_has_one_row_per_method() -> None:
    names, *_, oracle = ([*column.cells] for column in make_table().columns)
    assert names == [info.name for info in list_methods()]
    assert oracle[names.index("coteaching")] == "forget_rate"
    assert oracle[names.index("fedavg")] == "none"


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "fedavg" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "python -m benchmarks.methods" in capsys.readouterr().out


def test_invalid_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fedavg"]) == 2
    assert capsys.readouterr().err.startswith("error: invalid argument 'fedavg'")
