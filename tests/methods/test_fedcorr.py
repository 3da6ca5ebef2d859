"""FedCorr: parameters, schedule, and client tasks against values derived by hand."""

import math
from dataclasses import replace

import pytest
import torch
from method_helpers import make_task, run_local_update
from torch import nn

from methods.core.flat_model import FlatModel
from methods.core.params import build_params
from methods.core.task import TaskSpec
from methods.fedcorr.method import FedCorr
from methods.fedcorr.params import PROFILES, FedCorrParams, make_schedule
from methods.fedcorr.relabeling import (
    add_proximal_grad,
    largest_loss_indices,
    relabel,
    relabel_count,
    sample_losses,
)


def spec(num_clients=100, cohort=10, participations=10_000):
    return TaskSpec("cifar10", (3, 32, 32), 10, num_clients, cohort, participations, 84, 62_006)


# Parameters and schedule


@pytest.mark.parametrize(
    ("params", "federation", "expected"),
    [
        ({}, (100, 10, 10_000), (5, 500, 450)),
        ({"iterations": 10, "finetuning_fraction": 0.5}, (50, 5, 5_000), (10, 450, 450)),
        ({"iterations": 2, "finetuning_fraction": 0.5}, (500, 10, 2_000), (2, 50, 50)),
    ],
)
def test_published_schedules(params, federation, expected):
    """FedCorr, Tables 1 and 7.

    100*5 + 10*(500 + 450) = 10,000; 50*10 + 5*900 = 5,000; 500*2 + 10*100 = 2,000.
    """
    schedule = make_schedule(FedCorrParams(**params), spec(*federation))
    assert (schedule.iterations, schedule.finetuning, schedule.training) == expected
    assert schedule.rounds_per_iteration == federation[0]


def test_iterations_use_at_most_half_of_budget_but_at_least_one():
    """After one iteration, 150 participations leave 5 rounds, of which round(2.63) finetune."""
    assert make_schedule(FedCorrParams(), spec(100, 10, 700)).iterations == 3
    small = make_schedule(FedCorrParams(), spec(100, 10, 150))
    assert (small.iterations, small.finetuning) == (1, 3)
    assert make_schedule(FedCorrParams(iterations=0), spec(100, 10, 150)).iterations == 0


def test_validation_of_budget():
    with pytest.raises(
        ValueError, match=r"budget.participations=99: .* federation.num_clients=100"
    ):
        FedCorr(FedCorrParams()).validate(spec(participations=99))
    FedCorr(FedCorrParams()).validate(spec(participations=100))
    FedCorr(FedCorrParams(iterations=0)).validate(spec(participations=99))
    disabled = FedCorrParams(iterations=0, finetuning=False, usual_training=False)
    with pytest.raises(ValueError, match="all FedCorr stages are disabled"):
        FedCorr(disabled).validate(spec())


def test_disabled_stage_leaves_budget_unspent():
    """Supplement C.6: without finetuning the total cost is 500 + 4,500 = 5,000."""
    assert make_schedule(FedCorrParams(finetuning=False), spec())[2:] == (0, 450)
    assert make_schedule(FedCorrParams(usual_training=False), spec())[2:] == (500, 0)


def test_iteration_without_fraction_scheduling_has_cohorts():
    params = FedCorrParams(fraction_scheduling=False)
    assert make_schedule(params, spec()).rounds_per_iteration == 10
    assert make_schedule(params, spec(8, 3)).rounds_per_iteration == 3


def test_profiles_and_options():
    assert FedCorrParams().options == PROFILES["official"]
    assert FedCorrParams(profile="paper").options == PROFILES["paper"]
    changed = FedCorrParams(profile="paper", prox="l2").options
    assert changed == replace(PROFILES["paper"], prox="l2")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"profile": "text"}, "invalid method.profile='text': expected official or paper"),
        ({"prox": "l1"}, "invalid method.prox='l1': expected l2 or l2sq or null"),
        ({"theta": 1.5}, "invalid method.theta=1.5: expected a number in [0, 1]"),
        ({"iterations": -1}, "invalid method.iterations=-1: expected an integer of at least 0"),
        (
            {"final_method": "fedcorr"},
            "invalid method.final_method='fedcorr': expected one of arfl, ",
        ),
    ],
)
def test_invalid_parameters(params, message):
    with pytest.raises(ValueError) as error:
        build_params(FedCorrParams, params, "method")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


