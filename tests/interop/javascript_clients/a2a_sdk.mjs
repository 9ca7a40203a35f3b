// Resolves the card of every agent with @a2a-js/sdk, and searches by sending the service a message. Prints JSON.
import { ClientFactory, DefaultAgentCardResolver } from "@a2a-js/sdk/client";

const [base] = process.argv.slice(2);
const statuses = ["active", "inactive", "suspended", "deprecated", "testing"].map((each) => `status=${each}`).join("&");
const listed = (await (await fetch(`${base}/api/v1/agents?limit=200&${statuses}`)).json()).agents;
const resolver = new DefaultAgentCardResolver();
const names = {};
for (const agent of listed) {
  const card = await resolver.resolve(`${base}/a2a/${encodeURIComponent(agent.id)}/`, ".well-known/agent-card.json");
  names[agent.id] = [card.name, card.supportedInterfaces.length, agent.name, agent.bindings.length];
}
const client = await new ClientFactory().createFromUrl(base);
const answer = await client.sendMessage({
  message: {
    messageId: "m-1",
    role: 1,
    parts: [{ content: { $case: "text", value: "translate an invoice" } }],
    contextId: "",
    taskId: "",
    extensions: [],
    referenceTaskIds: [],
    metadata: {},
  },
});
console.log(JSON.stringify({ names, answer }));
