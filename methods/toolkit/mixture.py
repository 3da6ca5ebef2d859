"""Splits numbers in two by a mixture of two Gaussians: noisy from clean clients (FedCorr), wrong from right labels (FedCorr, DivideMix)."""

import warnings
from dataclasses import dataclass

import numpy as np

EQUAL = 1e-6  # a spread of no more than this, absolute or as a share of the values, lies far below the fit's smallest deviation (1e-3)


@dataclass(frozen=True)
class Mixture:
    """Components are in ascending order of their means."""

    high: np.ndarray  # (n,) bool: more likely of the component with the larger mean
    posterior_low: np.ndarray  # (n,) probability of the component with the smaller mean
    means: np.ndarray  # (2,)
    variances: np.ndarray  # (2,)
    weights: np.ndarray  # (2,)


def split(values: np.ndarray, seed: int, **gmm: float) -> Mixture:
    """Fit by expectation maximisation and divide; `gmm` goes to scikit-learn's GaussianMixture (max_iter, tol, reg_covar).

    Fewer than two values, or equal ones, are not divided: all are low. As the variances differ, `high` need not be one cut: values
    far below all others may belong to a wide upper component.
    """
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(values) < 2 or np.ptp(values) <= EQUAL * max(1.0, np.abs(values).max()):
        centre = values.mean() if len(values) else 0.0
        return Mixture(
            np.zeros(len(values), dtype=bool),
            np.ones(len(values)),
            np.full(2, centre),
            np.zeros(2),
            np.array([1.0, 0.0]),
        )
    # Imported here: it takes seconds that other methods need not spend.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    column = values[:, None]
    model = GaussianMixture(2, random_state=seed % 2**32, **gmm)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # a fit stopped by max_iter is what DivideMix asks for
        model.fit(column)
    order = np.argsort(model.means_.ravel(), kind="stable")
    return Mixture(
        high=model.predict(column) == order[1],
        posterior_low=model.predict_proba(column)[:, order[0]],
        means=model.means_.ravel()[order],
        variances=model.covariances_.ravel()[order],
        weights=model.weights_[order],
    )
