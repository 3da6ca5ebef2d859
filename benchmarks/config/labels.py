"""Names of runs for people: in progress lines, tables and errors."""

from collections.abc import Iterable, Sequence

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


def protocol_caption(runs: Iterable[tuple[str, str, str]]) -> str:
    """Protocols and hyperparameters of (protocol, hyperparameters, method), for a table's caption.

    `protocol digits, hyperparameters common (lsg), tuned (fedcorr)`: if there are several values,
    each is followed by its methods.
    """
    found = list(runs)
    parts = []
    for index, name in enumerate(("protocol", "hyperparameters")):
        methods: dict[str, set[str]] = {}
        for run in found:
            methods.setdefault(str(run[index]), set()).add(run[2])
        one = [f"{name} {value}" for value in methods]
        several = [f"{value} ({', '.join(sorted(methods[value]))})" for value in sorted(methods)]
        parts += one if len(one) < 2 else [f"{name} {', '.join(several)}"]
    return ", ".join(parts)


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
