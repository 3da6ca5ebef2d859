"""FedCorr: server side, whole runs, and the final stage under another method."""

import csv
import json

import numpy as np
import pytest
import torch
from run_helpers import to_comparable

from benchmarks.loop.state_codec import decode, encode
from benchmarks.tracking.tracker import Tracker
from methods.core import registry
from methods.core.contract import ServerState
from methods.core.task import TaskSpec
from methods.fedcorr.method import FedCorr
from methods.fedcorr.params import FedCorrParams

FAST = ("train.batch_size=60", "evaluate.memorization_samples=0")
FEDAVG_EQUIVALENT = [
    f"method.{name}={str(value).lower()}"
    for name, value in FedCorr.fedavg_equivalent_params.items()
]


def read_journal(record):
    lines = (record["run_dir"] / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_curve(record):
    with open(record["run_dir"] / "curve.csv", newline="") as file:
        return [(row["accuracy"], row["loss"]) for row in csv.DictReader(file)]


# Server side


def test_iteration_selects_every_client_once(open_run):
    """8 clients and 32 participations give two iterations, in different orders."""
    run = open_run("method=fedcorr")
    orders = []
    for iteration in range(2):
        cohorts = []
        for run.round in range(8 * iteration, 8 * iteration + 8):
            cohorts.append(run.method.select_clients(run.pool, run.context("preprocessing")))
        assert all(len(ids) == 1 for ids in cohorts)
        orders.append([k for ids in cohorts for k in ids])
        assert sorted(orders[-1]) == list(range(8))
    assert orders[0] != orders[1]


def test_cohorts_without_fraction_scheduling(open_run):
    run = open_run(
        "method=fedcorr", "method.fraction_scheduling=false", "federation.clients_per_round=3"
    )
    cohorts = []
    for run.round in range(3):
        cohorts.append(run.method.select_clients(run.pool, run.context("preprocessing")))
    assert [len(ids) for ids in cohorts] == [3, 3, 2]
    assert sorted(k for ids in cohorts for k in ids) == list(range(8))


@pytest.mark.parametrize(
    ("levels", "cohort"),
    [
        ([0.2, 0.1, 0.0, 0.5, 0.11, 0.0, 0.9, 0.3], [1, 2, 5]),  # fewer clean clients than usual
        ([0.8, 0.3, 0.9, 0.2, 0.5, 0.4, 0.7, 0.6], [1, 3, 4, 5]),  # none: the least noisy cohort
    ],
)
def test_finetuning_selects_clients_up_to_kappa(open_run, levels, cohort):
    run = open_run("method=fedcorr")
    run.method.state.noise_levels[:] = levels
    run.round = 16
    assert run.method.select_clients(run.pool, run.context("finetuning")) == cohort


def test_noisy_clients_and_levels_after_iteration(open_run):
    """Clients with an odd number have a high LID. About 3 of 5 of their losses are high."""
    run = open_run("method=fedcorr", "method.correction=false")
    method, pool = run.method, run.pool
    method.state.lid[:] = [1.0, 9.0, 1.1, 9.1, 1.2, 9.2, 1.3, 9.3]
    method.state.cumulative_lid[:] = 1.0
    losses = torch.tensor([2.4, 2.41, 2.39, 1.5, 1.51]).repeat(1000)
    for k, size in enumerate(pool.client_sizes):
        pool.states[k] = {"fedcorr_losses": losses[:size]}
    run.round = 7
    method.after_round(pool, run.context("preprocessing"))
    diagnosis = method.diagnose(pool)
    assert list(diagnosis.noisy_clients) == [1, 3, 5, 7]
    rates = [(losses[:size] > 2).float().mean().item() for size in pool.client_sizes]
    expected = [rate if k % 2 else 0.0 for k, rate in enumerate(rates)]
    assert diagnosis.noise_rates.tolist() == pytest.approx(expected)
    scores = [2.0, 10.0, 2.1, 10.1, 2.2, 10.2, 2.3, 10.3]
    assert diagnosis.client_scores.tolist() == pytest.approx(scores)
    assert diagnosis.arrays["mixture"]["means"].tolist() == pytest.approx([2.15, 10.15], abs=1e-3)
    is_high = (losses[: pool.client_sizes[3]] > 2).numpy()
    assert np.array_equal(diagnosis.noisy_samples[3], is_high)
    assert pool.meter.models_down == 0  # Without correction, clients need no model.
    assert not pool.relabeled


@pytest.mark.parametrize(("stage2", "relabeled"), [("lid_noisy", [1, 2]), ("kappa", [2])])
def test_clients_relabeled_after_finetuning(open_run, stage2, relabeled):
    """Clients 1 and 2 are noisy by LID, client 2 alone is above kappa. theta = 0 accepts all."""
    run = open_run("method=fedcorr", f"method.stage2_relabel={stage2}", "method.theta=0.0")
    run.method.state.noisy = [1, 2]
    run.method.state.noise_levels[2] = 0.5
    run.round = run.method.schedule.rounds_before_training - 1
    run.method.after_round(run.pool, run.context("finetuning"))
    assert sorted(run.pool.relabeled) == relabeled


# Whole runs


def test_run_and_journal(run_small):
    """Two iterations of 8 participations, then two rounds of each later stage.

    The journal has an entry for each iteration and for the relabeling after finetuning.
    """
    record = run_small(
        "method=fedcorr", *FAST, "method.theta=0.0", "federation.clients_per_round=4"
    )
    scores, journal = record["metrics"], read_journal(record)
    assert record["status"] == "done"
    assert record["cost"]["participations"] <= 32
    assert scores["method/iterations"] == 2
    assert scores["labels/accuracy_after"] != scores["labels/accuracy_before"]
    iterations = [(entry["round"], entry.get("iteration")) for entry in journal]
    assert iterations == [(8, 1), (16, 2), (18, None)]
    confusion = journal[-1]["label_confusion"]
    assert journal[-1]["stage"] == "finetuning"
    assert np.trace(confusion) / np.sum(confusion) == scores["labels/accuracy_after"]
    assert set(journal[0]) >= {"lid", "cumulative_lid", "mixture", "noise_levels", "noisy"}
    assert np.allclose(np.add(journal[0]["lid"], journal[1]["lid"]), journal[1]["cumulative_lid"])


def test_journal_has_every_iteration_with_uneven_cohorts(run_small):
    record = run_small(
        "method=fedcorr", *FAST, "federation.clients_per_round=3", "budget.participations=48"
    )
    iterations = [entry["iteration"] for entry in read_journal(record) if "iteration" in entry]
    assert iterations == [1, 2, 3]


@pytest.mark.parametrize(
    "component",
    ["correction", "fraction_scheduling", "proximal", "finetuning", "usual_training", "mixup"],
)
def test_each_component_can_be_disabled(run_small, component):
    disabled = (f"method.{component}=false", "method.theta=0.0", "budget.participations=24")
    record = run_small("method=fedcorr", *FAST, *disabled)
    assert record["status"] == "done"
    curve = (record["run_dir"] / "curve.csv").read_text()
    assert ("finetuning" in curve) == (component != "finetuning")
    assert ("training" in curve) == (component != "usual_training")
    if component == "correction":
        assert "labels/accuracy_after" not in record["metrics"]


def test_profile_of_paper_runs(run_small):
    record = run_small("method=fedcorr", *FAST, "method.profile=paper", "budget.participations=24")
    assert record["status"] == "done"


# Final stage under another method


@pytest.mark.parametrize("final", ["feddyn", "median", "poc", "fedprox"])
def test_delegate_starts_from_finetuned_model(open_run, final):
    run = open_run("method=fedcorr", f"method.final_method={final}")
    method, pool = run.method, run.pool
    method.state.models["model"] += 1.0
    before = method.state.models["model"].clone()
    run.round = method.schedule.rounds_before_training
    ctx = run.context("training")
    ids = method.select_clients(pool, ctx)
    method.before_round(pool, ids, ctx)
    assert type(method._final_method) is registry.get(final).cls
    assert method._final_method.rounds == method.schedule.training
    assert torch.equal(method.payload(ids[0], ctx).models["model"], before)
    replies = pool.run_task(ids, method.local_update, method.payload, ctx, participation=True)
    method.aggregate(replies, ctx)
    assert isinstance(method.state.delegate, ServerState)
    assert to_comparable(decode(encode(method.state))) == to_comparable(method.state)
    assert not torch.equal(method.eval_models()["model"], before)
    assert method.eval_models().keys() == method.state.models.keys() == {"model"}


def test_delegate_alone_equals_that_method(run_small):
    """Without other stages, final_method=poc is PoC, which also has a client task of its own."""
    delegated = run_small("method=fedcorr", *FAST, *FEDAVG_EQUIVALENT, "method.final_method=poc")
    assert read_curve(delegated) == read_curve(run_small("method=poc", *FAST))


def test_resume_in_final_stage(run_small, monkeypatch, tmp_path):
    """FedDyn has state on server and clients. The run stops after the first of its two rounds."""
    overrides = [
        *("method=fedcorr", *FAST, "method.final_method=feddyn"),
        *("budget.participations=36", "checkpoint.every_seconds=0"),
    ]
    whole = run_small(*overrides, f"runs_dir={tmp_path / 'whole'}")
    on_round = Tracker.on_round

    def fail(tracker, round, stage, *rest):
        if round == whole["rounds"]:
            raise OSError("the disk is full")
        on_round(tracker, round, stage, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "on_round", fail)
        assert run_small(*overrides)["status"] == "failed"
    resumed = run_small(*overrides)
    assert any(f"round {whole['rounds'] - 1}" in line for line in resumed["lines"])
    assert read_curve(resumed) == read_curve(whole)
    assert resumed["cost"] == whole["cost"]


def test_error_of_delegate_names_it():
    spec = TaskSpec("cifar10", (3, 32, 32), 10, 200, 40, 10_000, 84, 62_006)
    with pytest.raises(ValueError, match=r"method.final_method=poc: invalid method.d=30"):
        FedCorr(FedCorrParams(final_method="poc")).validate(spec)
