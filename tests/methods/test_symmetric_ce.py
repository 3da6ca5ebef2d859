"""Symmetric cross-entropy: its closed form, and FedAvg as a special case."""

import math

import pytest
import torch

from methods.core.contract import Payload
from methods.fedavg import FedAvg
from methods.symmetric_ce import SymmetricCE, SymmetricCEParams, reverse_cross_entropy
from methods.toolkit.losses import one_hot


def test_reverse_cross_entropy_in_closed_form():
    """-sum_c p_c ln y_c with y_c = 1e-4 off the label and 1 on it: -ln(1e-4) (1 - p_y) = 9.2103 (1 - p_y)."""
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(50) % 10
    p_y = logits.softmax(1)[torch.arange(50), labels]
    assert reverse_cross_entropy(logits, labels).item() == pytest.approx(
        9.2103 * (1 - p_y).mean().item(), rel=1e-4
    )
    assert torch.allclose(
        reverse_cross_entropy(logits, one_hot(labels, 10)), reverse_cross_entropy(logits, labels)
    )


def test_it_stays_finite_and_bounded():
    """A model that is sure of a wrong class costs 9.2103, of the right one 9 clipped probabilities of 1e-7."""
    sure = torch.tensor([[1000.0] + [0.0] * 9])
    assert reverse_cross_entropy(sure, torch.tensor([1])).item() == pytest.approx(
        -math.log(1e-4), rel=1e-4
    )
    assert reverse_cross_entropy(sure, torch.tensor([0])).item() == pytest.approx(
        9 * 1e-7 * 9.2103, rel=1e-3
    )


def test_batch_loss_weighs_both_terms(make_client, make_ctx, initial_vector):
    client, ctx = make_client(num_samples=10), make_ctx(batch_size=10)
    net = client.network(initial_vector)
    batch = next(client.batches(10, "train", ctx.generator("batches"), ctx.generator("augment")))
    logits = net(batch.x)
    expected = 6.0 * torch.nn.functional.cross_entropy(
        logits, batch.y
    ) + 0.1 * reverse_cross_entropy(logits, batch.y)
    assert torch.allclose(
        SymmetricCE(SymmetricCEParams(alpha=6.0, beta=0.1)).batch_loss(net, batch, ctx), expected
    )


def test_null_parameters_are_fedavg(make_client, make_ctx, initial_vector):
    ctx = make_ctx(local_epochs=2, lr=0.1)
    payload = Payload({"model": initial_vector}, {})
    method = SymmetricCE(SymmetricCEParams(**SymmetricCE.fedavg_equivalent_params))
    assert torch.equal(
        method.local_update(make_client(), payload, ctx).models["model"],
        FedAvg(None).local_update(make_client(), payload, ctx).models["model"],
    )


@pytest.mark.parametrize("key", ["alpha", "beta"])
def test_illegal_parameters_are_named(key):
    with pytest.raises(ValueError, match=rf"^method\.{key}=-1 is not legal; legal: at least 0$"):
        SymmetricCEParams(**{key: -1})
