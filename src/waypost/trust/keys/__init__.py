"""Public and private keys, their algorithms and certificates."""
