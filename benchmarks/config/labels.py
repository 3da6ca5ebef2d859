"""Names of runs for people: in progress lines, tables and errors."""

from collections.abc import Sequence

from benchmarks.config.schema import RunConfig

# Equal for all runs of a sweep.
UNINFORMATIVE_KEYS = ("runs_dir", "data_dir", "force", "dry_run", "dry", "references")


def run_title(config: RunConfig) -> str:
    """Short title from the configuration: `fedcorr digits rho_tau(0.6,0.5) seed 1`."""
    levels = [
        f"{value:g}"
        for value in vars(config.noise.params).values()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    noise = config.noise.name + (f"({','.join(levels)})" if levels else "")
    if config.labels == "clean":
        noise += " clean labels"
    return f"{config.method.name} {config.dataset.name} {noise} seed {config.seed}"


def identifying_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides that can distinguish a run from others of the same sweep."""
    return [
        text
        for text in overrides
        if text.partition("=")[0] not in UNINFORMATIVE_KEYS
        and not text.startswith(("executor", "hydra"))
    ]


def run_label(overrides: Sequence[str]) -> str:
    """The identifying overrides of a run in one line."""
    return " ".join(identifying_overrides(overrides)) or "defaults"
