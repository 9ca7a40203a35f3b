"""HTTP: server, application, routing, requests, responses and metrics."""
