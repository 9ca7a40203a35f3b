"""JSON Schemas that only tests need: the strict form of each dialect, and ARD's catalogs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from waypost.protocols.codec import Codec

_ACCEPTED = "Accepted"
_VECTORS = Path(__file__).parent.parent / "vectors"


def written_schema(codec: Codec) -> dict[str, Any]:
    """Return the schema of the documents that a codec makes out of a record: the specification's own form.

    `schema.json` holds this form X beside the wider form AcceptedX that is read.
    """
    schema = codec.schema()
    form = schema["$ref"] if "$ref" in schema else schema["anyOf"][0]["$ref"]
    definitions = {name: part for name, part in schema["$defs"].items() if not name.startswith(_ACCEPTED)}
    return {"$schema": schema["$schema"], "$ref": form.replace(_ACCEPTED, ""), "$defs": definitions}


@cache
def catalog_schema() -> dict[str, Any]:
    """Return the schema of an AI Catalog (ard.md §1). A trust manifest is signed, so a catalog lists it as received."""
    schema: dict[str, Any] = json.loads((_VECTORS / "ard" / "catalog_schema.json").read_text())
    return schema
