"""W&B dashboard: uploaded to a server, or written to a file without login or connection."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from wandb_server import wandb_server

from reports.wandb_dashboard import CONTENT, main

KEY = "0123456789abcdef" * 3


@pytest.fixture(autouse=True)
def no_wandb_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_definition_is_written_without_a_login(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["project=mine", "out=board.json"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("not uploaded (no login); written to board.json; ")
    assert line.endswith("upload with: python -m reports.wandb_dashboard project=mine\n")
    assert line.count("\n") == 1
    written = json.loads((tmp_path / "board.json").read_text())
    assert (written["projectName"], written["displayName"]) == (
        "mine",
        "Federated learning under label noise",
    )
    shown = panels(written["spec"])
    assert list(shown) == ["Accuracy by method", "Runs", "Noise detection", "Cost", "Figures"]
    first = shown["Accuracy by method"][0]["config"]
    assert (first["xAxis"], first["metrics"], first["groupBy"]) == (
        "participations",
        ["accuracy"],
        "method.value.name",
    )
    (table,) = written["spec"]["section"]["runSets"]
    assert table["runFeed"]["columnOrder"] == CONTENT["columns"]


def test_panels_use_logged_metrics_only(tmp_path: Path) -> None:
    """FedCorr logs the most metrics."""
    assert main(["out=board.json"]) == 0
    text = (tmp_path / "board.json").read_text()
    scores = (
        "clients/f1",
        "clients/auroc",
        "samples/f1",
        "labels/accuracy_after",
        "memorization/wrong",
    )
    totals = (
        "cost/bytes_up",
        "cost/bytes_down",
        "cost/participations",
        "cost/samples_trained",
        "time/seconds_method",
    )
    figures = ("figures/partition", "figures/lid_mixture", "figures/confusion")
    known = {"summary/best", "summary/last10", "status", *scores, *totals, *figures}
    used = {
        word
        for word in text.replace('"', " ").replace(":", " ").replace("metrics.", " ").split()
        if "/" in word
    }
    assert used == {name for name in known if "/" in name}


def test_dashboard_is_uploaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        assert main(["project=mine"]) == 0
    (view,) = server.views
    assert (view["entityName"], view["projectName"], view["type"]) == (
        "a-team",
        "mine",
        "project-view",
    )
    assert "Noise detection" in panels(json.loads(view["spec"]))
    assert "/a-team/mine?nw=" in capsys.readouterr().out
    assert not (tmp_path / "wandb_dashboard.json").exists()


def test_definition_is_written_without_a_connection(
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
    ("argument", "message"),
    [
        ("color=red", "unknown key color: available: project"),
        ("out=no/such/directory.json", "No such file or directory"),
    ],
)
def test_user_errors_are_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1
