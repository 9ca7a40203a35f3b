"""Several processes of one service on one machine: what they share, and who looks after them. Knows no request and no store."""
