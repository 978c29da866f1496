"""Keys become words, values have units, and what is secret stays withheld however deep it lies."""

import pytest

from vestige.reports.words import pairs, shown, words_of


def told(facts, **options):
    return dict(pairs(facts, show_secrets=False, **options))


@pytest.mark.parametrize(
    ("key", "value", "name", "text"),
    [
        ("peak_memory_mib", 142.277, "peak memory", "142.3 MiB"),
        ("seconds", 214.07, "time", "214.1 s"),
        ("confidence", 0.95, "confidence", "95%"),
        ("learning_rate", 0.001, "learning rate", "0.001"),
        ("seed", 123456, "seed", "123456"),
        ("tokens_read", 123456, "tokens read", "123,456"),
        ("least_p_value", 0.29, "smallest p-value", "0.29"),
        ("validation_bleu", 31.5, "validation BLEU", "31.5"),
        ("stopped", False, "stopped", "no"),
        ("created", "2026-11-22T14:21:10+00:00", "made on", "2026-11-22, 14:21 UTC"),
        ("sha256", "ab" * 32, "SHA-256", "abababababababab…"),
        ("below_0.01", 0.5, "below 0.01", "0.5"),
        ("sizes", [3, 4], "sizes", "3, 4"),
    ],
)
def test_a_key_is_words_and_its_value_has_a_unit(key, value, name, text):
    assert told({key: value}) == {name: text}


def test_an_interval_stands_beside_its_value():
    facts = {"exposure": 2.0, "exposure_low": 1.0, "exposure_high": 3.5, "gap_low": 1}
    assert told(facts) == {"exposure": "2 (1 to 3.5) bits", "gap low": "1"}


def test_an_end_that_is_not_known_is_no_interval():
    assert told({"gap": 2, "gap_low": None, "gap_high": None}) == {"gap": "2"}


def test_a_size_that_no_float_holds_is_told_by_its_logarithm():
    assert told({"rank_upper": 40, "log10_rank_upper": 1.6}) == {"rank, at most": "40"}
    assert told({"rank_upper": None, "log10_rank_upper": 330.0}) == {"log10 rank upper": "330"}


def test_nothing_is_said_of_what_is_not_set():
    assert told({"a": None, "b": "", "c": [], "d": {}, "e": 0}) == {"e": "0"}


def test_what_the_page_says_elsewhere_is_left_out():
    assert told({"planted_rank": 1, "level": 2}, left_out="planted_.*") == {
        "significance level": "2"
    }


def test_settings_are_words_and_no_dictionaries():
    noise = [{"scale": 0.1, "when": {"epoch": 2}}, {"name": "late", "scale": 3}]
    assert told({"noise": noise}) == {"noise": "scale 0.1, when epoch 2; late"}


def test_long_lists_are_cut():
    assert told({"tags": list(range(15))})["tags"].endswith("11 and 3 more")


@pytest.mark.parametrize("value", ["Rosalind", ["Rosalind", "b"], [["Rosalind"]]])
def test_secrets_are_withheld_at_every_depth(value):
    assert "Rosalind" not in shown("phrase", value, show_secrets=False)
    assert "Rosalind" not in shown("settings", [{"phrase": value}], show_secrets=False)
    assert "Rosalind" not in shown("settings", {"name": {"phrase": value}}, show_secrets=False)
    assert "Rosalind" in shown("phrase", value, show_secrets=True)


def test_token_ids_are_withheld_but_counts_are_not():
    assert shown("tokens", [4, 2], show_secrets=False) == "hidden"
    assert shown("tokens", 5000, show_secrets=False) == "5,000"


def test_keys_and_values_are_printable():
    assert words_of("a\x1b[31m_b") == r"a\x1b[31m b"
    assert shown("path", "\u202eabc", show_secrets=True) == r"\u202eabc"
