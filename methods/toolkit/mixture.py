"""Two-component Gaussian mixtures that separate noisy from clean clients, or samples."""

import warnings
from dataclasses import dataclass

import numpy as np

# A spread below this, absolute or relative, is far below the fit's smallest deviation (1e-3).
MIN_RELATIVE_SPREAD = 1e-6


@dataclass(frozen=True)
class TwoComponentSplit:
    """Result of `split_by_gmm`. Components are in ascending order of their means."""

    is_high: np.ndarray  # (n,) bool: more likely from the component with the larger mean
    posterior_low: np.ndarray  # (n,) probability of the component with the smaller mean
    means: np.ndarray  # (2,)
    variances: np.ndarray  # (2,)
    weights: np.ndarray  # (2,)


def split_by_gmm(values: np.ndarray, seed: int, **gmm: float) -> TwoComponentSplit:
    """Fit two Gaussians by expectation maximization and assign each value to one of them.

    Fewer than two values, or equal values, are not split: all of them are low. The variances
    differ, so `is_high` is not always one threshold: a wide upper component can also contain the
    lowest values. `gmm` holds options of scikit-learn's GaussianMixture, such as max_iter.
    """
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(values) < 2 or np.ptp(values) <= MIN_RELATIVE_SPREAD * max(1.0, np.abs(values).max()):
        is_high, posterior_low = np.zeros(len(values), dtype=bool), np.ones(len(values))
        means = np.full(2, values.mean() if len(values) else 0.0)
        return TwoComponentSplit(is_high, posterior_low, means, np.zeros(2), np.array([1.0, 0.0]))
    # Imported here because it takes seconds, which other methods need not spend.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    column = values[:, None]
    model = GaussianMixture(2, random_state=seed % 2**32, **gmm)
    with warnings.catch_warnings():
        # DivideMix stops the fit by max_iter on purpose.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(column)
    order = np.argsort(model.means_.ravel(), kind="stable")
    return TwoComponentSplit(
        is_high=model.predict(column) == order[1],
        posterior_low=model.predict_proba(column)[:, order[0]],
        means=model.means_.ravel()[order],
        variances=model.covariances_.ravel()[order],
        weights=model.weights_[order],
    )
