// Lists and calls the tools of /mcp with @modelcontextprotocol/sdk. Prints JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [base, token] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(`${base}/mcp`), { requestInit: { headers } });
const client = new Client({ name: "judge", version: "1.0.0" });
await client.connect(transport);
const { tools } = await client.listTools();
const document = {
  id: "by-typescript",
  name: "Harp Tuner",
  description: "Tunes concert harps by ear.",
  bindings: [{ protocol: "https", endpoint: "https://harps.example/tune" }],
};
const made = await client.callTool({ name: "register_agent", arguments: { document } });
const found = await client.callTool({ name: "find_agents", arguments: { query: "tune a concert harp", limit: 3 } });
const read = await client.callTool({ name: "get_agent", arguments: { id: "by-typescript", as: "a2a" } });
const entries = await client.callTool({ name: "ard_search", arguments: { query: { text: "tune a concert harp" } } });
await client.close();
console.log(
  JSON.stringify({
    tools: tools.map((tool) => tool.name),
    outcome: made.structuredContent.outcome,
    ids: found.structuredContent.candidates.map((each) => each.id),
    name: read.structuredContent.name,
    entries: entries.structuredContent.results.length,
  }),
);
