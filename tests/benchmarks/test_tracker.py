"""Progress line on a terminal, and lines elsewhere."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.tracking import tracker as tracker_module
from benchmarks.tracking.tracker import Tracker


class FakeClock:
    """Replaces the time module; the test sets the time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def strftime(self, form: str) -> str:
        return "now"


def test_lines_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 6 s give a line every second round. The rest is 32 and 24 participations."""
    clock, output = FakeClock(), StringIO()
    monkeypatch.setattr(tracker_module, "time", clock)
    tracker = Tracker("fedavg digits", tmp_path, Console(file=output, width=40))
    tracker.on_start(40)
    row = {"stage": "train", "accuracy": 0.5, "loss": 1.0}
    for round in range(1, 6):
        clock.now += 6
        tracker.on_evaluation({**row, "round": round, "participations": 4 * round})
        tracker.on_round(round, "train", 4 * round)
    tracker.report("done: [red]best[/red]")
    assert output.getvalue().splitlines() == [
        "fedavg digits: started",
        "fedavg digits: train round 2, accuracy 50.00 %, 0:00:48 left",
        "fedavg digits: train round 4, accuracy 50.00 %, 0:00:36 left",
        "fedavg digits: done: [red]best[/red]",
    ]
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert log[0] == "now round 1 train participations 4 accuracy 0.5000 loss 1.0000"
    assert log[-1] == "now done: [red]best[/red]"


def test_progress_bar_on_a_terminal(tmp_path: Path) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    tracker = Tracker("fedavg digits", tmp_path, console)
    tracker.on_start(8)
    tracker.on_round(1, "train", 4)
    tracker.close()
    tracker.report("done")
    shown = output.getvalue()
    assert "fedavg digits: done\n" in shown and "\x1b[" in shown and "started" not in shown
