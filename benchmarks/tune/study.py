"""Tuning of one method by successive halving over ordinary runs.

All trials run with a quarter of the budget, the best quarter of them again with the whole budget.
The recipe always does, too: a short run favors high learning rates, which fit wrong labels later.
Run records are the results of trials, so that a stopped study resumes and several processes share
one study in the same way as a sweep. An Optuna journal keeps the values of all trials, from the
first start on, and the finished trials.
"""

import fcntl
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.config.compose import Composer
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.loop.results import NUM_LAST_EVALUATIONS
from benchmarks.records.readers import read_curve
from benchmarks.records.record import CorruptRecordError, read_record
from benchmarks.tune.space import Values, import_optuna, load_space, sample_values
from methods.core.errors import invalid

REDUCTION = 4  # of the budget in the first stage, and of the trials in the second stage
FIRST, FULL = 0, 1  # stages
JUDGES = {"noisy": "validation_accuracy", "clean": "accuracy"}  # columns of the learning curve


@dataclass(frozen=True)
class TuningSettings:
    """What is equal for all methods of a command."""

    overrides: tuple[str, ...]  # of every trial
    trials: int
    seeds: tuple[int, ...]
    judge: str  # noisy: held-out samples with given labels | clean: the test split


class Study:
    def __init__(self, method: str, settings: TuningSettings, composer: Composer):
        self.method, self.settings, self._composer = method, settings, composer
        self.recipe = self._compose([], settings.seeds[0]).config
        if settings.judge == "noisy" and not self.recipe.evaluate.validation:
            raise invalid("evaluate.validation", 0.0, "a share above 0, or judge=clean")
        self.space = load_space(self.recipe, settings.overrides)
        full = self.recipe.budget.participations
        first = max(math.ceil(full / REDUCTION), self.recipe.federation.clients_per_round)
        self.budgets = (min(first, full), full)
        best = math.ceil(settings.trials / REDUCTION)
        self.num_finalists = min(1 + best, settings.trials)  # the recipe and the best others
        self.failed: set[str] = set()  # run ids that failed in this process
        self._scores: dict[str, float] = {}  # by run id
        self._runs: dict[tuple[int, int], list[PlannedRun]] = {}

    def _compose(self, values: Sequence[str], seed: int) -> PlannedRun:
        own = [f"method={self.method}", *values, f"seed={seed}"]
        return PlannedRun(own, self._composer.compose_run([*self.settings.overrides, *own]))

    @cached_property
    def name(self) -> str:
        """Method, dataset, scale and a hash of what determines the trials."""
        config = self.recipe.hashed_config()
        space = [asdict(parameter) for parameter in self.space]
        judged = (self.settings.trials, self.settings.seeds, self.settings.judge)
        text = json.dumps([config, space, judged], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.method}-{self.recipe.dataset.name}-{self.recipe.scale}-{digest}"

    @property
    def journal(self) -> Path:
        return self.recipe.runs_dir / f"{self.name}.journal"

    @cached_property
    def values(self) -> list[Values]:
        """Values of all trials: those of the journal, if there is one. The first is the recipe."""
        if self.journal.is_file():
            found: list[Values] = self._open().user_attrs.get("values", [])
            if found:
                return found
        return sample_values(self.space, self.settings.trials)

    def runs(self, stage: int, trial: int) -> list[PlannedRun]:
        """The runs of a trial, one per seed."""
        if (stage, trial) not in self._runs:
            values = [f"{key}={value!r}" for key, value in self.values[trial].items()]
            values.append(f"budget.participations={self.budgets[stage]}")
            self._runs[stage, trial] = [self._compose(values, seed) for seed in self.settings.seeds]
        return self._runs[stage, trial]

    def trials(self, stage: int) -> list[int]:
        """Trials of a stage. The full stage has none until the first one has ended."""
        if stage == FIRST:
            return list(range(self.settings.trials))
        scores = [self.score(FIRST, trial) for trial in self.trials(FIRST)]
        known = {trial: score for trial, score in enumerate(scores) if score is not None}
        if len(known) < len(scores):
            return []
        others = sorted(range(1, len(known)), key=lambda trial: -known[trial])
        finalists = [0, *others[: self.num_finalists - 1]]
        return [trial for trial in finalists if known[trial] != -math.inf]

    def score(self, stage: int, trial: int) -> float | None:
        """Mean score over the seeds; minus infinity if a run was unsuccessful; None if open."""
        found = [self._score_run(run.config) for run in self.runs(stage, trial)]
        known = [score for score in found if score is not None]
        return sum(known) / len(known) if len(known) == len(found) else None

    def _score_run(self, config: RunConfig) -> float | None:
        """Mean of the last ten evaluations: less noisy than the best one of a small held-out set,
        and without the upward bias of a maximum."""
        if config.run_id in self._scores:
            return self._scores[config.run_id]
        try:
            record = read_record(config.run_dir)
        except CorruptRecordError:  # It is run again.
            return None
        if record is None or (record.status == "failed" and config.run_id not in self.failed):
            return None
        score = -math.inf
        if record.status == "done":
            column = JUDGES[self.settings.judge]
            curve = read_curve(config.run_dir, column)[column]
            score = float(curve.tail(NUM_LAST_EVALUATIONS).mean())
        self._scores[config.run_id] = score
        return score

    def pending(self) -> list[PlannedRun]:
        """Runs that can start now and have no result."""
        return [
            run
            for stage in (FIRST, FULL)
            for trial in self.trials(stage)
            for run in self.runs(stage, trial)
            if self._score_run(run.config) is None
        ]

    @property
    def best(self) -> int | None:
        """The trial with the best score in the full stage; None if no trial was successful."""
        scores: dict[int, float] = {}
        for trial in self.trials(FULL):
            score = self.score(FULL, trial)
            if score is not None and score != -math.inf:
                scores[trial] = score
        return max(scores, key=lambda trial: scores[trial], default=None)

    def _open(self) -> Any:
        optuna = import_optuna()
        backend = optuna.storages.journal.JournalFileBackend(str(self.journal))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        with open(self.journal.with_suffix(".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def start(self) -> None:
        """Keep the values of all trials in the journal."""
        with self._locked():
            self._open().set_user_attr("values", self.values)

    def finish(self) -> None:
        """Add the finished trials to the journal."""
        optuna = import_optuna()
        states = optuna.trial.TrialState
        distributions = {parameter.key: parameter.distribution for parameter in self.space}
        with self._locked():
            study = self._open()
            for trial in range(len(study.trials), self.settings.trials):
                stages = [stage for stage in (FIRST, FULL) if trial in self.trials(stage)]
                found = {self.budgets[stage]: self.score(stage, trial) for stage in stages}
                scores = {budget: score for budget, score in found.items() if score is not None}
                score = scores.get(self.budgets[FULL], scores.get(self.budgets[FIRST]))
                complete = trial in self.trials(FULL) and score != -math.inf
                pruned = states.FAIL if score == -math.inf else states.PRUNED
                finished = optuna.trial.create_trial(
                    state=states.COMPLETE if complete else pruned,
                    value=score if complete else None,
                    params=self.values[trial],
                    distributions=distributions,
                    intermediate_values=scores,
                )
                study.add_trial(finished)
