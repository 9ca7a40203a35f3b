"""What turns texts into vectors: models from an installed package or from a folder, behind `search.embedding.Embedder`.

`choice` is the door. Nothing is loaded from a network, and nothing is read before somebody asks or says so.
"""
