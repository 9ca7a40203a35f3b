"""The RTFS registry protocol: JSON-RPC and `(discover-agents …)` forms on `/rtfs`."""
