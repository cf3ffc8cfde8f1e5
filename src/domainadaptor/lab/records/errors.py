"""Validation errors in one line."""

from pydantic import ValidationError


def problems(error: ValidationError) -> list[str]:
    """Return one sentence per problem: where, what is wrong, and what was given."""
    return [_sentence(detail) for detail in error.errors(include_url=False)]


def summary(error: ValidationError) -> str:
    """Return the first problem, and how many more there are."""
    found = problems(error)
    return found[0] if len(found) == 1 else f"{found[0]} (and {len(found) - 1} more)"


def _sentence(detail: object) -> str:
    assert isinstance(detail, dict)
    where = ".".join(map(str, detail["loc"]))
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
