"""The command that compares a device with the CPU, on the second device."""

import pytest

from benchmarks.devices.__main__ import main


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "cpu\nfln:0\n"


def test_comparison_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """The second device computes on the CPU, so only another precision differs."""
    for precision, is_equal in (("fp32", True), ("bf16", False)):
        options = ["compare=auto", "methods=fedavg", f"precision={precision}"]
        assert main(options) == 0
        (row,) = [line for line in capsys.readouterr().out.splitlines() if "fedavg" in line]
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert (cells[4] == "equal") == is_equal and cells[5] == "0"
        assert (cells[1] == cells[2]) == (float(cells[3]) == 0) or not is_equal
