"""Baseline: a registry that a user would write in an afternoon. FastAPI, SQLite with synchronous=FULL, four routes.

python bench/baseline_registry.py PORT FILE
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field


class Binding(BaseModel):
    protocol: str
    endpoint: str


class Agent(BaseModel):
    model_config = {"extra": "allow"}
    id: str
    name: str
    description: str
    tags: list[str] = Field(default_factory=list)
    bindings: list[Binding]


app = FastAPI()
local = threading.local()
FILE = sys.argv[2] if len(sys.argv) > 2 else "afternoon.sqlite3"


def database() -> sqlite3.Connection:
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(FILE, timeout=30)
        local.connection.execute("PRAGMA journal_mode=WAL")
        local.connection.execute("PRAGMA synchronous=FULL")
        local.connection.execute("CREATE TABLE IF NOT EXISTS agents (id TEXT PRIMARY KEY, name TEXT, document TEXT)")
        local.connection.execute("CREATE INDEX IF NOT EXISTS by_name ON agents (name, id)")
    return local.connection


@app.post("/agents", status_code=201)
def register(agent: Agent) -> dict[str, str]:
    with database() as connection:
        row = (agent.id, agent.name, agent.model_dump_json())
        connection.execute("INSERT OR REPLACE INTO agents VALUES (?, ?, ?)", row)
    return {"id": agent.id}


@app.post("/agents:batch")
async def register_many(request: Request) -> Response:
    """One JSON line each, in one transaction."""
    agents = [Agent.model_validate_json(line) for line in (await request.body()).splitlines()]
    with database() as connection:
        rows = [(agent.id, agent.name, agent.model_dump_json()) for agent in agents]
        connection.executemany("INSERT OR REPLACE INTO agents VALUES (?, ?, ?)", rows)
    return Response("\n".join(json.dumps({"id": agent.id}) for agent in agents))


@app.get("/agents/{agent_id:path}")
def get(agent_id: str) -> Agent:
    row = database().execute("SELECT document FROM agents WHERE id = ?", (agent_id,)).fetchone()
    if row is None:
        raise HTTPException(404)
    return Agent(**json.loads(row[0]))


@app.get("/agents")
def list_agents(limit: int = 50, offset: int = 0) -> list[Agent]:
    rows = database().execute("SELECT document FROM agents ORDER BY name, id LIMIT ? OFFSET ?", (limit, offset))
    return [Agent(**json.loads(row[0])) for row in rows]


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
