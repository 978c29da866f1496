"""Regression on quadratic functions of a few features, with the same results on all machines.

Boosted trees have thresholds: a change of 1e-7 in a feature, as between two processors, can move a
split and change all predictions. Ridge and logistic regression on products of two features are
smooth in their inputs, so p-values based on them are the same on all machines.
"""

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
MAX_ROWS = 200_000
"""Most rows to fit on, at equal distances."""

_BLOCK = 2**18  # rows whose products are in memory


def fit_mean(features: Floats, values: Floats) -> "Pipeline":
    """Ridge regression of values (n,) on products of at most two features (n, f)."""
    from sklearn.linear_model import Ridge

    return _fit(Ridge(alpha=1.0), features, values)


def fit_log_odds(features: Floats, labels: NDArray[np.bool_]) -> "Pipeline":
    """Logistic regression of labels (n,) on products of at most two features (n, f)."""
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(solver="newton-cholesky", max_iter=200)
    return _fit(regression, features, labels)


def predicted(fitted: "Pipeline", features: Floats) -> Floats:
    """(n,) means or log odds of rows (n, f)."""
    classifier = hasattr(fitted, "decision_function")
    predict = fitted.decision_function if classifier else fitted.predict
    blocks = [
        predict(features[start : start + _BLOCK]) for start in range(0, len(features), _BLOCK)
    ]
    return cast("Floats", np.concatenate(blocks)) if blocks else np.empty(0)


def _fit(
    regression: object, features: Floats, values: NDArray[np.float64] | NDArray[np.bool_]
) -> "Pipeline":
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    step = -(-len(features) // MAX_ROWS)
    model = make_pipeline(
        StandardScaler(),
        PolynomialFeatures(2, include_bias=False),
        StandardScaler(),
        regression,
    )
    return model.fit(features[::step], values[::step])
