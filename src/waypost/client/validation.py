"""`validate`: check a document by the rules of the registry, without a service."""

from __future__ import annotations

import time

from waypost.client.requests import Registrable, document_bytes
from waypost.errors import TooLarge
from waypost.protocols.codec import DecodeContext
from waypost.protocols.validation import DocumentProblem, ValidationReport, validate_document


def validate(document: Registrable, *, dialect: str | None = None) -> ValidationReport:
    """Say what a document is, and everything that is wrong with it. Nothing is sent.

    Signatures, ownership and the addresses of endpoints are not checked: only the service knows its keys and its policy.

    Args:
        document: A mapping, bytes, JSON text, or the path of a file.
        dialect: The dialect, if it should not be recognised from the content.

    Example:
        >>> report = validate({"name": "Echo", "url": "https://agents.example.net/echo", "skills": []})
        >>> report.dialect, [problem.path for problem in report.problems]
        ('a2a', ['$.capabilities', '$.description', '$.version'])
    """
    try:
        content = document_bytes(document)
    except TooLarge as error:
        return ValidationReport(
            valid=False, problems=(DocumentProblem(path="$", message=error.message, hint=error.hint),)
        )
    return validate_document(content, dialect, DecodeContext(now=time.time()))
