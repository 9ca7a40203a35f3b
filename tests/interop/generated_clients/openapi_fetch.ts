// Registers and finds an agent with types of openapi-typescript and the client openapi-fetch.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };

async function main(base: string, token: string): Promise<void> {
  const client = createClient<paths>({ baseUrl: base, headers: { Authorization: `Bearer ${token}` } });
  const document: components["schemas"]["profile"] = {
    id: "by-openapi-fetch",
    name: "Harp Tuner",
    description: "Tunes concert harps by ear.",
    bindings: [{ protocol: "https", endpoint: "https://harps.example/tune" }],
  };
  const made = await client.POST("/api/v1/agents", { body: document });
  const found = await client.POST("/profile/v1/discover", { body: { query: "tune a concert harp", limit: 10 } });
  console.log(JSON.stringify({ outcome: made.data?.outcome, ids: found.data?.candidates.map((each) => each.id) }));
}

void main(process.argv[2], process.argv[3]);
