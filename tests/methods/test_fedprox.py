"""FedProx against values by hand."""

import pytest
import torch
from method_helpers import run_local_update
from torch import nn

from methods.core.flat_model import FlatModel
from methods.fedprox import FedProx, FedProxParams


def penalty_grad(form, drift):
    """Gradient of the penalty with mu = 0.3 after the weights have moved by `drift`."""
    model = FlatModel(nn.Linear(2, 1, bias=False)).load(torch.tensor([1.0, 2.0]))
    model.weights.add_(torch.tensor(drift))
    FedProx(FedProxParams(mu=0.3, form=form)).add_penalty_grad(model, None, None)
    return model.grad


@pytest.mark.parametrize(
    ("form", "expected"), [("squared", [0.3 * 3.0, 0.3 * 4.0]), ("norm", [0.3 * 0.6, 0.3 * 0.8])]
)
def test_penalty_gradient(form, expected):
    """For w - w_t = (3, 4): mu (3, 4) with the squared form, mu (3, 4) / 5 with the norm."""
    assert torch.allclose(penalty_grad(form, [3.0, 4.0]), torch.tensor(expected))


@pytest.mark.parametrize("form", ["squared", "norm"])
def test_penalty_is_zero_without_drift(form):
    assert torch.equal(penalty_grad(form, [0.0, 0.0]), torch.zeros(2))


def test_drift_decreases_with_mu(make_client, make_ctx, initial_vector):
    drifts = []
    for mu in (0.0, 1.0, 10.0):
        method, ctx = FedProx(FedProxParams(mu=mu)), make_ctx(local_epochs=5, lr=0.05)
        reply = run_local_update(method, make_client(), initial_vector, ctx)
        drifts.append((reply.models["model"] - initial_vector).norm().item())
    assert drifts[0] > drifts[1] > drifts[2]
