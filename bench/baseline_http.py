"""Baseline: a Starlette handler that returns the requested number of bytes and does nothing else.

python bench/baseline_http.py PORT
"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_bodies: dict[int, bytes] = {}


async def answer(request: Request) -> Response:
    await request.body()
    size = int(request.path_params["size"])
    body = _bodies.setdefault(size, b"x" * size)
    return Response(body, media_type="application/json")


app = Starlette(routes=[Route("/{size:int}", answer, methods=["GET", "POST"])])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
