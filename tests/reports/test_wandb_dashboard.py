"""The W&B dashboard: made with wandb-workspaces, sent where there is a server, written down where there is none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from wandb_server import wandb_server

from reports.wandb_dashboard import COLUMNS, main

KEY = "0123456789abcdef" * 3


@pytest.fixture(autouse=True)
def nobody_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "2")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def panels(spec: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        section["name"]: section["panels"]
        for section in spec["section"]["panelBankConfig"]["sections"]
    }


def test_without_a_login_what_would_be_sent_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["project=mine", "out=board.json"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("not sent (no login); written to board.json;") and line.count("\n") == 1
    assert line.endswith("this sends it: python -m reports.wandb_dashboard project=mine\n")
    written = json.loads((tmp_path / "board.json").read_text())
    assert (written["projectName"], written["displayName"]) == (
        "mine",
        "Federated learning under label noise",
    )
    shown = panels(written["spec"])
    assert list(shown) == ["Accuracy by method", "Cells", "Noise detection", "Cost", "Figures"]
    first = shown["Accuracy by method"][0]["config"]
    assert (first["xAxis"], first["metrics"], first["groupBy"]) == (
        "participations",
        ["accuracy"],
        "method.value.name",
    )
    (table,) = written["spec"]["section"]["runSets"]
    assert table["runFeed"]["columnOrder"] == list(COLUMNS)


def test_every_panel_asks_for_something_that_runs_send(tmp_path: Path) -> None:
    """The names are those of a record and a curve of FedCorr, the method that sends most."""
    assert main(["out=board.json"]) == 0
    text = (tmp_path / "board.json").read_text()
    scores = (
        "clients/f1",
        "clients/auroc",
        "samples/f1",
        "labels/accuracy_after",
        "memorised/wrong",
    )
    totals = (
        "cost/bytes_up",
        "cost/bytes_down",
        "cost/participations",
        "cost/samples_trained",
        "time/seconds_method",
    )
    pictures = ("figures/partition", "figures/lid_mixture", "figures/confusion")
    known = {"summary/best", "summary/last10", "status", *scores, *totals, *pictures}
    asked = {
        word
        for word in text.replace('"', " ").replace(":", " ").replace("metrics.", " ").split()
        if "/" in word
    }
    assert asked == {name for name in known if "/" in name}


def test_is_sent_where_there_is_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        assert main(["project=mine"]) == 0
    (sent,) = server.views
    assert (sent["entityName"], sent["projectName"], sent["type"]) == (
        "a-team",
        "mine",
        "project-view",
    )
    assert "Noise detection" in panels(json.loads(sent["spec"]))
    assert (
        "/a-team/mine?nw=" in capsys.readouterr().out
        and not (tmp_path / "wandb_dashboard.json").exists()
    )


def test_server_that_is_not_there_costs_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert main(["project=mine", "entity=us"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and line.endswith("project=mine entity=us\n")
    text = (tmp_path / "wandb_dashboard.json").read_text()
    assert json.loads(text)["entityName"] == "us" and KEY not in text


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("colour=red", "unknown key colour: available: project"),
        ("out=no/such/folder.json", "No such file or directory"),
    ],
)
def test_mistakes_are_one_line(typed: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and words in shown and shown.count("\n") == 1
