"""Web pages for people: catalog, agent, registration, sign-in, landing pages of hosted agents."""
