"""A LangGraph graph that picks its tool at run time: one node finds an agent for the task, the next one calls it.

Start: scripts/serve, then python examples/langgraph_tool_picker.py          (needs: pip install langgraph)

No language model is needed: the search of the registry picks. With one, pass `choices` to the model and let it decide.
"""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from waypost import Agent, Candidate, SyncClient

TASK = "Convert 20 euros to Japanese yen"


class Converter(BaseHTTPRequestHandler):
    """An agent behind plain HTTP. It knows one rate."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"20 euros are about 3,300 yen.")

    def log_message(self, *_: object) -> None:
        """Print nothing for a request."""


class State(TypedDict, total=False):
    """What the nodes pass on."""

    task: str
    choices: list[Candidate]
    answer: str


def build_graph(waypost: SyncClient) -> StateGraph:
    def pick(state: State) -> State:
        return {"choices": list(waypost.find(state["task"], limit=3, min_match="possible").candidates)}

    def call(state: State) -> State:
        return {"answer": str(waypost.call(state["choices"][0].id, state["task"]))}

    def decide(state: State) -> str:
        return "call" if state["choices"] else END  # no tool is better than a wrong one

    graph = StateGraph(State)
    graph.add_node("pick", pick)
    graph.add_node("call", call)
    graph.add_edge(START, "pick")
    graph.add_conditional_edges("pick", decide)
    graph.add_edge("call", END)
    return graph


def main() -> None:
    with HTTPServer(("127.0.0.1", 0), Converter) as server, SyncClient() as waypost:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        agent = Agent(
            "currency-converter", "Currency Converter", "Converts amounts between currencies.", tags=["money"]
        )
        agent.example("Convert 20 euros to Japanese yen").bind("http", f"http://127.0.0.1:{server.server_port}/")
        with waypost.keep(agent):
            result = build_graph(waypost).compile().invoke({"task": TASK})
        for choice in result["choices"]:
            print(f"{choice.match:8}  {choice.name}: {choice.reason}")
        print(result["answer"])
        server.shutdown()


if __name__ == "__main__":
    main()
