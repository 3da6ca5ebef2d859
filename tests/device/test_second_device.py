"""Tests of the second device: memory, copies, arithmetic, training, random numbers, processes."""

import copy
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import second_device
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import models
from methods.core.flat_model import FlatModel

DEVICE = "fln"
SHAPE = (3, 32, 32)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_same_bytes(actual: Tensor, expected: Tensor) -> None:
    """Equality of shape, type and bytes, so that 0.0 differs from -0.0 and NaN equals NaN."""
    actual, expected = actual.detach().cpu().contiguous(), expected.detach().contiguous()
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.numpy().tobytes() == expected.numpy().tobytes()


# Memory


def test_factories_allocate_on_the_device() -> None:
    made = [
        torch.empty(2, 3, device=DEVICE),
        torch.empty_strided((2, 3), (1, 2), device=DEVICE),
        torch.zeros(2, 3, device=DEVICE),
        torch.full((2, 3), 7.0, device=DEVICE),
        torch.arange(6, device=DEVICE).view(2, 3),
        torch.tensor([[1, 2, 3], [4, 5, 6]], device=DEVICE),
        torch.ones(2, 3).to(DEVICE),
    ]
    assert {str(tensor.device) for tensor in made} == {"fln:0"}
    assert {tuple(tensor.shape) for tensor in made} == {(2, 3)}
    assert made[1].stride() == (1, 2)


def test_torch_reports_the_device_as_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE)
    assert torch.accelerator.device_count() == 1
    with pytest.raises(RuntimeError, match="one device"):
        torch.accelerator.set_device_index(1)


def test_memory_statistics_include_results_of_operators() -> None:
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    tensor = torch.zeros(1000, device=DEVICE)
    doubled = tensor * 2
    assert torch.accelerator.memory_allocated() == before + 8000
    del tensor, doubled
    assert torch.accelerator.memory_allocated() == before
    assert torch.accelerator.max_memory_allocated() == before + 8000


def test_allocation_above_the_limit_is_out_of_memory() -> None:
    tensor = torch.zeros(1000, device=DEVICE)
    used = torch.accelerator.memory_allocated()
    with second_device.memory_limit(used + 2000):
        with pytest.raises(torch.OutOfMemoryError, match="fln out of memory"):
            torch.empty(1000, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError, match="fln out of memory"):
            tensor.exp()
    assert torch.accelerator.memory_allocated() == used
    tensor.exp()


def test_operators_resize_their_output() -> None:
    out = torch.empty(0, device=DEVICE)
    a = random(40, 5)
    assert torch.mm(a.to(DEVICE), a.to(DEVICE).t(), out=out) is out
    assert_same_bytes(out, torch.mm(a, a.t()))
    assert_same_bytes(out.resize_(3, 5), torch.mm(a, a.t()).flatten()[:15].view(3, 5))


# Copies


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_copies_keep_values(dtype: torch.dtype) -> None:
    tensor = (10 * random(4, 5)).abs().to(dtype)
    assert torch.equal(tensor.to(DEVICE).cpu(), tensor)
    assert torch.equal(tensor.t().to(DEVICE).cpu(), tensor.t())
    assert torch.equal(tensor.to(DEVICE).clone().cpu(), tensor)
    assert torch.equal(tensor.to(DEVICE, torch.float32).cpu(), tensor.float())


def test_copies_do_not_share_memory_with_the_host() -> None:
    host = torch.ones(3)
    device = host.to(DEVICE)
    device.zero_()
    assert host.tolist() == [1, 1, 1]
    back = device.cpu()
    back.fill_(5)
    assert device.tolist() == [0, 0, 0]


def test_device_tensors_have_no_numpy_array() -> None:
    with pytest.raises(TypeError, match="convert fln"):
        torch.ones(3, device=DEVICE).numpy()


def test_deep_copies_are_independent() -> None:
    module = nn.Linear(3, 2).to(DEVICE)
    twin = copy.deepcopy(module)
    expected = module.weight.detach().cpu()
    with torch.no_grad():
        twin.weight.zero_()
    assert_same_bytes(module.weight, expected)


def test_host_memory_can_be_pinned() -> None:
    pinned = torch.ones(8).pin_memory()
    assert pinned.is_pinned() and pinned[3:].is_pinned() and not torch.ones(8).is_pinned()
    assert pinned.to(DEVICE, non_blocking=True).sum().item() == 8


