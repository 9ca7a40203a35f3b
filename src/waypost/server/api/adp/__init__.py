"""ADP over HTTP: tasks, swarms, invitations."""
