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


@pytest.mark.parametrize("argument", ["fedcorr", "method=fedcorr"])
def test_one_method(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fedcorr (label correction)"
    assert any(line.split() == ["paper", "Xu", "et", "al.,", "CVPR", "2022"] for line in lines)
    assert any(line.startswith("2. `finetuning`: ") for line in lines), "stages"
    assert any(line.startswith("8. T_1 is reduced if it") for line in lines), "deviations"
    (theta,) = (line for line in lines if line.strip().startswith("method.theta"))
    assert theta.split()[:6] == ["method.theta", "0.5", "a", "number", "in", "[0,"]
    assert "theta, confidence above which" in theta


def test_method_without_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["median"]) == 0
    assert capsys.readouterr().out.endswith("no parameters\n")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("fedcor", "unknown method fedcor: did you mean fedcorr? available: "),
        ("metod=fedcorr", "unknown key metod: did you mean method? available: method"),
    ],
)
def test_wrong_argument_is_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