# Views


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1],
        lambda t: t[:, ::2],
        lambda t: t.t(),
        lambda t: t.view(-1),
        lambda t: t.reshape(2, 12),
        lambda t: t.unfold(1, 3, 2),
        lambda t: t.split(2)[1],
        lambda t: t.unbind()[0],
        lambda t: t.diagonal(),
        lambda t: t.as_strided((3,), (2,), 4),
        lambda t: t.detach(),
        lambda t: t.view(torch.int32),
    ],
)
def test_views_share_memory(view: Callable[[Tensor], Tensor]) -> None:
    host = random(4, 6)
    device = host.to(DEVICE)
    with second_device.counting() as counts:
        shared = view(device)
    assert counts == second_device.Counts()
    assert shared.untyped_storage().data_ptr() == device.untyped_storage().data_ptr()
    shared.fill_(9)
    view(host).fill_(9)
    assert_same_bytes(device, host)


def test_expanded_tensors_are_views() -> None:
    device = torch.ones(4, 1, device=DEVICE)
    expanded = device.expand(4, 3)
    device.fill_(2)
    assert expanded.tolist() == [[2, 2, 2]] * 4


# Arithmetic

OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "scalar arithmetic": lambda x: 1 - (x * 2 + 0.3) / 7,
    "broadcasting": lambda x: x - x.mean(1, keepdim=True) / x.std(0),
    "in-place": lambda x: x.clone().mul_(0.9).add_(x, alpha=0.1).clamp_(-1, 1),
    "addcmul": lambda x: x.clone().addcmul_(x, x[0], value=0.5),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(1)),
    "matrix products": lambda x: (x @ x.t(), torch.addmm(x[:, 0], x, x.t()), x.norm()),
    "comparison": lambda x: torch.where(x > 0.5, x, torch.zeros_like(x)),
    "reductions": lambda x: (
        x.sum(),
        x.amax(1),
        x.var(0),
        x.median(),
        x.quantile(0.3),
        x.cumsum(1),
    ),
    "sorting": lambda x: (x.topk(3), x.argsort(stable=True), x.sort(descending=True), x.argmax(1)),
    "gathering": lambda x: (x.gather(1, x.argsort()), x.index_select(0, x.argsort(0)[:, 0])),
    "indexing": lambda x: (x[x.argsort(0)[:, 1]], x[x > 0], x.nonzero(), x[2, 3]),
    "writing by index": lambda x: x.clone().index_put_((x.argsort(0)[:, 0],), x[0]),
    "writing by mask": lambda x: _assign(x.clone(), x > 0, 4.0),
    "scattering": lambda x: torch.zeros_like(x).scatter_(1, x.argsort(), x),
    "counting": lambda x: (torch.bincount(x.argmax(1), minlength=7), torch.unique(x.round())),
    "one-hot": lambda x: F.one_hot(x.argmax(1), 12),
    "distances": lambda x: torch.cdist(x.double(), x.double()),
    "joining": lambda x: (torch.cat([x, x]), torch.stack([x, -x]), x.flip(0), x.roll(2, 1)),
    "casts": lambda x: ((x * 40).to(torch.uint8), x.double(), x.bfloat16().float()),
    "repetition": lambda x: (x.repeat(2, 1), x.repeat_interleave(2, 0)),
    "foreach": lambda x: torch._foreach_add([x, x[0]], [x, x[1]], alpha=3),
    "losses": lambda x: (
        F.cross_entropy(x, x.argmax(1)),
        F.kl_div(x, x.softmax(1), reduction="sum"),
    ),
    "images": lambda x: _image_operators(x),
    "random numbers": lambda x: (torch.empty_like(x).normal_(), F.dropout(x, 0.25)),
}


def _assign(x: Tensor, mask: Tensor, value: float) -> Tensor:
    x[mask] = value
    return x


def _image_operators(x: Tensor) -> tuple[Tensor, ...]:
    images = x.reshape(1, 1, *x.shape).expand(2, 3, -1, -1)
    grid = F.affine_grid(x[:2, :6].reshape(2, 2, 3), [2, 3, 8, 8], align_corners=False)
    return (
        F.grid_sample(images, grid, align_corners=False),
        F.max_pool2d(images, 2),
        F.avg_pool2d(images, 2),
        F.adaptive_avg_pool2d(images, 1),
        F.unfold(images, 3),
        F.pad(images, (1, 1, 1, 1), mode="reflect"),
        F.interpolate(images, scale_factor=2, mode="bilinear"),
        F.conv2d(images, images[:, :, :3, :3], padding=1),
    )


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in _tensors(part)]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_the_bytes_of_the_cpu(name: str) -> None:
    x = random(8, 12)
    torch.manual_seed(5)  # both generators
    expected, actual = _tensors(OPERATORS[name](x)), _tensors(OPERATORS[name](x.to(DEVICE)))
    for one, other in zip(actual, expected, strict=True):
        assert one.device.type == DEVICE
        assert_same_bytes(one, other)


