"""LangChain and LangGraph: tools for an agent, and a retriever of agents (`pip install 'waypost[langchain]'`)."""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ConfigDict

from waypost.adapters.toolbox import CALL_AGENT, CALL_DESCRIPTION, FIND_AGENTS, FIND_DESCRIPTION, AgentTools
from waypost.client.aio.client import Client
from waypost.client.sync.client import SyncClient


def agent_tools(client: Client, *, limit: int = 5, protocols: tuple[str, ...] = ()) -> list[BaseTool]:
    """Tools for a `ToolNode`, an agent or `bind_tools`: find agents, and call one. They are awaited (`ainvoke`)."""
    tools = AgentTools(client, limit=limit, protocols=protocols)
    return [
        StructuredTool.from_function(coroutine=tools.find_agents, name=FIND_AGENTS, description=FIND_DESCRIPTION),
        StructuredTool.from_function(coroutine=tools.call_agent, name=CALL_AGENT, description=CALL_DESCRIPTION),
    ]


class AgentRetriever(BaseRetriever):
    """Agents as documents: the description is the content; id, name, score and endpoint are metadata."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: SyncClient
    limit: int = 5
    protocols: tuple[str, ...] = ()

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found = self.client.find(query, limit=self.limit, protocols=self.protocols, min_match="possible")
        return [
            Document(
                id=each.id,
                page_content=each.description,
                metadata={
                    "id": each.id,
                    "name": each.name,
                    "score": each.score,
                    "match": each.match,
                    "tags": list(each.tags),
                    "protocols": list(each.protocols),
                    "endpoint": each.endpoint,
                },
            )
            for each in found.candidates
        ]
