"""RTFS `(discover-agents …)` forms in the client: their requests, and a cache of their values (RTFS-61). No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from waypost import limits
from waypost.cache import LruCache
from waypost.client.requests import JSON, ApiRequest
from waypost.protocols.rtfs.discover_form import DiscoverForm, DiscoverValue


def registry_origin(uri: str) -> str:
    """The origin of a registry.

    Args:
        uri: The `:registry-uri` of a form.
    """
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"


def form_request(form: DiscoverForm, call_id: str) -> ApiRequest:
    """The request of a form. Its path is that of `:registry-uri`.

    Args:
        form: The form.
        call_id: The id of the JSON-RPC call.
    """
    uri = form.options.registry_uri
    return ApiRequest(
        method="POST",
        path="/rtfs" if uri is None else uri.removeprefix(registry_origin(uri)) or "/",
        headers={"Content-Type": JSON},
        content=form.request(call_id),
        read_seconds=form.options.timeout_ms / 1000,
    )


class DiscoverCache:
    """Values of forms, by registry and parameters. Failures are not cached."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._values: LruCache[tuple[str | None, bytes], tuple[float, DiscoverValue]] = LruCache(
            limits.RTFS_CACHED_FORMS
        )

    def find(self, form: DiscoverForm) -> DiscoverValue | None:
        """The cached value of a form, if the form allows it and it is recent enough.

        Args:
            form: The form.
        """
        cached = self._values.get(_key(form)) if form.options.cache_policy == "use-cache" else None
        if cached is None or self._now() - cached[0] > limits.RTFS_CACHE_SECONDS:
            return None
        return cached[1]

    def put(self, form: DiscoverForm, value: DiscoverValue) -> None:
        """Cache the value of a form, if the form allows it.

        Args:
            form: The form.
            value: Its value.
        """
        if value.failure is None and form.options.cache_policy != "no-cache":
            self._values.put(_key(form), (self._now(), value))


def _key(form: DiscoverForm) -> tuple[str | None, bytes]:
    return form.options.registry_uri, form.request("")
