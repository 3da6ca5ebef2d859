"""A dashboard over the runs of `tracking=wandb`: python -m reports.wandb_dashboard project=NAME entity=NAME"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.terminal import command

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Section, Workspace

NAME = "Federated learning under label noise"
DEFAULTS = {"project": "federated-label-noise", "entity": "", "out": "wandb_dashboard.json"}
USAGE = """
python -m reports.wandb_dashboard [project=NAME] [entity=NAME] [out=FILE]

Makes a saved view in a project of Weights & Biases: accuracy curves by method, a table of cells, noise detection, cost,
figures. Each call makes a new view. Without a login, or where the server is not reached, what would be sent is written
to a file instead.

  project   where the runs are, as in tracking.project (default federated-label-noise)
  entity    a team or a user (default the account's own)
  out       the file (default wandb_dashboard.json)
"""
# Columns of the table of runs: what a cell is and how it ended.
COLUMNS = (
    "run:displayName", "run:state", "summary:status", "summary:summary/best", "summary:summary/last10",
    "config:method.value.name", "config:dataset.value.name", "config:partition.value.name", "config:noise.value.name",
    "config:noise.value.rho", "config:scale.value", "config:seed.value", "summary:clients/f1",
    "summary:labels/accuracy_after", "summary:cost/participations", "summary:time/seconds_method",
)  # fmt: skip
SECONDS = "10"  # that the server may take to answer


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, make)


def make(options: command.Options) -> int:
    """Send the dashboard, or write it down."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_HTTP_TIMEOUT", SECONDS)
    import wandb

    from benchmarks.tracking import wandb_service

    board = workspace(options["entity"], options["project"])
    wandb.setup(wandb.Settings(silent=True))
    try:
        if not wandb.login(prompt=False, verify=True):
            raise ConnectionError("no login")
        board.entity = options["entity"] or str(wandb.Api().default_entity)
        board.save()
        print(f"dashboard: {board.url}")
    except Exception as error:
        path = Path(options["out"])
        path.write_text(json.dumps(what_is_sent(board), indent=1) + "\n")
        again = " ".join(f"{key}={options[key]}" for key in ("project", "entity") if options[key])
        reason = str(error).split("\n")[0]
        print(
            f"not sent ({reason}); written to {path}; after `wandb login`, this sends it: python -m reports.wandb_dashboard {again}"
        )
    finally:
        wandb_service.end()
    return 0


def what_is_sent(board: Workspace) -> dict[str, Any]:
    """The view as the server takes it."""
    view = board._to_model()
    spec = view.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "entityName": view.entity,
        "projectName": view.project,
        "type": "project-view",
        "displayName": view.display_name,
        "spec": spec,
    }


def workspace(entity: str, project: str) -> Workspace:
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=sections(),
        settings=ws.WorkspaceSettings(x_axis="participations", max_runs=100),
        runset_settings=ws.RunsetSettings(pinned_columns=list(COLUMNS)),
    )


def sections() -> list[Section]:
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    by_method: dict[str, Any] = {"groupby": wr.Config("method.name"), "groupby_aggfunc": "mean"}

    def curve(y: str, title: str, x: str = "participations") -> Any:
        return wr.LinePlot(
            title=title,
            x=x,
            y=[y],
            title_x=x.replace("_", " "),
            groupby_rangefunc="stddev",
            **by_method,
        )

    def bars(metric: str, title: str) -> Any:
        return wr.BarPlot(
            title=title, metrics=[wr.SummaryMetric(metric)], groupby_rangefunc="minmax", **by_method
        )

    settings = [
        wr.Config(key) for key in ("method.name", "dataset.name", "noise.name", "noise.rho", "seed")
    ]
    columns = [wr.ParallelCoordinatesPlotColumn(setting) for setting in settings]
    columns.append(wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric("summary/best")))
    panels = {
        "Accuracy by method": [
            curve("accuracy", "test accuracy, mean and deviation over the runs of a method"),
            curve("loss", "test loss"),
            wr.LinePlot(title="test accuracy, every cell", x="participations", y=["accuracy"]),
            curve("memorised/wrong", "share of the wrong labels that the model repeats"),
        ],
        "Cells": [
            wr.RunComparer(diff_only="split"),
            wr.ParallelCoordinatesPlot(title="settings and best accuracy", columns=columns),
            bars("summary/best", "best accuracy"),
            bars("summary/last10", "mean accuracy of the last 10 tests"),
        ],
        "Noise detection": [
            curve("clients/f1", "noisy clients found: F1"),
            curve("clients/auroc", "noisy clients ranked: AUROC"),
            curve("samples/f1", "wrong labels found: F1"),
            curve("labels/accuracy_after", "labels that are right after correction"),
            wr.MediaBrowser(title="LID mixture", media_keys=["figures/lid_mixture"], num_columns=3),
        ],
        "Cost": [
            curve("accuracy", "accuracy by bytes sent to the clients", x="bytes_down"),
            curve("accuracy", "accuracy by seconds of computing", x="seconds"),
            bars("cost/bytes_up", "bytes sent to the server"),
            bars("cost/samples_trained", "samples trained"),
            bars("time/seconds_method", "seconds of the method"),
            wr.ScatterPlot(title="best accuracy and cost", x=wr.SummaryMetric("cost/bytes_down"), y=wr.SummaryMetric("summary/best")),
        ],
        "Figures": [
            wr.MediaBrowser(title="who holds what", media_keys=["figures/partition"], num_columns=2),
            wr.MediaBrowser(title="confusions of the last test", media_keys=["figures/confusion"], num_columns=3),
        ],
    }  # fmt: skip
    return [ws.Section(name=name, panels=shown, is_open=True) for name, shown in panels.items()]


if __name__ == "__main__":
    sys.exit(main())
