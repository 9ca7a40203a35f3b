"""The composition root: settings in, a running service out. The only place where parts are put together.

`building.py` is the whole on one page. Each of the other modules makes one group of parts: its function takes the groups that
it needs and gives a new one. `application.py` starts and stops what was made, `running.py` is the process around it.
"""

from __future__ import annotations

from waypost.app.application import Application, load_samples
from waypost.app.build import build
from waypost.app.context import mint_locally
from waypost.app.core import Models, has_sentence_model, make_ranker
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
