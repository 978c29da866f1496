"""`vestige report`: where the page is."""

from vestige.cli.verbs import JSON, Output, Verb
from vestige.release.report import Page, report


def _show(page: Page, output: Output) -> None:
    print(page.path)


VERB = Verb(report, show=_show, outputs=(JSON,))
