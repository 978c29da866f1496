"""A verb reads a damaged file or refuses it in one message that names it."""

import pytest
from hypothesis import given

from tests.fuzz.formats import FORMATS, damaged, readings
from tests.fuzz.trials import BUDGET, check, each_of


def test_every_format_is_read_by_some_line(bench):
    assert set(FORMATS) <= set(readings(bench.world))


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files_are_read_or_refused(bench, format):
    @each_of(BUDGET // 2 // len(FORMATS))
    @given(damaged(bench.world, format))
    def hostile(case):
        check(bench, case)

    hostile()
