"""The metadata document as it is served."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from support.records import CODECS
from support.service import service


@pytest.mark.req("ADP-21", "ADP-22")
async def test_the_document_is_at_its_path_with_its_media_type(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.anonymous().get("/.well-known/agent.json")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/vnd.adp+json"
        assert "max-age" in answer.headers["cache-control"]
        jsonschema.validate(answer.json(), CODECS["adp"].schema())
        assert answer.json()["protocol"] == "ADP/1.1"
