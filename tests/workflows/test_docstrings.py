from tests.workflows.example import refit
from vestige.workflows.docstrings import docstring


def test_a_docstring_in_its_parts():
    told = docstring(refit)
    assert told.summary == "Train a model on `data`, or continue one with `from_`."
    assert told.text.endswith("The `training` goes on where it was.")
    assert told.entries["data"] == "A file or folder."
    assert told.examples == ("vestige refit corpus.txt --out model",)


def test_entries_lose_their_types_stars_and_line_breaks():
    def odd():
        """Do it.

        Args:
            one (int): The first
                of two: still the first.
            *rest: All others.

        Returns:
            nothing: at all.
        """

    told = docstring(odd)
    assert told.entries == {"one": "The first of two: still the first.", "rest": "All others."}
    assert (told.text, told.examples) == ("Do it.", ())


def test_attributes_of_a_class_are_its_entries():
    class Pair:
        """Two of them.

        Attributes:
            left: One.
            right: Another.
        """

    assert docstring(Pair).entries == {"left": "One.", "right": "Another."}


def test_a_summary_that_takes_two_lines_is_one_line():
    def long():
        """Say what it does
        and how.

        More.
        """

    assert docstring(long).summary == "Say what it does and how."
    assert docstring(long).text.endswith("More.")


def test_each_command_is_an_example_and_python_is_none():
    def told():
        """Do.

        Examples:
            vestige a

            vestige b
            --c

            >>> 1
            1
        """

    assert docstring(told).examples == ("vestige a", "vestige b\n--c")


def test_without_a_docstring_every_part_is_empty():
    def bare(): ...

    told = docstring(bare)
    assert (told.summary, told.text, told.entries, told.examples) == ("", "", {}, ())
