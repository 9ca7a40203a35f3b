// Registers and finds an agent with the client that @hey-api/openapi-ts generates.
import { postApiV1Agents, postProfileV1Discover } from "./sdk";
import { client } from "./sdk/client.gen";

declare const process: { argv: string[] };

async function main(base: string, token: string): Promise<void> {
  client.setConfig({ baseUrl: base, auth: () => token });
  const made = await postApiV1Agents({
    body: {
      id: "by-hey-api",
      name: "Harp Tuner",
      description: "Tunes concert harps by ear.",
      bindings: [{ protocol: "https", endpoint: "https://harps.example/tune" }],
    },
  });
  const found = await postProfileV1Discover({ body: { query: "tune a concert harp", limit: 10 } });
  console.log(JSON.stringify({ outcome: made.data?.outcome, ids: found.data?.candidates.map((each) => each.id) }));
}

void main(process.argv[2], process.argv[3]);
