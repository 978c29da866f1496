"""`vestige audit-users`: whose text was in a model's training data, with a p-value for each."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.audit_users import audit_users

if TYPE_CHECKING:
    from vestige.attacks.membership.user_audit import UserAudit


def show_audit(audit: "UserAudit", *, show_secrets: bool) -> None:
    """The answer in sentences, the users in a table, and the query statistics."""
    from vestige.cli.audit_words import show_audit as show

    show(audit, show_secrets=show_secrets)


def _show(audit: "UserAudit", output: Output) -> None:
    from vestige.cli.terminal import say
    from vestige.workflows.audit_directory import RUN, damaged

    try:
        show_audit(audit, show_secrets=output.show_secrets)
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        raise damaged(output.out) from error
    say(f"A page from it: vestige report {output.out / RUN} --out page.html")


VERB = Verb(audit_users, show=_show, outputs=(JSON,), required=("out",))
