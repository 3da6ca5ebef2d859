"""W&B dashboard of the runs of `tracking=wandb`: python -m reports.wandb_dashboard project=NAME"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.terminal import command
from methods.core.errors import first_line

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Section, Workspace

NAME = "Federated learning under label noise"
DEFAULTS = {"project": "federated-label-noise", "entity": "", "out": "wandb_dashboard.json"}
USAGE = """
python -m reports.wandb_dashboard [project=NAME] [entity=NAME] [out=FILE]

Create a saved view in a Weights & Biases project: accuracy curves by method, a table of runs,
noise detection, cost and figures. Each call creates a new view. Without a login or connection,
the dashboard definition is written to a file instead.

  project   project of the runs, as in tracking.project (default federated-label-noise)
  entity    team or user (default: the default entity of the account)
  out       output file (default wandb_dashboard.json)
"""
# Columns of the table of runs.
COLUMNS = (
    "run:displayName", "run:state", "summary:status", "summary:summary/best",
    "summary:summary/last10", "config:method.value.name", "config:dataset.value.name",
    "config:partition.value.name", "config:noise.value.name", "config:noise.value.rho",
    "config:scale.value", "config:protocol.value", "config:hyperparameters.value",
    "config:seed.value", "summary:clients/f1",
    "summary:labels/accuracy_after", "summary:cost/participations", "summary:time/seconds_method",
)  # fmt: skip
HTTP_TIMEOUT_S = "10"


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, create_dashboard)


def create_dashboard(options: command.Options) -> int:
    """Upload the dashboard, or write its definition to a file."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_HTTP_TIMEOUT", HTTP_TIMEOUT_S)
    import wandb

    from benchmarks.tracking import wandb_service

    workspace: Any = build_workspace(options["entity"], options["project"])
    wandb.setup(wandb.Settings(silent=True))
    try:
        if not wandb.login(prompt=False, verify=True):
            raise ConnectionError("no login")
        workspace.entity = options["entity"] or str(wandb.Api().default_entity)
        workspace.save()
        print(f"dashboard: {workspace.url}")
    except Exception as error:
        path = Path(options["out"])
        path.write_text(json.dumps(view_payload(workspace), indent=1) + "\n")
        given = [f"{key}={options[key]}" for key in ("project", "entity") if options[key]]
        retry = " ".join(["python -m reports.wandb_dashboard", *given])
        print(
            f"not uploaded ({first_line(error)}); written to {path}; "
            f"after `wandb login`, upload with: {retry}"
        )
    finally:
        wandb_service.teardown()
    return 0


def view_payload(workspace: Workspace) -> dict[str, Any]:
    """The view in the form that the W&B server accepts."""
    view = workspace._to_model()
    return {
        "entityName": view.entity,
        "projectName": view.project,
        "type": "project-view",
        "displayName": view.display_name,
        "spec": view.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def build_workspace(entity: str, project: str) -> Workspace:
    """The dashboard with all sections."""
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=build_sections(),
        settings=ws.WorkspaceSettings(x_axis="participations", max_runs=100),
        runset_settings=ws.RunsetSettings(pinned_columns=list(COLUMNS)),
    )


def build_sections() -> list[Section]:
    """Sections of panels. Curves are means over the runs of a method."""
    import wandb_workspaces.reports.v2
    import wandb_workspaces.workspaces as ws

    wr: Any = wandb_workspaces.reports.v2  # exports its classes without annotations
    by_method: dict[str, Any] = {"groupby": wr.Config("method.name"), "groupby_aggfunc": "mean"}

    def curve(y: str, title: str, x: str = "participations") -> Any:
        axis = {"x": x, "y": [y], "title_x": x.replace("_", " ")}
        return wr.LinePlot(title=title, groupby_rangefunc="stddev", **axis, **by_method)

    def bars(metric: str, title: str) -> Any:
        metrics = [wr.SummaryMetric(metric)]
        return wr.BarPlot(title=title, metrics=metrics, groupby_rangefunc="minmax", **by_method)

    def images(key: str, title: str, columns: int) -> Any:
        return wr.MediaBrowser(title=title, media_keys=[f"figures/{key}"], num_columns=columns)

    best, traffic = wr.SummaryMetric("summary/best"), wr.SummaryMetric("cost/bytes_down")
    keys = ("method.name", "dataset.name", "noise.name", "noise.rho", "seed")
    coordinates = [*map(wr.Config, keys), best]
    columns = [wr.ParallelCoordinatesPlotColumn(entry) for entry in coordinates]
    panels = {
        "Accuracy by method": [
            curve("accuracy", "test accuracy, mean and standard deviation by method"),
            curve("loss", "test loss"),
            wr.LinePlot(title="test accuracy of all runs", x="participations", y=["accuracy"]),
            curve(
                "memorization/wrong", "memorization: fraction of wrong labels that are predicted"
            ),
        ],
        "Runs": [
            wr.RunComparer(diff_only="split"),
            wr.ParallelCoordinatesPlot(title="settings and best accuracy", columns=columns),
            bars("summary/best", "best accuracy (oracle)"),
            bars("summary/last10", "mean accuracy of the last 10 evaluations"),
        ],
        "Noise detection": [
            curve("clients/f1", "noisy clients, F1"),
            curve("clients/auroc", "noisy clients, AUROC"),
            curve("samples/f1", "mislabeled samples, F1"),
            curve("labels/accuracy_after", "label accuracy after correction"),
            images("lid_mixture", "LID mixture", 3),
        ],
        "Cost": [
            curve("accuracy", "accuracy by bytes sent to clients", x="bytes_down"),
            curve("accuracy", "accuracy by time, s", x="seconds"),
            bars("cost/bytes_up", "bytes received from clients"),
            bars("cost/samples_trained", "samples trained"),
            bars("time/seconds_method", "training time, s"),
            wr.ScatterPlot(title="best accuracy and traffic", x=traffic, y=best),
        ],
        "Figures": [
            images("partition", "data partition and noise rates", 2),
            images("confusion", "confusion matrix of the last evaluation", 3),
        ],
    }
    return [ws.Section(name=name, panels=entries, is_open=True) for name, entries in panels.items()]


if __name__ == "__main__":
    sys.exit(main())
