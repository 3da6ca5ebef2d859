"""Create a saved view in a Weights & Biases project, for the runs of `tracking=wandb`.

    python -m reports.wandb_dashboard [project=NAME] [entity=NAME] [out=FILE]

It shows accuracy curves by method, a table of runs, noise detection, cost and figures. Each call
creates a new view. Without a login or connection, the dashboard definition is written to a file.

  project   project of the runs, as in tracking.project (default federated-label-noise)
  entity    team or user (default: the default entity of the account)
  out       output file (default wandb_dashboard.json)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.terminal import command
from methods.core.errors import first_line

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

NAME = "Federated learning under label noise"
DEFAULTS = {"project": "federated-label-noise", "entity": "", "out": "wandb_dashboard.json"}
CONTENT = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
HTTP_TIMEOUT_S = "10"


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, str(__doc__), DEFAULTS, create_dashboard)


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
    """The dashboard with all sections. Curves are means over the runs of a method."""
    import wandb_workspaces.reports.v2
    import wandb_workspaces.workspaces as ws

    wr: Any = wandb_workspaces.reports.v2  # exports its classes without annotations
    by_method: dict[str, Any] = {"groupby": wr.Config("method.name"), "groupby_aggfunc": "mean"}
    best, traffic = wr.SummaryMetric("summary/best"), wr.SummaryMetric("cost/bytes_down")
    keys = ("method.name", "dataset.name", "noise.name", "noise.rho", "seed")
    axes = [wr.ParallelCoordinatesPlotColumn(key) for key in (*map(wr.Config, keys), best)]

    def curve(y: str, title: str, x: str = "participations") -> Any:
        axis = {"x": x, "y": [y], "title_x": x.replace("_", " ")}
        return wr.LinePlot(title=title, groupby_rangefunc="stddev", **axis, **by_method)

    def bars(metric: str, title: str) -> Any:
        metrics = [wr.SummaryMetric(metric)]
        return wr.BarPlot(title=title, metrics=metrics, groupby_rangefunc="minmax", **by_method)

    make_panel: dict[str, Callable[..., Any]] = {
        "curve": curve,
        "all_runs": lambda y, title: wr.LinePlot(title=title, x="participations", y=[y]),
        "bars": bars,
        "images": lambda key, **options: wr.MediaBrowser(media_keys=[f"figures/{key}"], **options),
        "comparer": lambda: wr.RunComparer(diff_only="split"),
        "coordinates": lambda title: wr.ParallelCoordinatesPlot(title=title, columns=axes),
        "scatter": lambda title: wr.ScatterPlot(title=title, x=traffic, y=best),
    }
    sections = []
    for name, entries in CONTENT["sections"].items():
        panels = [make_panel[kind](**options) for kind, options in entries]
        sections.append(ws.Section(name=name, panels=panels, is_open=True))
    return ws.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis="participations", max_runs=100),
        runset_settings=ws.RunsetSettings(pinned_columns=CONTENT["columns"]),
    )


if __name__ == "__main__":
    sys.exit(main())
