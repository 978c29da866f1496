"""The chart of intervals: labels in order, marks by kind, the reference behind them."""

import pytest

from vestige.reports.charts import intervals

POINTS = [
    {"label": "b", "value": 2.0, "low": 1.0, "high": 3.0, "other": 1.5},
    {"label": "a", "value": 4.0, "low": 3.0, "high": 4.0, "bound": True},
    {"label": "c", "value": 1.0, "low": 0.0, "high": 2.0, "filled": False},
    {"label": "<script>", "value": 1.0, "low": 0.0, "high": 2.0},
]


@pytest.mark.parametrize("across", [False, True])
def test_values_have_their_intervals_and_marks(across):
    band = {"value": 1.0, "low": 0.5, "high": 1.5}
    figure = intervals(POINTS, name="label", value="bits", caption="C", across=across, band=band)
    spec = figure.draw(400).to_dict()
    assert len(spec["layer"]) == 7
    assert figure.points == 4
    assert "<script>" not in figure.svg
    assert figure.svg.index(">b<") < figure.svg.index(">a<") < figure.svg.index(">c<")


def test_the_axis_of_values_can_have_its_ends():
    figure = intervals(POINTS, name="label", value="share", caption="C", domain=(0, 1))
    assert "'domain': [0, 1]" in str(figure.draw(400).to_dict())
