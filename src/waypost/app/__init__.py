"""The composition root: settings in, a running service out.

`build.py` shows the whole on one page. Each of the other modules makes one group of parts; `application.py` starts and
stops what was made, `serve.py` runs it in one process or several.
"""

from __future__ import annotations

from waypost.app.application import Application, load_samples
from waypost.app.build import build
from waypost.app.core import Models, has_sentence_model, make_ranker, mint_locally
from waypost.app.http import sign_in_link
from waypost.app.serve import run, serve, serve_worker

__all__ = [
    "build",
    "Application",
    "run",
    "serve",
    "serve_worker",
    "mint_locally",
    "sign_in_link",
    "load_samples",
    "Models",
    "make_ranker",
    "has_sentence_model",
]
