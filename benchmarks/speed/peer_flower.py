"""The reference work in Flower: simulation with two client processes, evaluation on the server."""

import os
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.speed.peers import answer, reference_work

ROUNDS = 1_000_000
PROCESSES = 2


@cache
def model() -> nn.Module:
    return reference_work().build_module()


def train(message: Message, context: Context) -> Message:
    work, module = reference_work(), model()
    client = int(context.node_config["partition-id"])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=work.lr, momentum=work.momentum)
    for _ in range(work.epochs):
        for x, y in work.batches(client):
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(work.client_indices[client])})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@torch.no_grad()
def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
    work, module = reference_work(), model()
    torch.set_num_threads(PROCESSES)  # the client processes are idle
    module.load_state_dict(arrays.to_torch_state_dict())
    module.eval()
    images = range(len(work.dataset.test))
    correct = sum(int((module(x).argmax(1) == y).sum()) for x, y in work.test_batches(images))
    if not answer(correct / len(images)):
        os._exit(0)
    return MetricRecord({"accuracy": correct / len(images)})


def serve(grid: Grid, context: Context) -> None:
    work = reference_work()
    fraction = work.clients_per_round / len(work.client_indices)
    strategy = FedAvg(fraction_train=fraction, fraction_evaluate=0.0)
    arrays = ArrayRecord(model().state_dict())
    strategy.start(grid, initial_arrays=arrays, num_rounds=ROUNDS, evaluate_fn=evaluate)


def main() -> None:
    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(train)
    server_app.main()(serve)
    resources: dict[str, Any] = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": PROCESSES, "include_dashboard": False},
    }
    clients = len(reference_work().client_indices)
    run_simulation(server_app, client_app, clients, backend_config=resources)
