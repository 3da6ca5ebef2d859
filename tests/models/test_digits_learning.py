"""digits_cnn is meant to learn the 8x8 digits in seconds."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from benchmarks.models import build


def test_digits_cnn_learns_clean_digits() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator)
    train, test = order[:1437], order[1437:]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build("digits_cnn", 10, (1, 8, 8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(15):
        for batch in train[torch.randperm(len(train), generator=generator)].split(32):
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (network(images[test]).argmax(1) == labels[test]).double().mean()
    assert accuracy > 0.95
