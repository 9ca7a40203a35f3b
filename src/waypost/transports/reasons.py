"""Why a connection failed, in the words of the system: libraries wrap them in addresses and numbers that nobody asked for."""

from __future__ import annotations

import os


def reason_of(error: BaseException | None) -> str:
    if error is None:
        return "it does not answer"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
