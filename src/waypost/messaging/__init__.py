"""Messaging between agents: AGP connections, tasks, swarms and invitations. Sockets and storage are ports."""
