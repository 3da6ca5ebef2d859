"""Symmetric cross-entropy: closed form and bounds."""

import math

import pytest
import torch
from method_helpers import first_batch, make_task

from methods.symmetric_ce import SymmetricCE, SymmetricCEParams, log_labels, reverse_cross_entropy
from methods.toolkit.losses import one_hot


def test_reverse_cross_entropy_in_closed_form():
    """y_c is 1e-4 off the label and 1 on it, so the loss is 9.2103 (1 - p_y)."""
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(50) % 10
    p_y = logits.softmax(1)[torch.arange(50), labels]
    value = reverse_cross_entropy(logits, log_labels(labels, 10))
    assert value.item() == pytest.approx(9.2103 * (1 - p_y).mean().item(), rel=1e-4)
    soft = log_labels(one_hot(labels, 10), 10)
    assert torch.allclose(reverse_cross_entropy(logits, soft), value)


@pytest.mark.parametrize(
    ("label", "expected"), [(1, -math.log(1e-4)), (0, 9 * 1e-7 * -math.log(1e-4))]
)
def test_confident_prediction_has_a_bounded_loss(label, expected):
    """Wrong class: 9.2103. Right class: nine probabilities clamped to 1e-7."""
    logits = torch.tensor([[1000.0] + [0.0] * 9])
    value = reverse_cross_entropy(logits, log_labels(torch.tensor([label]), 10))
    assert value.item() == pytest.approx(expected, rel=1e-3)


def test_batch_loss_weights_both_terms(make_client, make_ctx, initial_vector):
    client, ctx = make_client(num_samples=10), make_ctx()
    model = client.load_model(initial_vector)
    batch = first_batch(client, 10, ctx.generator("batches"))
    logits = model(batch.x)
    forward = torch.nn.functional.cross_entropy(logits, batch.y)
    targets = log_labels(batch.y, 10)
    expected = 6.0 * forward + 0.1 * reverse_cross_entropy(logits, targets)
    method = SymmetricCE(SymmetricCEParams(alpha=6.0, beta=0.1))
    task = make_task(client, initial_vector, ctx)
    method.before_epoch(0, batch.index, task)
    assert torch.allclose(method.batch_loss(model, batch, task), expected)
