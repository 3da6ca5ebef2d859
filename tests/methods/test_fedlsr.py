"""FedLSR: the loss of two views by hand, the forms of the entropy and the second view."""

import math

import pytest
import torch
from method_helpers import run_local_update

from methods.fedlsr import FedLSR, FedLSRParams, prediction_entropy, two_view_loss

LN3 = math.log(3)
DEFAULTS = FedLSRParams()


def update(client, ctx, vector, **params):
    """Parameter vector after a local update."""
    return run_local_update(FedLSR(FedLSRParams(**params)), client, vector, ctx).models["model"]


def test_loss_of_two_views_by_hand():
    """Logits (ln 3, 0) and (0, ln 3): p = (3/4, 1/4) and (1/4, 3/4).

    With m = 1, p^2 normalized is (9/10, 1/10): ln(1 + e^-0.8) for label 0. With m = 1/2 the mixed
    prediction is uniform: ln 2. At T = 1/3 the views are (27/28, 1/28) and (1/28, 27/28), so
    JS = ln 2 - H(1/28), divided by two classes.
    """
    views, labels = (torch.tensor([[LN3, 0.0]]), torch.tensor([[0.0, LN3]])), torch.tensor([0])
    entropy = -(27 / 28 * math.log(27 / 28) + 1 / 28 * math.log(1 / 28))
    first_only = two_view_loss(*views, labels, 1.0, 0.0, DEFAULTS).item()
    assert first_only == pytest.approx(math.log(1 + math.exp(-0.8)))
    mixed = two_view_loss(*views, labels, 0.5, 0.4, DEFAULTS).item()
    assert mixed == pytest.approx(math.log(2) + 0.4 * (math.log(2) - entropy) / 2, rel=1e-5)


def test_equal_views_have_no_divergence():
    logits, labels = torch.randn(4, 10, generator=torch.Generator().manual_seed(5)), torch.arange(4)
    without, weighted = (
        two_view_loss(logits, logits, labels, 0.3, weight, DEFAULTS) for weight in (0.0, 5.0)
    )
    assert torch.allclose(weighted, without)


def test_divergence_has_gradients_for_both_views():
    first = torch.tensor([[0.5, 0.0]], requires_grad=True)
    second = torch.tensor([[0.0, 0.5]], requires_grad=True)
    without, weighted = (
        two_view_loss(first, second, torch.tensor([0]), 0.5, weight, DEFAULTS)
        for weight in (0.0, 1.0)
    )
    (weighted - without).backward()
    assert first.grad[0, 0] > 0 > second.grad[0, 0]


def test_fixed_entropy():
    """Mean of the entropies of (3/4, 1/4) and of the uniform distribution."""
    value = prediction_entropy(torch.tensor([[LN3, 0.0]]), torch.zeros(1, 2), DEFAULTS).item()
    assert value == pytest.approx((0.562335 + math.log(2)) / 2, rel=1e-5)


def test_entropy_of_the_released_code():
    """Entropy of a softmax of the first view's probabilities.

    With 10 classes it is between 2.2288 (confident, softmax(1, 0, ..., 0)) and ln 10 = 2.3026.
    """
    params = FedLSRParams(entropy_form="code")
    confident, uniform = torch.tensor([[100.0] + [0.0] * 9]), torch.zeros(1, 10)
    p = math.e / (math.e + 9)
    expected = -p * math.log(p) - (1 - p) * math.log((1 - p) / 9)
    assert expected == pytest.approx(2.2288, abs=1e-3)
    found = prediction_entropy(confident, uniform, params).item()
    assert found == pytest.approx(expected, rel=1e-4)
    assert prediction_entropy(uniform, confident, params).item() == pytest.approx(math.log(10))


def test_second_view_is_counted_as_scored_and_reproducible(make_client, make_ctx, initial_vector):
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1)
    client = make_client(num_samples=25)
    vector = update(client, ctx, initial_vector)
    assert (client.samples_trained, client.samples_scored) == (50, 50)
    assert torch.equal(vector, update(make_client(num_samples=25), ctx, initial_vector))


@pytest.mark.parametrize(("round", "has_effect"), [(0, False), (7, True)])
def test_gamma_has_an_effect_after_the_first_round(
    make_client, make_ctx, initial_vector, round, has_effect
):
    ctx = make_ctx(round=round, lr=0.1)
    small, large = (update(make_client(), ctx, initial_vector, gamma=g) for g in (0.4, 4.0))
    assert torch.equal(small, large) != has_effect


@pytest.mark.parametrize("form", ["fixed", "code"])
def test_entropy_term_changes_training(form, make_client, make_ctx, initial_vector):
    ctx = make_ctx(round=7, lr=0.1)
    without = update(make_client(labels=[3]), ctx, initial_vector)
    vector = update(make_client(labels=[3]), ctx, initial_vector, lambda_e=0.6, entropy_form=form)
    assert torch.isfinite(vector).all()
    assert not torch.equal(vector, without)
