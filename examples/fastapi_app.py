"""A FastAPI application whose agents are found at /.well-known/agentframework/v1/agents. It needs no registry.

Start: python examples/fastapi_app.py          (needs: pip install fastapi uvicorn)
"""

import json
import threading
import urllib.request

import uvicorn
from fastapi import FastAPI

from waypost import Agent, Discovery

app = FastAPI()


@app.post("/summarize")
def summarize(body: dict[str, str]) -> dict[str, str]:
    """What the agent itself does: here, the first sentence."""
    return {"output": body["input"].partition(".")[0] + "."}


SUMMARIZER = Agent(
    "summarizer",
    "Summarizer",
    "Summarizes a text in one sentence.",
    tags=["text", "summary"],
    examples=["Summarize this mail in one sentence."],
    version="1.0.0",
).bind("http", "http://127.0.0.1:8000/summarize")

app.mount("/", Discovery(agents=[SUMMARIZER]))  # after your own routes


def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    # A client of the Agent Framework asks for agents with a tag.
    url = f"http://127.0.0.1:{port}/.well-known/agentframework/v1/agents?tag=summary"
    with urllib.request.urlopen(url) as response:
        for agent in json.load(response)["agents"]:
            print(f"found {agent['name']} {agent['version']}")
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
