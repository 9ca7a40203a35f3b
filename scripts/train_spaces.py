#!/usr/bin/env python3
"""Fit what ships with the default vectors: 2,048 landmarks for each space, and a projection from 512
to 256 dimensions for the multilingual ones.

    scripts/train_spaces.py                 write src/waypost/embedders/data/*.npy
    scripts/train_spaces.py --onnx FOLDER   write FOLDER/landmarks.npy for an ONNX model

The texts are generic. Projections: names and descriptions of real servers (bench/corpus.py), each description as a
whole and clause by clause, and every name in the taxonomy. Landmarks: the names in the taxonomy and the likeliest words
of the model's own vocabulary, which reach further than any collection of agents. No query, and none of the sets that
quality is measured on, has a say. Other texts or another release of the linear algebra give other files (k-means follows the
last digits), and other vectors: judge them by bench.quality, and raise `SPACES_VERSION` and `VERSION`.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is loaded: sums in one order

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from waypost.embedders import use_model
from waypost.embedders.english_encoder import ENGLISH, load_english
from waypost.embedders.onnx import OnnxEncoder, open_onnx_folder
from waypost.embedders.use_encoder import StaticEncoder, TokenEncoder, UseNetwork
from waypost.embedders.use_model import (
    WIDTH,
    Tokenizer,
    UseModel,
    UsePackage,
    condense_table,
    find_package,
    load_model,
    load_tokenizer,
)
from waypost.search.text.analyzer import split_clauses
from waypost.search.text.taxonomy import standard_outline
from waypost.search.vectors.quantizer import CoarseQuantizer

F32 = npt.NDArray[np.float32]

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "src" / "waypost" / "embedders" / "data"
LISTS = 2048
WORDS = 8000
SHORTEST = 4
SEED = 20_260_101
ROUNDS = 8  # of k-means
CHUNK = 4096
EVENNESS = {
    use_model.STATIC: 0.25,
    use_model.NETWORK: 0.15,
}  # 0 keeps the lengths of the directions, 0.5 makes them equal


def texts() -> list[str]:
    """What agents say of themselves. Without repetition, in a fixed order."""
    sys.path.insert(0, str(ROOT))
    from bench.corpus import servers  # reads the shared folder, which only this needs

    found: list[str] = []
    for server in servers():
        found += [f"{server['name']}. {server['description']}", *split_clauses(server["description"])]
    return [text for text in dict.fromkeys([*found, *names()]) if text.strip()]


def train_quantizer(vectors: F32, lists: int, seed: int) -> CoarseQuantizer:
    """Spherical k-means over unit vectors of generic texts. Deterministic."""
    chance = np.random.RandomState(seed)  # its stream is frozen, that of a Generator is not
    centres = vectors[chance.permutation(len(vectors))[:lists]].astype(np.float32)
    for _ in range(ROUNDS):
        centres = kmeans_step(vectors, centres, chance)
    largest = np.abs(centres).max(axis=1, keepdims=True)
    return CoarseQuantizer(np.rint(centres * (127 / np.where(largest > 0, largest, 1))).astype(np.int8))


def kmeans_step(vectors: F32, centres: F32, chance: np.random.RandomState) -> F32:
    chunks = range(0, len(vectors), CHUNK)
    nearest = np.concatenate([np.argmax(vectors[at : at + CHUNK] @ centres.T, axis=1) for at in chunks])
    sizes = np.bincount(nearest, minlength=len(centres))
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]
    sums = np.add.reduceat(vectors[np.argsort(nearest, kind="stable")], starts, axis=0)
    moved = vectors[chance.randint(len(vectors), size=len(centres))].astype(np.float32)  # for empty lists
    moved[filled] = sums
    return unit(moved)


def names() -> list[str]:
    """Every name in the taxonomy, in each of its languages."""
    found: list[str] = []
    for line in standard_outline().splitlines():
        own, *others = line.strip().split("|")
        if own and not own.startswith("#"):
            translated = [part.partition(":")[2] for part in others if not part.strip().startswith("under:")]
            found += [name.strip(" ~") for part in (own, *translated) for name in re.split("[=,]", part)]
    return [name for name in dict.fromkeys(found) if name]


def topics(tokenizer: Tokenizer) -> list[str]:
    """What texts may be about: names, and the likeliest words of four letters and more."""
    order = np.argsort(-np.array(tokenizer.scores(), np.float32), kind="stable")
    texts_of = tokenizer.pieces()
    pieces = [texts_of[number] for number in order]
    words = [
        piece[1:] for piece in pieces if piece.startswith("\u2581") and piece[1:].isascii() and piece[1:].isalpha()
    ]
    return list(dict.fromkeys([*names(), *[word for word in words if len(word) >= SHORTEST][:WORDS]]))


def projected(vectors: F32, evenness: float) -> F32:
    """The directions along which the vectors are longest, made more even: what all texts share tells none apart."""
    square = vectors.astype(np.float64).T @ vectors.astype(np.float64)
    lengths, directions = np.linalg.eigh(square)
    lengths, chosen = lengths[::-1][: use_model.DIMS], directions[:, ::-1][:, : use_model.DIMS]
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(0), np.arange(use_model.DIMS)])  # a direction has two signs
    return np.asarray(chosen * (lengths / lengths[0]) ** -evenness, np.float16)


def unit(vectors: F32) -> F32:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def fitted_arrays(model: UseModel) -> dict[str, npt.NDArray[np.generic]]:
    tokenizer = load_tokenizer(package())
    means = StaticEncoder(*condense_table(model.scores, model.table, np.eye(WIDTH, dtype=np.float32)))
    network = UseNetwork(model, is_projected=False)
    made: dict[str, npt.NDArray[np.generic]] = {}
    for part, vectors in ((use_model.STATIC, means.encode), (use_model.NETWORK, network.encode)):
        encode = TokenEncoder(tokenizer, vectors, WIDTH)
        projection = projected(encode(texts()), EVENNESS[part])
        carried = unit(encode(topics(tokenizer)) @ projection.astype(np.float32))
        made[f"{part}.projection.npy"] = projection
        made[f"{part}.landmarks.npy"] = train_quantizer(carried, LISTS, SEED).codes
    return {**made, f"{ENGLISH}.landmarks.npy": english_landmarks(tokenizer)}


def english_landmarks(tokenizer: Tokenizer) -> npt.NDArray[np.int8]:
    """The English model contains its projection: scripts/train_model.py."""
    return train_quantizer(load_english()[ENGLISH](topics(tokenizer)), LISTS, SEED).codes


def package() -> UsePackage:
    found = find_package()
    if found is None:
        sys.exit("The package of the default model is not installed.")
    return found


def installed() -> UseModel:
    return load_model(package(), None)


def train_onnx(path: Path) -> None:
    vectors = OnnxEncoder(open_onnx_folder(path))(topics(load_tokenizer(package())))
    np.save(path / "landmarks.npy", train_quantizer(vectors, LISTS, SEED).codes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--onnx", type=Path)
    given = parser.parse_args()
    if given.onnx:
        train_onnx(given.onnx)
        return
    for name, array in fitted_arrays(installed()).items():
        np.save(DATA / name, array)


if __name__ == "__main__":
    main()
