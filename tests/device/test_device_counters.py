"""Tests of the counters of the second device, and of its check that tensors lie on one device."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import second_device
import torch
import torch.nn.functional as F
from second_device import Counts, counting
from torch import Tensor, nn

from benchmarks import models

DEVICE = "fln"


def counted(function: Callable[[], Any]) -> tuple[int, int, int, int]:
    """(launches, uploads, downloads, scalar reads) of a call."""
    with counting() as counts:
        function()
    return counts.launches, counts.uploads, counts.downloads, counts.scalar_reads


@pytest.fixture
def x() -> Tensor:
    return torch.arange(12.0).view(3, 4).to(DEVICE)


def test_elementwise_operators_are_one_launch(x: Tensor) -> None:
    assert counted(lambda: x + x) == (1, 0, 0, 0)
    assert counted(lambda: x.mul_(2)) == (1, 0, 0, 0)
    assert counted(lambda: x * 2 + 1) == (2, 0, 0, 0)
    assert counted(lambda: torch.add(x, x, out=torch.empty_like(x))) == (1, 0, 0, 0)


def test_allocations_are_no_launch_but_filling_is(x: Tensor) -> None:
    assert counted(lambda: torch.empty(3, device=DEVICE)) == (0, 0, 0, 0)
    assert counted(lambda: torch.empty_like(x)) == (0, 0, 0, 0)
    assert counted(lambda: x.new_empty(3).resize_(5)) == (0, 0, 0, 0)
    assert counted(lambda: torch.zeros_like(x)) == (1, 0, 0, 0)
    assert counted(lambda: torch.full((3,), 2.0, device=DEVICE)) == (1, 0, 0, 0)


def test_copies_within_the_device_are_launches(x: Tensor) -> None:
    assert counted(lambda: x.clone()) == (1, 0, 0, 0)
    assert counted(lambda: x.double()) == (1, 0, 0, 0)
    assert counted(lambda: x.t().contiguous()) == (1, 0, 0, 0)
    assert counted(lambda: x.contiguous()) == (0, 0, 0, 0)
    assert counted(lambda: x.reshape(4, 3)) == (0, 0, 0, 0)


def test_transfers_are_counted_by_direction(x: Tensor) -> None:
    assert counted(lambda: torch.ones(3).to(DEVICE)) == (0, 1, 0, 0)
    assert counted(lambda: torch.tensor([1, 2], device=DEVICE)) == (0, 1, 0, 0)
    assert counted(lambda: x[0].copy_(torch.ones(4))) == (0, 1, 0, 0)
    assert counted(lambda: x.cpu()) == (0, 0, 1, 0)
    assert counted(lambda: x.tolist()) == (0, 0, 1, 0)
    assert counted(lambda: torch.empty(3, 4).copy_(x)) == (0, 0, 1, 0)
    with counting() as counts:
        torch.ones(3).to(DEVICE).cpu()
    assert counts.transfers == 2


def test_values_read_by_the_host_are_scalar_reads(x: Tensor) -> None:
    assert counted(lambda: x[0, 1].item()) == (0, 0, 0, 1)
    assert counted(lambda: float(x.sum())) == (1, 0, 0, 1)
    assert counted(lambda: bool((x > 3).any())) == (2, 0, 0, 1)
    assert counted(lambda: torch.equal(x, x)) == (1, 0, 0, 1)


def test_results_of_unknown_size_are_scalar_reads(x: Tensor) -> None:
    mask = x > 3
    assert counted(lambda: mask.nonzero()) == (1, 0, 0, 1)
    assert counted(lambda: x[mask]) == (1, 0, 0, 1)
    assert counted(lambda: x.masked_select(mask)) == (1, 0, 0, 1)
    index = mask[:, 0].long()
    assert counted(lambda: x[index]) == (1, 0, 0, 0)
    assert counted(lambda: x.masked_fill(mask, 2)) == (2, 0, 0, 0)


def test_host_index_is_an_upload(x: Tensor) -> None:
    index, rows = torch.tensor([2, 0]), x[:2].clone()
    assert counted(lambda: x[index]) == (1, 1, 0, 0)
    assert counted(lambda: torch.ops.aten.index(x, [index])) == (1, 1, 0, 0)
    assert counted(lambda: x.__setitem__(index, rows)) == (1, 1, 0, 0)
    assert torch.ops.aten.index(x, [index]).tolist() == x.cpu()[index].tolist()


def test_multi_tensor_operators_are_one_launch() -> None:
    tensors = [torch.ones(n, device=DEVICE) for n in (2, 3, 4)]
    assert counted(lambda: torch._foreach_mul_(tensors, 3.0)) == (1, 0, 0, 0)
    assert counted(lambda: torch._foreach_copy_(tensors, tensors)) == (1, 0, 0, 0)
    assert [tensor.sum().item() for tensor in tensors] == [6, 9, 12]


def test_operators_are_counted_by_name(x: Tensor) -> None:
    with counting() as counts:
        (x + x + x).exp().sum()
    names = Counter({"aten::add": 2, "aten::exp": 1, "aten::sum": 1})
    assert counts == Counts(4, operators=names)


def test_forward_and_backward_of_lenet5_are_counted() -> None:
    module = models.build("lenet5", 10, (3, 32, 32)).to(DEVICE)
    images, labels = torch.ones(4, 3, 32, 32, device=DEVICE), torch.arange(4, device=DEVICE)
    with counting() as counts:
        loss = F.cross_entropy(module(images), labels)
    # 2 convolutions, 2 poolings, 4 ReLU, 3 linear layers, log-softmax and negative log-likelihood
    assert counts.launches == 13
    with counting() as counts:
        loss.backward()
    # 2 convolutions, 2 poolings, 4 ReLU, 2 for the loss, gradient of the loss set to 1
    # 3 linear layers: 2 matrix products and the sum over the bias each
    assert counts.launches == 2 + 2 + 4 + 2 + 1 + 9
    assert counts.transfers == counts.scalar_reads == 0


# Tensors on two devices

HOST = torch.ones(3, 4)

REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x + HOST,
    "sum, host first": lambda x: HOST + x,
    "in-place": lambda x: x.clone().add_(HOST),
    "in-place on the host": lambda x: HOST.clone().add_(x),
    "in-place on a host scalar": lambda x: torch.tensor(1.0).add_(x.sum()),
    "output on the host": lambda x: torch.add(x, x, out=torch.empty(3, 4)),
    "matrix product": lambda x: x @ HOST.t(),
    "concatenation": lambda x: torch.cat([x, HOST]),
    "stack": lambda x: torch.stack([x, HOST]),
    "mask": lambda x: torch.where(HOST > 0, x, x),
    "masked_fill": lambda x: x.masked_fill(HOST > 0, 2),
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(1, torch.zeros(3, 1, dtype=torch.int64)),
    "scatter_": lambda x: x.clone().scatter_(1, torch.zeros(3, 1, dtype=torch.int64), 1.0),
    "values of an index": lambda x: x.clone().index_put_((torch.tensor([0]),), HOST[:1]),
    "labels": lambda x: F.cross_entropy(x, torch.zeros(3, dtype=torch.int64)),
    "module": lambda x: nn.Linear(4, 2)(x),
    "convolution": lambda x: F.conv1d(x[None], torch.ones(1, 3, 2)),
    "batch norm": lambda x: nn.BatchNorm1d(4)(x),
    "foreach": lambda x: torch._foreach_add([x], [HOST]),
    "scalar of a reduction": lambda x: torch.addmm(torch.tensor(1.0), x, x.t()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_on_two_devices_are_refused(name: str, x: Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)(expected|same) .*device"):
        REFUSED[name](x)


def test_host_scalars_take_part_in_elementwise_operators(x: Tensor) -> None:
    two = torch.tensor(2.0)
    expected = x.cpu() * 2
    with counting() as counts:
        results = [x * two, two * x, x.clone().mul_(two), torch.where(x > -1, x, two) * two]
    assert counts.transfers == counts.scalar_reads == 0
    assert all(torch.equal(result.cpu(), expected) for result in results)


def test_refused_operators_are_not_counted(x: Tensor) -> None:
    with counting() as counts, pytest.raises(RuntimeError):
        x + HOST
    assert counts == second_device.Counts()
