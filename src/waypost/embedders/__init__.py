"""Embedders (`search.vectors.Embedder`): sentence models of an installed package or from a folder, chosen in `choice`.

Nothing is downloaded, and models are loaded on use or in the background.
"""
