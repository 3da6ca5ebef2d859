"""FedCorr's non-IID partition (Xu et al., CVPR 2022, section 3.1).

Client i may hold class j where Phi_ij ~ Bernoulli(p) is one. Each class's samples go independently to its v_j owners
with probabilities q_j ~ Dirichlet(alpha_Dir), so client sizes vary as well as class shares.

plain     Rows and columns of Phi without a one are redrawn (a client without a class, a class without an owner). The
          counts are drawn as multinomials, which is the law of independent draws; while a client ends with no sample
          everything is redrawn. Both loops are bounded.
official  The released code, draw by draw. It redraws empty rows only: an empty column or an empty client is an error.
"""

from dataclasses import dataclass

import numpy as np

from .base import MAX_REDRAWS, PartitionError, Scheme, check, deal, dirichlet, generator, is_number

FORMS = ("plain", "official")


@dataclass(frozen=True)
class BernoulliDirichletParams:
    p: float  # probability that a client may hold a class
    alpha: float  # alpha_Dir: the smaller, the less even a class is spread over its owners
    form: str = "plain"

    def __post_init__(self) -> None:
        check("p", self.p, is_number(self.p) and 0 < self.p <= 1, "a number in (0, 1]")
        check(
            "alpha",
            self.alpha,
            is_number(self.alpha) and 0 < self.alpha < np.inf,
            "a finite number above 0",
        )
        check("form", self.form, self.form in FORMS, f"one of {', '.join(FORMS)}")


def split(
    labels: np.ndarray, num_clients: int, seed: int, params: BernoulliDirichletParams
) -> list[np.ndarray]:
    return (split_official if params.form == "official" else split_plain)(
        labels, num_clients, seed, params
    )


def split_plain(
    labels: np.ndarray, num_clients: int, seed: int, params: BernoulliDirichletParams
) -> list[np.ndarray]:
    rng = generator(seed, "bernoulli_dirichlet")
    _, sizes = np.unique(labels, return_counts=True)
    for _ in range(MAX_REDRAWS):
        ownership = draw_ownership(num_clients, len(sizes), params.p, rng)
        counts = np.zeros((len(sizes), num_clients), dtype=np.int64)
        for j, size in enumerate(sizes):
            owners = np.flatnonzero(ownership[:, j])
            counts[j, owners] = rng.multinomial(size, dirichlet(rng, params.alpha, len(owners)))
        if counts.sum(axis=0).all():
            return deal(labels, counts, rng)
    raise PartitionError(
        f"partition.p={params.p}, partition.alpha={params.alpha}: one of {num_clients} clients was empty in each of "
        f"{MAX_REDRAWS} draws; must be a larger p or alpha, or fewer clients"
    )


def draw_ownership(
    num_clients: int, num_classes: int, p: float, rng: np.random.Generator
) -> np.ndarray:
    """Phi without empty rows and columns. Only all-zero lines are redrawn, so no redraw can empty another line."""
    ownership = rng.random((num_clients, num_classes)) < p
    for _ in range(MAX_REDRAWS):
        rows = ~ownership.any(axis=1)
        ownership[rows] = rng.random((rows.sum(), num_classes)) < p
        columns = ~ownership.any(axis=0)
        ownership[:, columns] = rng.random((num_clients, columns.sum())) < p
        if ownership.any(axis=1).all() and ownership.any(axis=0).all():
            return ownership
    raise _too_small(p, num_clients, num_classes)


def split_official(
    labels: np.ndarray, num_clients: int, seed: int, params: BernoulliDirichletParams
) -> list[np.ndarray]:
    """The released draw order. Clients are Python sets there, built class by class; their iteration order is kept."""
    rng = np.random.RandomState(seed)
    num_classes = int(labels.max()) + 1
    ownership = rng.binomial(1, params.p, size=(num_clients, num_classes))
    for _ in range(MAX_REDRAWS):
        rows = np.flatnonzero(ownership.sum(axis=1) == 0)
        if not len(rows):
            break
        ownership[rows] = rng.binomial(1, params.p, size=(len(rows), num_classes))
    else:
        raise _too_small(params.p, num_clients, num_classes)

    clients: dict[int, set[int]] = {}
    for label in range(num_classes):
        owners = np.flatnonzero(ownership[:, label])
        if not len(owners):
            raise PartitionError(
                f"partition.form='official': with seed {seed} no client may hold class {label} and the released code "
                f"stops; must be 'plain', or another seed or a larger p than {params.p}"
            )
        samples = np.flatnonzero(labels == label)
        assigned = rng.choice(owners, len(samples), p=dirichlet(rng, params.alpha, len(owners)))
        for owner in owners.tolist():
            new = set(samples[assigned == owner].tolist())
            # A fresh set of the union, not an update in place: the two iterate in different orders.
            clients[owner] = set(clients[owner] | new) if owner in clients else new
    return [np.array(list(clients[k]), dtype=np.int64) for k in range(num_clients)]


def _too_small(p: float, num_clients: int, num_classes: int) -> PartitionError:
    return PartitionError(
        f"partition.p={p}: {MAX_REDRAWS} draws left one of {num_clients} clients or {num_classes} classes without a "
        f"partner; must be a larger number in (0, 1]"
    )


SCHEME = Scheme(
    name="bernoulli_dirichlet",
    params=BernoulliDirichletParams,
    function=split,
    one_line="FedCorr's non-IID: a client may hold a class with probability p, its share of it is Dirichlet(alpha)",
    disjoint=True,
    covering=True,
)
