"""What comes after discovery: conversations (AGP), tasks, swarms, invitations. Sockets, pages and databases are elsewhere;
what it needs of them is a port."""
