"""FedProx against numbers derived by hand."""

import pytest
import torch
from torch import nn

from methods.core.flat_model import FlatModel
from methods.fedprox import FedProx, FedProxParams


@pytest.mark.parametrize(
    ("form", "expected"), [("squared", [0.3 * 3.0, 0.3 * 4.0]), ("norm", [0.3 * 0.6, 0.3 * 0.8])]
)
def test_penalty_gradient(form, expected):
    """w - w_t = (3, 4): the squared form pulls with mu (3, 4), the norm form with mu (3, 4) / 5."""
    net = FlatModel(nn.Linear(2, 1, bias=False))
    net.load(torch.tensor([1.0, 2.0]))
    net.weights.add_(torch.tensor([3.0, 4.0]))
    FedProx(FedProxParams(mu=0.3, form=form)).penalty(net, None, None)
    assert torch.allclose(net.grad, torch.tensor(expected))


@pytest.mark.parametrize("form", ["squared", "norm"])
def test_penalty_is_zero_at_the_start(form):
    net = FlatModel(nn.Linear(2, 1, bias=False))
    net.load(torch.tensor([1.0, 2.0]))
    FedProx(FedProxParams(mu=0.3, form=form)).penalty(net, None, None)
    assert torch.equal(net.grad, torch.zeros(2))


def test_strong_pull_keeps_the_model_near_the_start(make_client, make_ctx, initial_vector):
    """After one epoch the drift shrinks as mu grows."""
    from methods.core.contract import Payload

    drifts = []
    for mu in (0.0, 1.0, 10.0):
        client = make_client()
        reply = FedProx(FedProxParams(mu=mu)).local_update(
            client, Payload({"model": initial_vector}, {}), make_ctx(local_epochs=5, lr=0.05)
        )
        drifts.append((reply.models["model"] - initial_vector).norm().item())
    assert drifts[0] > drifts[1] > drifts[2]
