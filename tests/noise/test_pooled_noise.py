"""Noise of one federation for clients that pool its samples: FedCorr's centralized rows."""

import numpy as np
import pytest

from noise import NoiseRecord, apply_noise, pool_noise_record
from noise.rho_tau import RhoTauParams
from partition import clients_for_noise, partition_labels
from partition.centralized import CentralizedParams
from partition.iid import IidParams

RHO_TAU = RhoTauParams(rho=0.6, tau=0.5)


def test_levels_and_rates_are_those_of_the_pooled_clients() -> None:
    """Client 0 has one wrong label of four, client 1 two of two. Sample 6 has no client."""
    clean, given = np.array([0, 1, 2, 0, 1, 2, 0]), np.array([0, 1, 2, 1, 2, 0, 2])
    record = NoiseRecord(
        clean,
        given,
        np.array([0.1, 0.2, 0.9]),
        [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])],
        3,
        "by hand",
    )
    pooled = pool_noise_record(record, [np.array([0, 1, 2, 3]), np.array([4, 5])])
    assert pooled.client_level.tolist() == pooled.client_rate.tolist() == [0.25, 1.0]
    assert np.array_equal(pooled.labels, given) and np.array_equal(pooled.flipped, clean != given)
    assert pooled.transition.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]], "six samples"
    assert pooled.convention.startswith("by hand; ") and pooled.convention.endswith("pooled.")
    assert record.client_level.tolist() == [0.1, 0.2, 0.9], "the argument is not changed"


@pytest.mark.parametrize("seed", [1, 2])
def test_centralized_labels_equal_those_of_the_federation(seed: int) -> None:
    """One client has the labels of an IID federation of `noise_clients` clients."""
    labels, params = np.arange(2000) % 10, CentralizedParams(noise_clients=20)
    client_indices = partition_labels("centralized", labels, 1, seed, params)
    noise_clients = clients_for_noise("centralized", labels, client_indices, seed, params)
    record = apply_noise("rho_tau", labels, noise_clients, 10, seed, RHO_TAU)
    pooled = pool_noise_record(record, client_indices)
    iid = partition_labels("iid", labels, 20, seed, IidParams())
    federation = apply_noise("rho_tau", labels, iid, 10, seed, RHO_TAU)
    assert np.array_equal(pooled.labels, federation.labels)
    assert 0 < (federation.client_level > 0).sum() < 20
    assert pooled.client_rate.shape == (1,)
    assert pooled.client_rate[0] == pytest.approx((federation.labels != labels).mean())
    assert pooled.transition.sum() == 2000


def test_a_single_client_is_noisy_or_clean() -> None:
    """The reason for pooling: noise of one client is absent, or at one level for all samples."""
    labels, client_indices = np.arange(2000) % 10, [np.arange(2000)]
    rates = [
        apply_noise("rho_tau", labels, client_indices, 10, seed, RHO_TAU).client_rate[0]
        for seed in range(12)
    ]
    assert 0.0 in rates and max(rates) > 0.4
