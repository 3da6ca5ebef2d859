"""Choice of the tracker of a run."""

from rich.console import Console

from benchmarks.config.labels import run_title
from benchmarks.config.schema import RunConfig
from benchmarks.tracking.tracker import Tracker


def make_tracker(config: RunConfig, console: Console) -> Tracker:
    """The tracker that the configuration selects."""
    if config.tracking.name == "wandb" and config.tracking.params.mode != "disabled":
        # The import of W&B takes about a second.
        from benchmarks.tracking.wandb_tracker import WandbTracker

        return WandbTracker(run_title(config), config, console)
    return Tracker(run_title(config), config.run_dir, console)
