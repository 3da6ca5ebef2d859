"""The frozen world that every method of a seed shares: who holds which samples, and which labels are wrong."""

import hashlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import noise
import partition
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.records.files import atomic_write
from methods.core.errors import UserError


@dataclass(frozen=True)
class Scenario:
    client_indices: list[np.ndarray]  # sample indices of each client
    clean_labels: np.ndarray  # (n,) the data set's own labels
    noise: noise.NoiseRecord
    num_classes: int

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    @property
    def client_sizes(self) -> np.ndarray:
        return np.array([len(part) for part in self.client_indices], dtype=np.int64)

    @property
    def hash(self) -> str:
        """Identity of partition and noise; equal hashes mean that two runs saw the same clients with the same labels."""
        digest = hashlib.sha256()
        for part in self.client_indices:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.astype("<i8").tobytes())
        digest.update(self.noise.labels.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: np.ndarray) -> np.ndarray:
        """(clients, classes) histogram of some labels of the training set."""
        return np.stack(
            [np.bincount(labels[part], minlength=self.num_classes) for part in self.client_indices]
        )

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            parts=np.concatenate(self.client_indices),
            sizes=self.client_sizes,
            noisy_labels=self.noise.labels,
            flipped=self.noise.flipped,
            client_level=self.noise.client_level,
            client_rate=self.noise.client_rate,
            transition=self.noise.transition,
            clean_counts=self.class_counts(self.clean_labels),
        )
        atomic_write(path, buffer.getvalue())


def build_scenario(config: RunConfig, dataset: Dataset) -> Scenario:
    """Partition the training samples by their clean labels, then apply label noise."""
    labels, num_classes, seed = dataset.train_labels, dataset.num_classes, config.seed
    name, params = config.partition.name, config.partition.params
    client_indices = partition.partition_labels(
        name, labels, config.federation.num_clients, seed, params
    )
    noise_clients = partition.clients_for_noise(name, labels, client_indices, seed, params)
    record = noise.apply_noise(
        config.noise.name, labels, noise_clients, num_classes, seed, config.noise.params
    )
    if noise_clients is not client_indices:
        record = noise.pool_noise_record(record, labels, client_indices, num_classes)
    return Scenario(client_indices, labels, record, num_classes)


def describe(config: RunConfig, world: Scenario) -> list[Any]:
    """Tables for the terminal: the scene as a whole, and one row per client."""
    from rich.table import Table

    rates, sizes = world.noise.client_rate, world.client_sizes
    noisy = world.noise.client_level > 0
    whole = Table(show_header=False, box=None, padding=(0, 2))
    whole.add_row(
        "scene",
        f"{config.dataset.name}, {config.partition.name}, {config.noise.name}, seed {config.seed}, hash {world.hash}",
    )
    whole.add_row("convention", world.noise.convention)
    whole.add_row(
        "clients",
        f"{world.num_clients}, {int(noisy.sum())} noisy; {sizes.min()} to {sizes.max()} samples, {int(sizes.sum())} in all",
    )
    held = np.concatenate(world.client_indices)
    whole.add_row(
        "wrong labels",
        f"{100 * world.noise.flipped[held].mean():.2f} % of all, {100 * rates.max():.1f} % on the noisiest client",
    )
    clients = Table(
        "client",
        "samples",
        "classes",
        "level",
        "wrong %",
        "samples per class (true)",
        "samples per class (given)",
    )
    for k, (true, given) in enumerate(
        zip(
            world.class_counts(world.clean_labels),
            world.class_counts(world.noise.labels),
            strict=True,
        )
    ):
        level = f"{world.noise.client_level[k]:.3f}" if noisy[k] else "-"
        counts = (
            " ".join(map(str, row)) if len(row) <= 20 else f"{len(row)} classes"
            for row in (true, given)
        )
        clients.add_row(
            str(k),
            str(sizes[k]),
            str(int((true > 0).sum())),
            level,
            f"{100 * rates[k]:.1f}",
            *counts,
        )
    return [whole, clients]


def draw(world: Scenario, path: Path, title: str) -> None:
    """Two panels: who holds how much of which class (bubbles, wrong labels darker), and every client's share of wrong labels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = min(world.num_clients, 100)
    counts = world.class_counts(world.clean_labels)[:shown]
    figure, (bubbles, bars) = pyplot.subplots(
        2,
        1,
        figsize=(max(6.0, 0.13 * shown + 2), 6),
        height_ratios=(3, 1),
        sharex=True,
        layout="constrained",
    )
    clients, classes = np.nonzero(counts)
    size = 120 * counts[clients, classes] / counts.max()
    points = bubbles.scatter(
        clients,
        classes,
        s=size,
        c=world.noise.client_rate[clients],
        cmap="viridis_r",
        vmin=0,
        vmax=1,
        linewidths=0.3,
        edgecolors="black",
    )
    figure.colorbar(points, ax=bubbles, label="wrong labels of the client")
    bubbles.set(ylabel="true class", title=title, ylim=(-0.7, world.num_classes - 0.3))
    if world.num_classes <= 20:
        bubbles.set_yticks(range(world.num_classes))
    bars.bar(range(shown), 100 * world.noise.client_rate[:shown], color="#3b528b", width=0.8)
    which = (
        f"client (the first {shown} of {world.num_clients})"
        if shown < world.num_clients
        else "client"
    )
    bars.set(xlabel=which, ylabel="wrong labels, %", ylim=(0, 100), xlim=(-1, shown))
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


HELP = """Look at a scene: who holds which samples, and which labels are wrong. Trains nothing.

  python -m benchmarks.scenario [key=value ...] [draw=FILE.png]

Takes the keys of benchmarks.run, such as dataset=cifar10 partition=bernoulli_dirichlet partition.p=0.3 noise.rho=0.8 seed=2.
draw= also writes a picture (PNG or PDF by its ending)."""


def main(arguments: list[str]) -> int:
    from benchmarks import data
    from benchmarks.config import sweep
    from benchmarks.terminal.summary import console

    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    picture = next(
        (Path(text.removeprefix("draw=")) for text in arguments if text.startswith("draw=")), None
    )
    try:
        overrides = [text for text in arguments if not text.startswith("draw=")]
        (_, config), *others = sweep.expand(overrides)
        if others:
            raise UserError(
                f"{' '.join(sweep.sweeps(overrides))} makes {len(others) + 1} scenes; legal: one value per key"
            )
        world = build_scenario(
            config, data.load(config.dataset.name, config.data_dir, config.dataset.params)
        )
        for table in describe(config, world):
            console().print(table)
        if picture is not None:
            if picture.suffix not in (".png", ".pdf") or not picture.resolve().parent.is_dir():
                raise UserError(
                    f"draw={picture} is not legal; legal: a .png or .pdf file in a folder that exists"
                )
            draw(
                world,
                picture,
                f"{config.dataset.name}, {config.partition.name}, {config.noise.name}, seed {config.seed}",
            )
            console().print(f"drawn: {picture}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
