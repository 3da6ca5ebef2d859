"""Noise that was drawn for one federation and is seen by clients that pool it: FedCorr's centralized rows."""

import numpy as np
import pytest

import noise
import partition
from noise.rho_tau import RhoTauParams
from partition.centralized import CentralizedParams
from partition.iid import IidParams


def test_levels_and_rates_are_those_of_the_pooled_clients() -> None:
    """Client 0 takes samples 0 to 3 with one wrong label, client 1 samples 4 and 5, both wrong; sample 6 is nobody's."""
    clean, noisy = np.array([0, 1, 2, 0, 1, 2, 0]), np.array([0, 1, 2, 1, 2, 0, 2])
    drawn = noise.record(
        clean,
        noisy,
        np.array([0.1, 0.2, 0.9]),
        [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])],
        3,
        "by hand",
    )
    pooled = noise.pool(drawn, clean, [np.array([0, 1, 2, 3]), np.array([4, 5])], 3)
    assert pooled.client_level.tolist() == pooled.client_rate.tolist() == [0.25, 1.0]
    assert np.array_equal(pooled.labels, noisy) and np.array_equal(pooled.flipped, clean != noisy)
    assert pooled.transition.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]], (
        "over the six samples that are held"
    )
    assert pooled.convention.startswith("by hand") and pooled.convention.endswith("pooled.")
    assert drawn.client_level.tolist() == [0.1, 0.2, 0.9], "what was drawn stays as it was"


@pytest.mark.parametrize("seed", [1, 2])
def test_centralized_labels_are_the_federations(seed: int) -> None:
    """All samples on one client, yet labelled as the same seed labels an IID federation of as many clients as noise is drawn for."""
    labels, params = np.arange(2000) % 10, CentralizedParams(noise_clients=20)
    settings = RhoTauParams(rho=0.6, tau=0.5)
    parts = partition.make("centralized", labels, 1, seed, params)
    drawn = noise.apply(
        "rho_tau",
        labels,
        partition.noise_parts("centralized", labels, parts, seed, params),
        10,
        seed,
        settings,
    )
    pooled = noise.pool(drawn, labels, parts, 10)
    federation = noise.apply(
        "rho_tau", labels, partition.make("iid", labels, 20, seed, IidParams()), 10, seed, settings
    )
    assert (
        np.array_equal(pooled.labels, federation.labels)
        and 0 < (federation.client_level > 0).sum() < 20
    )
    assert pooled.client_rate.shape == (1,) and pooled.client_rate[0] == pytest.approx(
        (federation.labels != labels).mean()
    )
    assert pooled.transition.sum() == 2000


def test_a_single_client_alone_would_be_all_or_nothing() -> None:
    """Why the noise is pooled: drawn for one client it is either absent or at one level for all samples."""
    labels = np.arange(2000) % 10
    rates = [
        noise.apply(
            "rho_tau", labels, [np.arange(2000)], 10, seed, RhoTauParams(rho=0.6, tau=0.5)
        ).client_rate[0]
        for seed in range(12)
    ]
    assert 0.0 in rates and max(rates) > 0.4
