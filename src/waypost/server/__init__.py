"""ASGI: one module per face, each of them decode → operation → encode."""
