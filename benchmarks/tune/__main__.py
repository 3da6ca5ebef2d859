"""Tune methods with equal effort: python -m benchmarks.tune method=NAME,... dataset=NAME

    fln tune method=fedavg,fedcorr dataset=cifar10 scale=laptop trials=8
    fln tune method=all dataset=digits dry_run=true      list the trials and estimate the time
    fln tune dataset=digits report=true                  table and figures of existing data

Every method has the same number of trials and the same budget per trial. All trials run with a
quarter of the budget; the first one, which is the recipe, and the best quarter of the others with
the whole budget. The search space of a method is the learning rate and the parameters in
conf/search/METHOD.yaml, if there is such a file. A stopped command resumes when it is repeated.
Several commands at once share the work.

Options:
  method=      methods, separated by commas, or all
  dataset=     dataset (default: digits)
  scale=       paper, laptop (default) or smoke
  trials=8     trials per method
  seeds=1000   seeds of tuning, separated by commas, from 1000 on; results use smaller ones
  judge=noisy  noisy: accuracy on held-out samples with given labels
               clean: accuracy on the test split; data and results are marked oracle
  jobs=1       processes; with two or more, executor=serial is the default
  tuned=DIR    directory of the data that hyperparameters=tuned reads (default: conf/tuned)
  out=DIR      directory of the table and the figures (default: RUNS_DIR/tune)
  runs_dir=    runs and journals are stored in RUNS_DIR/tune (default: runs)
  dry_run=true, report=true
  protocol= noise= partition= model= executor= data_dir= noise.rho= ...   as in fln run
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, as in benchmarks.run

from benchmarks.config.compose import Composer, hydra_session
from benchmarks.config.experiments import CONF
from benchmarks.config.schema import FIRST_TUNING_SEED, RunConfig
from benchmarks.terminal import command as layer
from benchmarks.terminal.command import Options, require_choice
from methods.core.errors import UserError, invalid, missing

if TYPE_CHECKING:
    from benchmarks.tune.study import Study

FIXED = ("hyperparameters=common", "evaluate.validation=0.05", "evaluate.memorization_samples=0")
DEFAULTS = {"method": "", "dataset": "digits", "scale": "laptop", "trials": "8", "seeds": "1000"}
DEFAULTS |= {"judge": "noisy", "jobs": "1", "tuned": str(CONF / "tuned"), "out": ""}
DEFAULTS |= {"runs_dir": "runs", "dry_run": "false", "report": "false"}
RUN_KEYS = ("protocol", "noise", "partition", "model", "executor", "data_dir")  # given to the runs


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    tune = partial(_run, command=" ".join(["fln tune", *arguments]))
    defaults = DEFAULTS | dict.fromkeys(RUN_KEYS, "")
    return layer.run_command(arguments, str(__doc__), defaults, tune, accepts_run_filters=True)


def _run(options: Options, command: str) -> int:
    from benchmarks.tune.study import JUDGES, Study, TuningSettings
    from methods.core.registry import list_methods

    for key in ("dry_run", "report"):
        require_choice(key, options[key], ("true", "false"))
    if "seed" in options:
        expected = f"seeds={FIRST_TUNING_SEED} or another list of seeds"
        raise invalid("seed", options["seed"], expected)
    if options.get("hyperparameters", "common") != "common":
        expected = "common, the recipe around which values are searched"
        raise invalid("hyperparameters", options["hyperparameters"], expected)
    jobs, trials = (layer.require_integer(key, options[key], 1) for key in ("jobs", "trials"))
    seeds = tuple(layer.require_integers("seeds", options["seeds"], FIRST_TUNING_SEED))
    judge = require_choice("judge", options["judge"], list(JUDGES))
    settings = TuningSettings(_run_overrides(options, jobs), trials, seeds, judge)
    available = [info.name for info in list_methods()]
    methods = (
        layer.choose_names("method", options["method"], available) if options["method"] else []
    )
    with hydra_session():
        composer = Composer()
        if options["report"] == "true":
            return _report(composer.compose_run(settings.overrides), methods, options)
        if not methods:
            raise missing("method", "method=NAME,... or method=all")
        studies = [Study(method, settings, composer) for method in methods]
        if options["dry_run"] == "true":
            return _print_plan(studies)
        code = _tune(studies, jobs, options, command)
        if tuned := [study.method for study in studies if study.best is not None]:
            _report(studies[0].recipe, tuned, options)
        return code


def _tune(studies: "Sequence[Study]", jobs: int, options: Options, command: str) -> int:
    """Run all trials and write the data. Returns exit code 1 if a run failed."""
    from benchmarks.interruption import launch_until_done
    from benchmarks.loop.preflight import validate_runs
    from benchmarks.tune.data import write_tuned
    from benchmarks.tune.execution import execute_studies

    def finish(study: "Study") -> None:
        study.finish()
        if study.best is None:
            print(f"{study.method}: no trial was successful; nothing written")
        else:
            print(f"wrote {write_tuned(Path(options['tuned']), study, command)}", flush=True)

    validate_runs([run for study in studies for run in study.pending()])
    for study in studies:
        study.start()
    launch_until_done(partial(execute_studies, studies, jobs, finish))
    return 1 if any(study.failed or study.best is None for study in studies) else 0


def _report(config: RunConfig, methods: Sequence[str], options: Options) -> int:
    """Print the table of the tuned data, and save table and figures."""
    from benchmarks.terminal.console import make_console
    from benchmarks.tune.data import data_dir, read_tuned
    from benchmarks.tune.show import make_table, save_report

    directory = data_dir(Path(options["tuned"]), config)
    found = [data for data in read_tuned(directory) if not methods or data["method"] in methods]
    if not found:
        raise UserError(f"no tuned data found in {directory}")
    console = make_console()
    console.print(make_table(found))
    out = Path(options["out"] or Path(options["runs_dir"]) / "tune").expanduser()
    for path in save_report(found, out, "_".join(directory.parts[-2:])):
        console.print(f"saved {path}", soft_wrap=True)
    return 0


def _print_plan(studies: "Sequence[Study]") -> int:
    """List the runs of the first stage, and estimate the time of both."""
    from benchmarks.records.estimates import estimate, format_total, load_timed_records
    from benchmarks.terminal.run_tables import finished_run_ids, print_planned_runs
    from benchmarks.tune.study import FIRST

    runs = [run for study in studies for i in study.trials(FIRST) for run in study.runs(FIRST, i)]
    print_planned_runs(runs, finished_run_ids(runs))
    study = studies[0]
    records = load_timed_records(study.recipe.runs_dir)
    num_finals = study.num_finalists * len(study.settings.seeds)
    times = [estimate(study.recipe, records) for study in studies] * num_finals
    finalists = f"the recipe and the best {study.num_finalists - 1} other trials of each method"
    print(f"then {finalists} with {study.budgets[1]} participations: {format_total(times)}")
    return 0


def _run_overrides(options: Options, jobs: int) -> tuple[str, ...]:
    """Overrides of every trial."""
    given = {key: options[key] for key in RUN_KEYS if options[key]}
    given |= {key: value for key, value in options.items() if "." in key}
    if jobs > 1:
        given.setdefault("executor", "serial")
    shared = {"dataset": options["dataset"], "scale": options["scale"]}
    shared["runs_dir"] = str(Path(options["runs_dir"]).expanduser() / "tune")
    return (*FIXED, *(f"{key}={value}" for key, value in (shared | given).items()))


if __name__ == "__main__":
    sys.exit(main())
