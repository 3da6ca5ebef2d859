"""FedLSR: its loss of two views by hand, the entropy's two forms, and that the second view is a view of the same images."""

import math

import pytest
import torch

from methods.core.contract import Payload
from methods.fedlsr import FedLSR, FedLSRParams

LN3 = math.log(3)


def visit(client, ctx, vector, **params):
    return (
        FedLSR(FedLSRParams(**params))
        .local_update(client, Payload({"model": vector}, {}), ctx)
        .models["model"]
    )


def test_loss_of_two_views_by_hand():
    """Logits (ln 3, 0) and (0, ln 3): p = (3/4, 1/4) and (1/4, 3/4). Mixed with m = 1: p^2 renormalised is (9/10, 1/10); label 0: ln(1 + e^-0.8).

    At T = 1/3 the views are (27/28, 1/28) and its mirror, their mean is uniform, so JS = ln 2 - H(1/28) = 0.6931 - 0.1540 a sample, halved over 2
    classes. With m = 1/2 the mixture is uniform and the supervised term ln 2.
    """
    first, second, labels = (
        torch.tensor([[LN3, 0.0]]),
        torch.tensor([[0.0, LN3]]),
        torch.tensor([0]),
    )
    method = FedLSR(FedLSRParams())
    entropy = -(27 / 28 * math.log(27 / 28) + 1 / 28 * math.log(1 / 28))
    assert method.two_view_loss(first, second, labels, mix=1.0, weight=0.0).item() == pytest.approx(
        math.log(1 + math.exp(-0.8))
    )
    assert method.two_view_loss(first, second, labels, mix=0.5, weight=0.4).item() == pytest.approx(
        math.log(2) + 0.4 * (math.log(2) - entropy) / 2, rel=1e-5
    )


def test_views_that_agree_cost_nothing_more():
    logits, labels = torch.randn(4, 10, generator=torch.Generator().manual_seed(5)), torch.arange(4)
    method = FedLSR(FedLSRParams())
    alone = method.two_view_loss(logits, logits, labels, mix=0.3, weight=0.0)
    assert torch.allclose(method.two_view_loss(logits, logits, labels, mix=0.3, weight=5.0), alone)


def test_agreement_pulls_both_views():
    first, second = (
        torch.tensor([[0.5, 0.0]], requires_grad=True),
        torch.tensor([[0.0, 0.5]], requires_grad=True),
    )
    method = FedLSR(FedLSRParams())
    difference = method.two_view_loss(
        first, second, torch.tensor([0]), 0.5, 1.0
    ) - method.two_view_loss(first, second, torch.tensor([0]), 0.5, 0.0)
    difference.backward()
    assert first.grad[0, 0] > 0 > second.grad[0, 0]


def test_entropy_forms():
    """Fixed: entropies of (3/4, 1/4) and of uniform, averaged. Code: softmax of the clamped probabilities of the first view alone.

    For 10 classes the code's form spans only 2.2288 (a sure model: entropy of softmax(1, 0, ..., 0)) to ln 10 = 2.3026.
    """
    first, second = torch.tensor([[LN3, 0.0]]), torch.zeros(1, 2)
    fixed = FedLSR(FedLSRParams(lambda_e=1.0)).prediction_entropy(first, second).item()
    assert fixed == pytest.approx((0.562335 + math.log(2)) / 2, rel=1e-5)
    code = FedLSR(FedLSRParams(lambda_e=1.0, entropy_form="code")).prediction_entropy
    sure, unsure = torch.tensor([[100.0] + [0.0] * 9]), torch.zeros(1, 10)
    p = math.e / (math.e + 9)
    assert (
        code(sure, unsure).item()
        == pytest.approx(-p * math.log(p) - (1 - p) * math.log((1 - p) / 9), rel=1e-4)
        == pytest.approx(2.2288, abs=1e-3)
    )
    assert code(unsure, sure).item() == pytest.approx(math.log(10), rel=1e-5)


def test_second_view_costs_one_scoring_pass_and_is_reproducible(
    make_client, make_ctx, initial_vector
):
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1)
    client = make_client(num_samples=25)
    moved = visit(client, ctx, initial_vector)
    assert (client.samples_trained, client.samples_scored) == (50, 50)
    assert torch.equal(moved, visit(make_client(num_samples=25), ctx, initial_vector))
    assert not torch.equal(
        moved, visit(make_client(num_samples=25), ctx, initial_vector, gamma=4.0)
    ), "after warm-up gamma matters"


def test_first_round_has_no_agreement_term(make_client, make_ctx, initial_vector):
    ctx = make_ctx(round=0, lr=0.1)
    assert torch.equal(
        visit(make_client(), ctx, initial_vector),
        visit(make_client(), ctx, initial_vector, gamma=4.0),
    )


@pytest.mark.parametrize("params", [{"lambda_e": 0.6}, {"lambda_e": 0.6, "entropy_form": "code"}])
def test_entropy_term_trains(params, make_client, make_ctx, initial_vector):
    ctx = make_ctx(round=7, lr=0.1)
    with_entropy = visit(make_client(labels=[3]), ctx, initial_vector, **params)
    assert torch.isfinite(with_entropy).all()
    assert not torch.equal(with_entropy, visit(make_client(labels=[3]), ctx, initial_vector))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("entropy_form", "both"),
        ("gamma", -1.0),
        ("lambda_e", -1.0),
        ("temperature", 0.0),
        ("sharpen_temperature", 0.0),
        ("warmup_rounds", -0.1),
    ],
)
def test_illegal_parameters_are_named(key, value):
    with pytest.raises(ValueError, match=rf"^method\.{key}=.* is not legal; legal: "):
        FedLSRParams(**{key: value})
