"""Quadratic functions of a few features, for expectations that rounding must not move.

Boosted trees split at thresholds: a change of 1e-7 in a feature, as between two processors, moves
a split and with it every prediction. Ridge and logistic regression on all products of two features
are smooth in their inputs, so that p-values that rest on them are the same on every machine.
"""

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
MOST = 200_000
"""Rows to fit on at most, evenly spaced."""

_BLOCK = 2**18  # of rows whose products are in memory at a time


def fit_mean(features: Floats, values: Floats) -> "Pipeline":
    """Ridge regression of values (n,) on products of at most two features (n, f)."""
    from sklearn.linear_model import Ridge

    return _fitted(Ridge(alpha=1.0), features, values)


def fit_log_odds(features: Floats, labels: NDArray[np.bool_]) -> "Pipeline":
    """Logistic regression of labels (n,) on products of at most two features (n, f)."""
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(solver="newton-cholesky", max_iter=200)
    return _fitted(regression, features, labels)


def predicted(fitted: "Pipeline", features: Floats) -> Floats:
    """(n,) means or log odds of rows (n, f), block by block."""
    of = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
    blocks = [of(features[start : start + _BLOCK]) for start in range(0, len(features), _BLOCK)]
    return cast("Floats", np.concatenate(blocks)) if blocks else np.empty(0)


def _fitted(
    regression: object, features: Floats, values: NDArray[np.float64] | NDArray[np.bool_]
) -> "Pipeline":
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    step = -(-len(features) // MOST)
    model = make_pipeline(
        StandardScaler(),
        PolynomialFeatures(2, include_bias=False),
        StandardScaler(),
        regression,
    )
    return model.fit(features[::step], values[::step])