# Mathematics


def test_sample_losses():
    """-log softmax(p)[y] over 10 classes lies in an interval of width 1.

    Uniform p: ln 10. Confident and right: ln(e + 9) - 1. Confident and wrong: ln(e + 9).
    """
    logits, labels = torch.zeros(3, 10), torch.tensor([7, 4, 7])
    logits[1:, 4] = 1000.0
    expected = [math.log(10), math.log(math.e + 9) - 1, math.log(math.e + 9)]
    losses = sample_losses(logits, labels, "ce_on_probs")
    assert losses.tolist() == pytest.approx(expected, abs=1e-5)
    losses = sample_losses(logits, labels, "ce")
    assert losses.tolist() == pytest.approx([math.log(10), 0.0, 1000.0], abs=1e-5)


@pytest.mark.parametrize(
    ("form", "step", "drift", "expected"),
    [
        ("l2", 1, [3.0, 4.0], [0.3, 0.4]),  # weight * drift / |drift|
        ("l2", 0, [3.0, 4.0], [0.0, 0.0]),  # not on the first batch of an epoch
        ("l2sq", 1, [3.0, 4.0], [3.0, 4.0]),  # 2 * weight * drift
        ("l2sq", 0, [3.0, 4.0], [3.0, 4.0]),
        ("l2", 1, [0.0, 0.0], [0.0, 0.0]),
        ("l2sq", 1, [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_proximal_gradient(form, step, drift, expected):
    """The weight is 0.5."""
    model = FlatModel(nn.Linear(2, 1, bias=False)).load(torch.tensor([1.0, 2.0]))
    model.weights.add_(torch.tensor(drift))
    add_proximal_grad(model, step, 0.5, form)
    assert model.grad.tolist() == pytest.approx(expected)


def test_relabel_count_truncates_product():
    """44 * (30 / 44) is 29.999999999999996 in double precision; half of it is below 15."""
    assert relabel_count(44, 30 / 44, 0.5) == 14
    assert relabel_count(500, 301 / 500, 0.5) == 150
    assert relabel_count(10, 0.0, 0.5) == 0


def test_largest_loss_indices():
    losses = torch.tensor([1.6, 2.4, 1.5, 1.4, 2.1, 2.5])
    everyone = torch.ones(6, dtype=torch.bool)
    pool = torch.tensor([True, True, False, False, True, False])
    assert largest_loss_indices(losses, everyone, 3).tolist() == [5, 1, 4]
    assert largest_loss_indices(losses, pool, 3).tolist() == [1, 4, 0]
    assert largest_loss_indices(losses, pool, 4).tolist() == [1, 4, 0]
    assert largest_loss_indices(losses, everyone, 0).tolist() == []


def test_relabel():
    """The confidence of sample 0 equals theta. The prediction for sample 2 is its label."""
    logits = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 0.0]])
    labels = torch.tensor([1, 0, 1])
    new, changed = relabel(labels, torch.tensor([2, 1, 0]), logits, 0.5)
    assert (new.tolist(), changed) == ([1, 2, 1], 1)
    assert labels.tolist() == [1, 0, 1]
    assert relabel(labels, torch.tensor([], dtype=torch.int64), logits, 0.5)[1] == 0


# Client side


@pytest.fixture
def examine(make_client, make_ctx, initial_vector):
    """examine(theta=0.0, ...) -> a client with noisy samples 0 to 3, 0 the most, and its reply."""

    def run(**params):
        losses = torch.tensor([2.5, 2.4, 2.3, 2.2, 1.5, 1.51, 1.49, 1.5, 1.5, 1.5])
        client = make_client(num_samples=10, state={"fedcorr_losses": losses})
        task = make_task(client, initial_vector, make_ctx(stage="preprocessing"))
        return client, FedCorr(FedCorrParams(**params)).examine(task)

    return run


def test_examine_relabels_half_of_noisy_samples(examine, initial_vector):
    """mu = 4/10, so int(10 * .4 * .5) = 2 candidates: 0 and 1. theta = 0 accepts all."""
    client, reply = examine(theta=0.0)
    predicted = client.load_model(initial_vector).eval()(client.images(torch.arange(10))).argmax(1)
    expected = client.given_labels.clone()
    expected[:2] = predicted[:2]
    changed = int((expected != client.given_labels).sum())
    assert torch.equal(client.labels, expected)
    assert reply.values == {"noise_level": 0.4, "relabeled": changed}
    assert client.state["fedcorr_noisy"].tolist() == [True] * 4 + [False] * 6


def test_high_theta_keeps_labels(examine):
    client, reply = examine(theta=1.0)
    assert torch.equal(client.labels, client.given_labels)
    assert reply.values["relabeled"] == 0


def test_global_model_can_rank_samples(examine, initial_vector):
    """With pi = 1, int(10 * .4) = 4 candidates: those with the largest cross-entropy."""
    client, _ = examine(theta=0.0, pi=1.0, sample_loss="ce", rank_loss="global")
    logits = client.load_model(initial_vector).eval()(client.images(torch.arange(10)))
    losses = nn.functional.cross_entropy(logits, client.given_labels, reduction="none")
    candidates = losses.topk(4).indices
    expected = client.given_labels.clone()
    expected[candidates] = logits.argmax(1)[candidates]
    assert torch.equal(client.labels, expected)


@pytest.mark.parametrize("labels", [[3], [3, 3], [3] * 12])
def test_small_and_one_class_clients(make_client, make_ctx, initial_vector, labels):
    method, client = FedCorr(FedCorrParams()), make_client(labels=labels)
    ctx = make_ctx(stage="preprocessing")
    reply = run_local_update(method, client, initial_vector, ctx, {"noise_level": 0.3})
    assert math.isfinite(reply.values["lid"])
    reply = method.examine(make_task(client, initial_vector, ctx))
    assert 0 <= reply.values["noise_level"] <= 1


def test_proximal_term_acts_on_noisy_clients_only(make_client, make_ctx, initial_vector):
    ctx = make_ctx(stage="preprocessing", local_epochs=2, lr=0.05)

    def drift(noise_level, **params):
        method, shared = FedCorr(FedCorrParams(beta=1.0, **params)), {"noise_level": noise_level}
        reply = run_local_update(method, make_client(), initial_vector, ctx, shared)
        return (reply.models["model"] - initial_vector).norm().item()

    assert drift(0.0) > drift(0.3) > drift(0.9)
    assert drift(0.0, proximal=False) == drift(0.9, proximal=False) == drift(0.0)


@pytest.mark.parametrize(
    ("stage", "mixup_stages", "uses_mixup"),
    [
        ("finetuning", "all", True),
        ("finetuning", "preprocessing", False),
        ("preprocessing", "preprocessing", True),
    ],
)
def test_mixup_stages(make_client, make_ctx, initial_vector, stage, mixup_stages, uses_mixup):
    """With alpha = 0, lambda is 1 and nothing is mixed."""

    def train(**params):
        method, ctx = FedCorr(FedCorrParams(**params)), make_ctx(stage=stage)
        return run_local_update(method, make_client(), initial_vector, ctx).models["model"]

    without_mixup = train(mixup=False)
    assert torch.equal(train(mixup_stages=mixup_stages), without_mixup) != uses_mixup
    unmixed = train(mixup_stages=mixup_stages, alpha=0.0)
    assert torch.allclose(unmixed, without_mixup, atol=1e-6)
