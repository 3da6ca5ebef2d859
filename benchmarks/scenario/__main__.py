"""Inspect a federated scenario (data partition and label noise) without training.

    python -m benchmarks.scenario [key=value ...] [plot=FILE]

Options:
  key=value    keys of benchmarks.run, such as dataset=cifar10 partition=bernoulli_dirichlet
               partition.p=0.3 noise.rho=0.8 seed=2
  plot=FILE    also save a figure (PNG or PDF, by extension)
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.terminal.command import Options, run_command
from methods.core.errors import invalid

DEFAULTS = {"plot": "", "draw": ""}  # draw: former name of plot


def main(arguments: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    own = [text for text in arguments if text.partition("=")[0] in {*DEFAULTS, "-h", "--help"}]
    overrides = [text for text in arguments if text not in own]
    return run_command(own, str(__doc__), DEFAULTS, partial(_run, overrides))


def _run(overrides: list[str], options: Options) -> int:
    from benchmarks import data
    from benchmarks.config.compose import compose_run
    from benchmarks.config.flags import check_overrides
    from benchmarks.scenario.describe import plot_scenario, scenario_tables, scenario_title
    from benchmarks.scenario.scenario import build_scenario
    from benchmarks.terminal.console import make_console

    path = Path(options["plot"] or options["draw"])
    is_file = path.resolve().parent.is_dir() and not path.is_dir()
    if path.name and (path.suffix not in (".png", ".pdf") or not is_file):
        raise invalid("plot", str(path), "a .png or .pdf file in an existing directory")
    check_overrides(overrides)
    config = compose_run(overrides)
    dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
    scenario = build_scenario(config, dataset)
    for table in scenario_tables(config, scenario):
        make_console().print(table)
    if path.name:
        plot_scenario(scenario, path, scenario_title(config))
        make_console().print(f"saved {path}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
