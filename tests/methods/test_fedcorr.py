"""FedCorr against numbers derived by hand and against the released code's published arithmetic."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.tracking.tracker import Tracker
from methods.core import registry
from methods.core.contract import Batch, Payload, TaskSpec
from methods.core.flat_model import FlatModel
from methods.fedcorr.method import FedCorr, largest, proximal_pull, relabel, relabel_count
from methods.fedcorr.params import PROFILES, FedCorrParams, make_plan

FAST = ("train.batch_size=60", "evaluate.memorised_samples=0")
NULL = [
    f"method.{name}={str(value).lower()}"
    for name, value in FedCorr.fedavg_equivalent_params.items()
]


def spec(num_clients=100, clients_per_round=10, participations=10_000):
    return TaskSpec(
        "cifar10", (3, 32, 32), 10, num_clients, clients_per_round, participations, 84, 62_006
    )


def batch(step):
    return Batch(torch.zeros(1), torch.zeros(1), torch.zeros(1), 0, step)


# --- parameters and budget ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "world", "expected"),
    [
        ({}, (100, 10, 10_000), (5, 500, 450)),
        ({"iterations": 10, "finetuning_share": 0.5}, (50, 5, 5_000), (10, 450, 450)),
        ({"iterations": 2, "finetuning_share": 0.5}, (500, 10, 2_000), (2, 50, 50)),
    ],
)
def test_the_papers_budgets(params, world, expected):
    """FedCorr, Tables 1 and 7: 100*5 + 10*(500 + 450) = 10,000; 50*10 + 5*900 = 5,000; 500*2 + 10*100 = 2,000."""
    plan = make_plan(FedCorrParams(**params), spec(*world))
    assert (plan.iterations, plan.finetuning, plan.training) == expected
    assert plan.rounds_per_iteration == world[0]


def test_iterations_are_cut_to_half_the_budget_but_not_below_one():
    assert make_plan(FedCorrParams(), spec(100, 10, 700)).iterations == 3
    assert make_plan(FedCorrParams(), spec(100, 10, 150))[0::2] == (
        1,
        3,
    )  # 50 visits are left: 5 rounds, of which round(2.63)
    assert make_plan(FedCorrParams(iterations=0), spec(100, 10, 150))[0] == 0


def test_a_budget_below_one_iteration_is_refused():
    with pytest.raises(ValueError, match=r"budget.participations=99 .* federation.num_clients=100"):
        FedCorr(FedCorrParams()).check(spec(participations=99))
    FedCorr(FedCorrParams()).check(spec(participations=100))
    FedCorr(FedCorrParams(iterations=0)).check(spec(participations=99))
    with pytest.raises(ValueError, match="nothing to do"):
        FedCorr(FedCorrParams(iterations=0, finetuning=False, usual_training=False)).check(spec())


def test_a_stage_taken_away_leaves_its_budget_unspent():
    """Supplement C.6: without finetuning the total cost is 500 + 4,500 = 5,000."""
    assert make_plan(FedCorrParams(finetuning=False), spec())[2:] == (0, 450)
    assert make_plan(FedCorrParams(usual_training=False), spec())[2:] == (500, 0)


def test_without_fraction_scheduling_an_iteration_has_whole_cohorts():
    assert make_plan(FedCorrParams(fraction_scheduling=False), spec()).rounds_per_iteration == 10
    assert make_plan(FedCorrParams(fraction_scheduling=False), spec(8, 3)).rounds_per_iteration == 3


def test_profiles_and_departures():
    assert FedCorrParams().switches == PROFILES["official"]
    assert FedCorrParams(profile="paper").switches == PROFILES["paper"]
    assert FedCorrParams(profile="paper", prox="l2").switches == replace(
        PROFILES["paper"], prox="l2"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"profile": "text"}, "method.profile='text' is not legal; legal: official, paper"),
        ({"prox": "l1"}, "method.prox='l1' is not legal; legal: null, l2, l2sq"),
        ({"theta": 1.5}, "method.theta=1.5 is not legal; legal: 0 to 1"),
        ({"iterations": -1}, "method.iterations=-1 is not legal; legal: at least 0"),
        ({"final": "fedcorr"}, "method.final='fedcorr' is not legal; legal: "),
    ],
)
def test_illegal_values_are_named(wrong, message):
    with pytest.raises(ValueError) as error:
        FedCorrParams(**wrong)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


# --- mathematics ----------------------------------------------------------------------------------------------------------------------------


def test_losses_lie_in_a_window_of_width_one():
    """-log softmax(p)[y] over 10 classes. Uniform p: ln(10 e^.1) - .1 = ln 10. Sure and right: ln(e + 9) - 1; sure and wrong: ln(e + 9)."""
    method = FedCorr(FedCorrParams())
    logits = torch.zeros(3, 10)
    logits[1:, 4] = 1000.0
    losses = method._sample_losses(logits, torch.tensor([7, 4, 7]))
    expected = [math.log(10), math.log(math.e + 9) - 1, math.log(math.e + 9)]
    assert losses.tolist() == pytest.approx(expected, abs=1e-5)
    assert losses[0].item() == pytest.approx(2.302585, abs=1e-5)
    plain = FedCorr(FedCorrParams(sample_loss="ce"))._sample_losses(logits, torch.tensor([7, 4, 7]))
    assert plain.tolist() == pytest.approx([math.log(10), 0.0, 1000.0], abs=1e-5)


@pytest.mark.parametrize(
    ("form", "step", "expected"),
    [
        ("l2", 1, [0.5 * 0.6, 0.5 * 0.8]),  # strength * drift / |drift|
        ("l2", 0, [0.0, 0.0]),  # the first batch of an epoch is left out
        ("l2sq", 1, [2 * 0.5 * 3.0, 2 * 0.5 * 4.0]),  # 2 * strength * drift
        ("l2sq", 0, [2 * 0.5 * 3.0, 2 * 0.5 * 4.0]),
    ],
)
def test_proximal_gradient(form, step, expected):
    """Drift (3, 4), strength .5."""
    net = FlatModel(nn.Linear(2, 1, bias=False))
    net.load(torch.tensor([1.0, 2.0]))
    net.weights.add_(torch.tensor([3.0, 4.0]))
    net.grad.zero_()
    proximal_pull(net, batch(step), 0.5, form)
    assert net.grad.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("form", ["l2", "l2sq"])
def test_proximal_gradient_is_zero_at_the_start(form):
    net = FlatModel(nn.Linear(2, 1, bias=False))
    net.load(torch.tensor([1.0, 2.0]))
    net.grad.zero_()
    proximal_pull(net, batch(1), 0.5, form)
    assert net.grad.tolist() == [0.0, 0.0]


def test_relabel_count_truncates_the_product():
    """44 * (30 / 44) is 29.999999999999996 in double precision, half of it below 15."""
    assert relabel_count(44, 30 / 44, 0.5) == 14
    assert relabel_count(500, 301 / 500, 0.5) == 150
    assert relabel_count(10, 0.0, 0.5) == 0


def test_relabelling_by_hand():
    """Six samples. The three largest losses are 5, 1, 4 of all, and 1, 4, 0 of the pool {0, 1, 4}. Sample 4 is exactly at theta and stays."""
    losses = torch.tensor([1.6, 2.4, 1.5, 1.4, 2.1, 2.5])
    everyone, pool = (
        torch.ones(6, dtype=torch.bool),
        torch.tensor([True, True, False, False, True, False]),
    )
    assert largest(losses, everyone, 3).tolist() == [5, 1, 4]
    assert largest(losses, pool, 3).tolist() == [1, 4, 0]
    assert largest(losses, pool, 4).tolist() == [1, 4, 0]
    assert largest(losses, everyone, 0).tolist() == []
    probabilities = torch.tensor(
        [
            [0.9, 0.1, 0.0],
            [0.1, 0.3, 0.6],
            [1, 0, 0],
            [1, 0, 0],
            [0.5, 0.25, 0.25],
            [0.05, 0.9, 0.05],
        ]
    )
    labels = torch.tensor([1, 0, 1, 1, 1, 1])
    new, changed = relabel(labels, torch.tensor([5, 1, 4]), probabilities, 0.5)
    assert new.tolist() == [1, 2, 1, 1, 1, 1]  # sample 5 is sure of the label it has
    assert changed == 1
    assert labels.tolist() == [1, 0, 1, 1, 1, 1]
    assert relabel(labels, torch.tensor([], dtype=torch.int64), probabilities, 0.5)[1] == 0


# --- clients --------------------------------------------------------------------------------------------------------------------------------


def examined(make_client, make_ctx, vector, **params):
    """A client of ten images whose losses say that samples 0 to 3 are noisy, 0 most; and its reply."""
    client = make_client(
        num_samples=10,
        state={
            "fedcorr_losses": torch.tensor([2.5, 2.4, 2.3, 2.2, 1.5, 1.51, 1.49, 1.5, 1.5, 1.5])
        },
    )
    reply = FedCorr(FedCorrParams(**params)).examine(
        client, Payload({"model": vector}, {}), make_ctx(stage="preprocessing")
    )
    return client, reply


def test_examination_relabels_half_of_the_noisy_samples(make_client, make_ctx, initial_vector):
    """mu = 4/10, so int(10 * .4 * .5) = 2 candidates: samples 0 and 1. theta = 0 makes the model sure of all."""
    client, reply = examined(make_client, make_ctx, initial_vector, theta=0.0)
    net = client.network(initial_vector).eval()
    predicted = net(client.images(torch.arange(10))).argmax(1)
    expected = client.given.clone()
    expected[:2] = predicted[:2]
    assert torch.equal(client.labels, expected)
    assert reply.values == {"noise_level": 0.4, "relabelled": int((expected != client.given).sum())}
    assert client.state["fedcorr_noisy"].tolist() == [True] * 4 + [False] * 6


def test_a_high_threshold_keeps_all_labels(make_client, make_ctx, initial_vector):
    client, reply = examined(make_client, make_ctx, initial_vector, theta=1.0)
    assert torch.equal(client.labels, client.given)
    assert reply.values["relabelled"] == 0


def test_the_global_model_can_rank(make_client, make_ctx, initial_vector):
    """With theta = 0 and pi = 1, int(10 * .4) = 4 candidates: those with the largest cross-entropy under the model that was sent."""
    client, _ = examined(
        make_client,
        make_ctx,
        initial_vector,
        theta=0.0,
        pi=1.0,
        sample_loss="ce",
        rank_loss="global",
    )
    logits = client.network(initial_vector).eval()(client.images(torch.arange(10)))
    losses = torch.nn.functional.cross_entropy(logits, client.given, reduction="none")
    expected = client.given.clone()
    chosen = losses.topk(4).indices
    expected[chosen] = logits.argmax(1)[chosen]
    assert torch.equal(client.labels, expected)


@pytest.mark.parametrize("labels", [[3], [3, 3], [3] * 12])
def test_tiny_and_one_class_clients(make_client, make_ctx, initial_vector, labels):
    method = FedCorr(FedCorrParams())
    client = make_client(labels=labels)
    ctx = make_ctx(stage="preprocessing")
    reply = method.local_update(
        client, Payload({"model": initial_vector}, {"noise_level": 0.3}), ctx
    )
    assert math.isfinite(reply.values["lid"])
    reply = method.examine(client, Payload({"model": initial_vector}, {}), ctx)
    assert 0 <= reply.values["noise_level"] <= 1


def test_the_proximal_term_acts_on_noisy_clients_only(make_client, make_ctx, initial_vector):
    """The drift shrinks with the noise level; without the term it does not depend on it."""

    def drift(level, **params):
        method = FedCorr(FedCorrParams(beta=1.0, **params))
        ctx = make_ctx(stage="preprocessing", local_epochs=2, lr=0.05)
        reply = method.local_update(
            make_client(), Payload({"model": initial_vector}, {"noise_level": level}), ctx
        )
        return (reply.models["model"] - initial_vector).norm().item()

    assert drift(0.0) > drift(0.3) > drift(0.9)
    assert drift(0.0, proximal=False) == drift(0.9, proximal=False) == drift(0.0)


@pytest.mark.parametrize(
    ("stage", "scope", "mixes"),
    [
        ("finetuning", "all", True),
        ("finetuning", "preprocessing", False),
        ("preprocessing", "preprocessing", True),
    ],
)
def test_mixup_stages(make_client, make_ctx, initial_vector, stage, scope, mixes):
    def trained(**params):
        reply = FedCorr(FedCorrParams(**params)).local_update(
            make_client(), Payload({"model": initial_vector}, {}), make_ctx(stage=stage)
        )
        return reply.models["model"]

    assert torch.equal(trained(mixup_stages=scope), trained(mixup=False)) != mixes
    assert torch.allclose(
        trained(mixup_stages=scope, alpha=0.0), trained(mixup=False), atol=1e-6
    )  # lambda = 1 mixes nothing


# --- server ---------------------------------------------------------------------------------------------------------------------------------


def test_every_iteration_visits_every_client_once(open_run):
    run = open_run("method=fedcorr")  # 8 clients, 32 visits: two iterations
    orders = []
    for iteration in range(2):
        visits = []
        for turn in range(8):
            run.round = 8 * iteration + turn
            visits.append(run.method.select(run.fleet, run.context("preprocessing")))
        assert all(len(ids) == 1 for ids in visits)
        orders.append([k for ids in visits for k in ids])
        assert sorted(orders[-1]) == list(range(8))
    assert orders[0] != orders[1]


def test_cohorts_without_fraction_scheduling(open_run):
    run = open_run(
        "method=fedcorr", "method.fraction_scheduling=false", "federation.clients_per_round=3"
    )
    visits = []
    for run.round in range(3):
        visits.append(run.method.select(run.fleet, run.context("preprocessing")))
    assert [len(ids) for ids in visits] == [3, 3, 2]
    assert sorted(k for ids in visits for k in ids) == list(range(8))


def test_finetuning_takes_clients_up_to_kappa(open_run):
    run = open_run("method=fedcorr")
    levels = run.method._private["noise_levels"]
    levels[:] = [0.2, 0.1, 0.0, 0.5, 0.11, 0.0, 0.9, 0.3]
    run.round = 16
    assert run.method.select(run.fleet, run.context("finetuning")) == [
        1,
        2,
        5,
    ]  # the three that there are
    levels[:] = [0.8, 0.3, 0.9, 0.2, 0.5, 0.4, 0.7, 0.6]
    assert run.method.select(run.fleet, run.context("finetuning")) == [
        1,
        3,
        4,
        5,
    ]  # nobody is clean: the least noisy cohort


def test_noisy_clients_and_levels_after_an_iteration(open_run):
    """LID 1 to 1.3 and 9 to 9.3: the second group is noisy; its members' losses split 3 of 5, so mu is near .6 for them and 0 for the others."""
    run = open_run("method=fedcorr", "method.correction=false")
    method, fleet = run.method, run.fleet
    method._private["lid"][:] = [1.0, 9.0, 1.1, 9.1, 1.2, 9.2, 1.3, 9.3]
    method._private["cumulative_lid"][:] = 1.0
    for k in range(8):
        pattern = torch.tensor([2.4, 2.41, 2.39, 1.5, 1.51])
        fleet.states[k] = {
            "fedcorr_losses": pattern.repeat(int(fleet.sizes[k]) // 5 + 1)[: fleet.sizes[k]]
        }
    expected = {
        k: float((fleet.states[k]["fedcorr_losses"] > 2).float().mean()) for k in (1, 3, 5, 7)
    }
    run.round = 7
    method.after_round(fleet, run.context("preprocessing"))
    diagnosis = method.diagnosis(fleet)
    assert list(diagnosis.noisy_clients) == [1, 3, 5, 7]
    assert diagnosis.noise_rates.tolist() == pytest.approx([expected.get(k, 0.0) for k in range(8)])
    assert diagnosis.client_scores.tolist() == pytest.approx(
        [2.0, 10.0, 2.1, 10.1, 2.2, 10.2, 2.3, 10.3]
    )
    assert diagnosis.arrays["mixture"]["means"].tolist() == pytest.approx([2.15, 10.15], abs=1e-3)
    assert np.array_equal(
        diagnosis.noisy_samples[3], (fleet.states[3]["fedcorr_losses"] > 2).numpy()
    )
    assert run.fleet.meter.models_down == 0  # without correction nobody needs a model
    assert not fleet.changed_labels


def test_a_whole_run(run_small):
    """Two iterations of 8 visits, then two rounds of each later stage; the journal keeps the end of each iteration, and the relabelling after finetuning."""
    record = run_small(
        "method=fedcorr", *FAST, "method.theta=0.0", "federation.clients_per_round=4"
    )
    assert record["status"] == "done"
    assert record["cost"]["participations"] <= 32
    assert record["scores"]["method/iterations"] == 2
    assert record["scores"]["labels/accuracy_after"] != record["scores"]["labels/accuracy_before"]
    journal = [
        json.loads(line) for line in (record["folder"] / "journal.jsonl").read_text().splitlines()
    ]
    assert [(entry["round"], entry.get("iteration")) for entry in journal] == [
        (8, 1),
        (16, 2),
        (18, None),
    ]
    right = np.trace(journal[-1]["label_confusion"]) / np.sum(journal[-1]["label_confusion"])
    assert (
        journal[-1]["stage"] == "finetuning" and right == record["scores"]["labels/accuracy_after"]
    )
    assert set(journal[0]) >= {"lid", "cumulative_lid", "mixture", "noise_levels", "noisy"}
    assert np.allclose(np.add(journal[0]["lid"], journal[1]["lid"]), journal[1]["cumulative_lid"])


def test_the_journal_has_every_iteration_when_cohorts_do_not_divide_the_clients(run_small):
    record = run_small(
        "method=fedcorr", *FAST, "federation.clients_per_round=3", "budget.participations=48"
    )
    journal = [
        json.loads(line) for line in (record["folder"] / "journal.jsonl").read_text().splitlines()
    ]
    assert [entry["iteration"] for entry in journal if "iteration" in entry] == [1, 2, 3]


@pytest.mark.parametrize("stage2", ["lid_noisy", "kappa"])
def test_second_relabelling_reaches_the_named_clients(open_run, stage2):
    """The LID mixture names clients 1 and 2, kappa names client 2 alone; theta = 0 relabels all of their samples."""
    run = open_run("method=fedcorr", f"method.stage2_relabel={stage2}", "method.theta=0.0")
    run.method._private["noisy"] = [1, 2]
    run.method._private["noise_levels"][2] = 0.5
    run.round = run.method.plan.before_training - 1
    run.method.after_round(run.fleet, run.context("finetuning"))
    assert sorted(run.fleet.changed_labels) == ([1, 2] if stage2 == "lid_noisy" else [2])


@pytest.mark.parametrize(
    "switch",
    ["correction", "fraction_scheduling", "proximal", "finetuning", "usual_training", "mixup"],
)
def test_each_part_can_be_taken_away(run_small, switch):
    record = run_small(
        "method=fedcorr",
        *FAST,
        f"method.{switch}=false",
        "method.theta=0.0",
        "budget.participations=24",
    )
    assert record["status"] == "done"
    curve = (record["folder"] / "curve.csv").read_text()
    assert ("finetuning" in curve) == (switch != "finetuning")
    assert ("training" in curve) == (switch != "usual_training")
    if switch == "correction":
        assert "labels/accuracy_after" not in record["scores"]


def test_the_papers_profile_runs(run_small):
    record = run_small("method=fedcorr", *FAST, "method.profile=paper", "budget.participations=24")
    assert record["status"] == "done"


def accuracies(record):
    lines = (record["folder"] / "curve.csv").read_text().splitlines()
    position = lines[0].split(",").index("accuracy"), lines[0].split(",").index("loss")
    return [tuple(line.split(",")[i] for i in position) for line in lines[1:]]


def test_without_its_stages_it_is_fedavg(run_small):
    assert accuracies(run_small("method=fedcorr", *FAST, *NULL)) == accuracies(
        run_small("method=fedavg", *FAST)
    )


# --- the last stage under another method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", ["feddyn", "median", "poc", "fedprox"])
def test_the_successor_starts_from_the_finetuned_model(open_run, final):
    """Its first cohort receives the stage-2 model; its rounds count from 0 and its budget is the last stage's."""
    run = open_run("method=fedcorr", f"method.final={final}")
    method = run.method
    before = method.models["model"].clone()
    run.round = method.plan.before_training
    ctx = run.context("training")
    ids = method.select(run.fleet, ctx)
    method.before_round(run.fleet, ids, ctx)
    successor = method._private["successor"]
    assert type(successor) is registry.get(final).cls
    assert successor.rounds == method.plan.training
    assert torch.equal(method.payload(ids[0], ctx).models["model"], before)
    replies = run.fleet.ask(ids, method.local_update, method.payload, ctx, participation=True)
    method.aggregate(replies, ctx)
    assert not torch.equal(method.serving()["model"], before)
    assert method.serving().keys() == method.models.keys() == {"model"}


def test_a_successor_without_stages_before_it_is_that_method_alone(run_small):
    """iterations=0 and finetuning_share=0: FedCorr with final=poc is PoC, number for number; PoC asks clients by a task of its own."""
    assert accuracies(run_small("method=fedcorr", *FAST, *NULL, "method.final=poc")) == accuracies(
        run_small("method=poc", *FAST)
    )


def test_resuming_in_the_last_stage_changes_nothing(run_small, monkeypatch, tmp_path):
    """Two rounds under FedDyn, which keeps state on both sides; the second attempt goes on after the first of them."""
    overrides = [
        "method=fedcorr",
        *FAST,
        "method.final=feddyn",
        "budget.participations=36",
        "checkpoint.every_seconds=0",
    ]
    whole = run_small(*overrides, f"runs_dir={tmp_path / 'whole'}")
    advance = Tracker.advance

    def fail(tracker, round, stage, *rest):
        if round == whole["rounds"]:
            raise OSError("the disk is full")
        advance(tracker, round, stage, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "advance", fail)
        assert run_small(*overrides)["status"] == "failed"
    resumed = run_small(*overrides)
    assert any(f"goes on from round {whole['rounds'] - 1}" in line for line in resumed["lines"])
    assert accuracies(resumed) == accuracies(whole)
    assert resumed["cost"] == whole["cost"]


def test_a_successors_own_check_speaks_with_its_name():
    with pytest.raises(ValueError, match=r"method.final=poc: method.d=30"):
        FedCorr(FedCorrParams(final="poc")).check(spec(200, 40, 10_000))
