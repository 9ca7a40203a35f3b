// Resolves the card of every agent with @a2a-js/sdk 0.3, and searches by sending the service a message. Prints JSON.
import { ClientFactory, DefaultAgentCardResolver } from "@a2a-js/sdk/client";

const [base] = process.argv.slice(2);
const statuses = ["active", "inactive", "suspended", "deprecated", "testing"].map((each) => `status=${each}`).join("&");
const listed = (await (await fetch(`${base}/api/v1/agents?limit=200&${statuses}`)).json()).agents;
const resolver = new DefaultAgentCardResolver();
const cards = {};
for (const agent of listed) {
  const card = await resolver.resolve(`${base}/a2a/${encodeURIComponent(agent.id)}/`, ".well-known/agent-card.json");
  const endpoints = agent.bindings.map((binding) => binding.endpoint);
  cards[agent.id] = [card.name, agent.name, endpoints.includes(card.url), typeof card.preferredTransport];
}
const client = await new ClientFactory().createFromUrl(base);
const parts = [{ kind: "text", text: "translate an invoice" }];
const answer = await client.sendMessage({ message: { kind: "message", messageId: "m-1", role: "user", parts } });
console.log(JSON.stringify({ cards, answer }));