def test_fused_optimizer_writes_its_arguments() -> None:
    def update(x: Tensor) -> Tensor:
        weights, momentum = x.clone(), torch.zeros_like(x)
        for step in range(2):
            torch._fused_sgd_(
                [weights],
                [x],
                [momentum],
                weight_decay=0.1,
                momentum=0.9,
                lr=0.05,
                dampening=0,
                nesterov=False,
                maximize=False,
                is_first_step=step == 0,
            )
        return weights

    assert_same_bytes(update(random(30).to(DEVICE)), update(random(30)))


# Training


def train(model: str, device: str, steps: int, batch: int) -> FlatModel:
    """A flat model after some steps of SGD, its module moved before it is flattened."""
    torch.manual_seed(3)
    module = models.build(model, 10, SHAPE).to(device)
    flat = FlatModel(module)
    torch.manual_seed(4)  # dropout
    for step in range(steps):
        images, labels = random(batch, *SHAPE, seed=step), torch.arange(batch) % 10
        flat.grad.zero_()
        F.cross_entropy(flat(images.to(device)), labels.to(device)).backward()
        flat.weights.sub_(flat.grad, alpha=0.05)
    return flat


@pytest.mark.parametrize(("model", "batch"), [("lenet5", 10), ("cnn9", 3), ("resnet18", 3)])
def test_training_gives_the_bytes_of_the_cpu(model: str, batch: int) -> None:
    actual, expected = train(model, DEVICE, 2, batch), train(model, "cpu", 2, batch)
    assert actual.vector.device.type == DEVICE
    assert_same_bytes(actual.grad, expected.grad)
    assert_same_bytes(actual.vector, expected.vector)
    images = random(4, *SHAPE, seed=9)
    with torch.no_grad():
        assert_same_bytes(actual.eval()(images.to(DEVICE)), expected.eval()(images))


def test_batch_norm_updates_its_running_statistics() -> None:
    norms = [nn.BatchNorm2d(3).to(device) for device in ("cpu", DEVICE)]
    for norm in norms:
        norm(random(4, 3, 5, 5).to(norm.weight.device))
    assert norms[1].running_mean.abs().sum().item() > 0
    assert_same_bytes(norms[1].running_mean, norms[0].running_mean)
    assert_same_bytes(norms[1].running_var, norms[0].running_var)
    assert norms[1].num_batches_tracked.item() == 1


def test_backward_runs_on_a_device_thread() -> None:
    threads = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            threads.append(threading.get_ident())
            return grad

    for device in (DEVICE, "cpu"):
        Identity.apply(torch.ones(2, device=device, requires_grad=True)).sum().backward()
    assert threads[0] != threading.get_ident() == threads[1]


def test_autocast_has_the_lists_of_cuda() -> None:
    x = random(4, 8).to(DEVICE)
    linear = nn.Linear(8, 3).to(DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        logits = linear(x)
        assert logits.dtype == torch.bfloat16
        loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.int64, device=DEVICE))
        assert loss.dtype == logits.softmax(1).dtype == torch.float32
    loss.backward()
    assert linear.weight.grad.dtype == torch.float32


# Random numbers


def test_dropout_draws_from_the_generator_of_the_device() -> None:
    x = torch.ones(200, device=DEVICE)
    torch.manual_seed(1)
    first = F.dropout(x)
    torch.default_generator.manual_seed(1)
    assert not torch.equal(F.dropout(x), first)
    torch.get_device_module(DEVICE).manual_seed(1)
    assert torch.equal(F.dropout(x), first)


def test_state_of_the_generator_can_be_restored() -> None:
    device = torch.get_device_module(DEVICE)
    state = device.get_rng_state()
    first = torch.randn(5, device=DEVICE)
    device.set_rng_state(state)
    assert torch.equal(torch.randn(5, device=DEVICE), first)


def test_generators_belong_to_a_device() -> None:
    own = torch.Generator(DEVICE).manual_seed(2)
    host = torch.Generator().manual_seed(2)
    drawn = torch.randperm(9, generator=own, device=DEVICE)
    assert drawn.tolist() == torch.randperm(9, generator=host).tolist()
    with pytest.raises(RuntimeError, match="Expected a 'fln' device type for generator"):
        torch.randperm(9, generator=host, device=DEVICE)


# Processes


def _sum_in_process() -> float:
    weights = torch.ones(3, device=DEVICE, requires_grad=True)
    (weights * 2).sum().backward()
    return weights.grad.sum().item()


def test_spawned_processes_have_the_device() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(_sum_in_process).result() == 6


def test_started_programs_have_the_device() -> None:
    program = "import torch; print(torch.ones(3, device='fln').sum().item())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "3.0\n"
