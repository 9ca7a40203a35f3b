"""Routes of the APIs that answer for whole path prefixes, for the API description. The APIs do their own routing."""

from __future__ import annotations

from waypost.server.api.agent_framework.routes import AGENT_FRAMEWORK_ROUTES
from waypost.server.api.announce.api import ANNOUNCE_ROUTES
from waypost.server.api.ard.api import ARD_ROUTES
from waypost.server.api.mcp.api import MCP_ROUTES
from waypost.server.api.rtfs.api import RTFS_ROUTES
from waypost.server.http.routing import Route

MOUNTED_ROUTES: list[Route] = [*ANNOUNCE_ROUTES, *ARD_ROUTES, *MCP_ROUTES, *AGENT_FRAMEWORK_ROUTES, *RTFS_ROUTES]
