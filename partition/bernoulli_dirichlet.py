"""Non-IID partition of FedCorr (Xu et al., CVPR 2022, section 3.1).

Client i may have class j if Phi_ij ~ Bernoulli(p) is one. The samples of a class go independently
to its v_j owners with probabilities q_j ~ Dirichlet(alpha_Dir), so client sizes vary too.

Forms:
- plain: rows and columns of Phi without a one are redrawn, so that every client has a class and
  every class an owner. Counts are multinomial, which is the distribution of independent draws. If
  a client has no samples, everything is redrawn. Both loops are bounded.
- official: the official code, draw by draw. It redraws empty rows only. An empty column or a
  client without samples is an error. Samples are not shuffled: a client has them in the order of
  the official code, nearly ascending.
"""

from typing import Literal

import numpy as np

from methods.core.errors import UserError
from methods.core.params import Positive, PositiveFraction, parameters
from partition import base
from partition.base import MAX_REDRAWS, PARTITIONERS, Partitioner


@parameters
class BernoulliDirichletParams:
    p: PositiveFraction  # probability that a client may have a class
    alpha: Positive  # alpha_Dir; smaller values give less even classes
    form: Literal["plain", "official"] = "plain"  # implementation variant


def partition(
    labels: np.ndarray, num_clients: int, seed: int, params: BernoulliDirichletParams
) -> list[np.ndarray]:
    """FedCorr: a client has a class with probability p, in Dirichlet(alpha) proportions."""
    if params.form == "official":
        return _partition_official(labels, num_clients, seed, params)
    rng = base.make_rng(seed, "bernoulli_dirichlet")
    _, class_sizes = np.unique(labels, return_counts=True)
    for _ in range(MAX_REDRAWS):
        ownership = _sample_ownership(num_clients, len(class_sizes), params.p, rng)
        counts = np.zeros((len(class_sizes), num_clients), dtype=np.int64)
        for j, size in enumerate(class_sizes):
            owners = np.flatnonzero(ownership[:, j])
            fractions = base.sample_dirichlet(rng, params.alpha, len(owners))
            counts[j, owners] = rng.multinomial(size, fractions)
        if counts.sum(axis=0).all():
            return base.assign_samples(labels, counts, rng)
    raise UserError(
        f"cannot partition with partition.p={params.p} and partition.alpha={params.alpha}: one of "
        f"{num_clients} clients has no samples in each of {MAX_REDRAWS} draws; increase p or "
        "alpha, or reduce federation.num_clients"
    )


def _sample_ownership(
    num_clients: int, num_classes: int, p: float, rng: np.random.Generator
) -> np.ndarray:
    """Sample Phi without empty rows and columns. Only these are redrawn, so none becomes empty."""
    ownership = rng.random((num_clients, num_classes)) < p
    for _ in range(MAX_REDRAWS):
        rows = ~ownership.any(axis=1)
        ownership[rows] = rng.random((rows.sum(), num_classes)) < p
        columns = ~ownership.any(axis=0)
        ownership[:, columns] = rng.random((num_clients, columns.sum())) < p
        if ownership.any(axis=1).all() and ownership.any(axis=0).all():
            return ownership
    raise _too_small(p)


def _partition_official(
    labels: np.ndarray, num_clients: int, seed: int, params: BernoulliDirichletParams
) -> list[np.ndarray]:
    """Random draws of the official code. Samples are in the iteration order of Python sets."""
    rng = np.random.RandomState(seed)
    num_classes = int(labels.max()) + 1
    ownership = rng.binomial(1, params.p, size=(num_clients, num_classes))
    for _ in range(MAX_REDRAWS):
        rows = np.flatnonzero(ownership.sum(axis=1) == 0)
        if not len(rows):
            break
        ownership[rows] = rng.binomial(1, params.p, size=(len(rows), num_classes))
    else:
        raise _too_small(params.p)

    clients: dict[int, set[int]] = {}
    for label in range(num_classes):
        owners = np.flatnonzero(ownership[:, label])
        if not len(owners):
            raise UserError(
                f"cannot partition with partition.form=official: class {label} has no owner for "
                f"seed {seed}; set partition.form=plain or increase partition.p={params.p}"
            )
        samples = np.flatnonzero(labels == label)
        fractions = base.sample_dirichlet(rng, params.alpha, len(owners))
        assigned = rng.choice(owners, len(samples), p=fractions)
        for owner in owners.tolist():
            new = set(samples[assigned == owner].tolist())
            # Build a new set: an update in place would change the iteration order.
            clients[owner] = set(clients[owner] | new) if owner in clients else new
    return [np.array(list(clients[k]), dtype=np.int64) for k in range(num_clients)]


def _too_small(p: float) -> UserError:
    return UserError(
        f"cannot partition with partition.p={p}: after {MAX_REDRAWS} draws a client has no class "
        "or a class has no owner; increase p"
    )


PARTITIONERS.add(Partitioner("bernoulli_dirichlet", BernoulliDirichletParams, partition))
