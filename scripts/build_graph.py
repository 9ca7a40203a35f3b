#!/usr/bin/env python3
"""Write the graph of the Universal Sentence Encoder, multilingual, version 3, for onnxruntime. Needs the package `onnx`.

    scripts/build_graph.py            write src/waypost/embedders/data/use.onnx
    scripts/build_graph.py --check    say whether it is what would be written
    scripts/build_graph.py --measure  print the ranges of activations, for RANGES

The graph contains no weights: its initializers have the names and shapes of the arrays in the installed package
(`embedders/use_model.py`), which are passed to the session when the model is loaded.

`tokens` are the embeddings of distinct tokens: what depends on one alone is computed once. `places` are the texts as one
line, each place the position of its token in `tokens`; two paddings (-1) between texts keep the convolutions apart, so
that no text is padded to the length of another. `groups` has a row for each vector, with a one at each place that
belongs to it. Outputs: `vectors`, projected to the numbers that are kept, and `sentences`, those of the original model;
both of unit length.

Products over tokens, which are nearly all of the work, are of int8: weights with one scale for each column
(`quantize_weights`), activations with the fixed scales of RANGES, so that no text changes the vector of another. The exact
graph has float32 throughout; tests compare both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from waypost.embedders.session import ModelSession
from waypost.embedders.use_model import (
    BEGIN,
    CODES,
    DIMS,
    END,
    NETWORK,
    PROJECTION,
    SCALES,
    WIDTH,
    load_model,
    load_projection,
    load_tokenizer,
)

FILE = Path(__file__).resolve().parent.parent / "src" / "waypost" / "embedders" / "data" / "use.onnx"
OPSET = 17  # the first with LayerNormalization
FORMAT = 8
EPSILON = 1e-12
PADDING = 2  # the longest reach of a convolution to one side
BRANCHES = ((2, 0), (3, 1), (5, 2))  # width of each convolution, and tokens to the left
CHANNELS = 256
HIDDEN = len(BRANCHES) * CHANNELS
BOTTLENECK = 320
# The lowest and highest activations that are told apart, for the inputs of each product over tokens. Outliers are cut: with
# ranges that contain all of them, steps would be twice as coarse, and vectors less exact.
RANGES = {
    "tokens": (-7.9, 10.6),
    "first2": (-18.1, 13.6),
    "first3": (-9.7, 8.5),
    "first5": (-11.1, 8.8),
    "second2": (-18.1, 30.1),
    "second3": (-9.7, 21.0),
    "second5": (-11.0, 26.8),
}
OUTLIERS = {"tokens": 3e-3}  # share of the activations, to each side; 1e-4 for the others
MEASURED_TEXTS = 400
MEASURED_TOKENS = 128


LEVELS = 255  # of a byte


class Activations(NamedTuple):
    """Inputs of a product: codes, and what they mean; in the exact graph the numbers themselves."""

    values: str
    scale: str
    zero: str  # the code of 0


class GraphBuilder:
    """Nodes in order of computation. Each method returns the name of its result."""

    def __init__(self, *, is_exact: bool = False) -> None:
        self._is_exact = is_exact
        self.measured: dict[str, str] = {}  # inputs of products over tokens: by the names of RANGES
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def apply(self, operator: str, *inputs: str, **attributes: object) -> str:
        return self.apply_all(operator, *inputs, outputs=1, **attributes)[0]

    def apply_all(self, operator: str, *inputs: str, outputs: int, **attributes: object) -> list[str]:
        names = [f"{operator}{len(self._nodes)}_{at}" for at in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names

    def constant(self, value: float | list[int], kind: type[np.generic]) -> str:
        name = f"constant{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.array(value, kind), name))
        return name

    def weights(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """An array of the package. Its location is never read: the session is given the array itself."""
        if all(each.name != name for each in self._initializers):
            tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="package")
            self._initializers.append(tensor)
        return name

    def quantize(self, x: str, kind: str) -> Activations:
        """The inputs of a product over tokens. `kind` names their range."""
        self.measured[kind] = x
        if self._is_exact:
            return Activations(x, "", self.constant(0.0, np.float32))
        low, high = RANGES[kind]
        scale = self.constant((high - low) / LEVELS, np.float32)
        zero = self.constant(round(-LEVELS * low / (high - low)), np.uint8)
        return Activations(self.apply("QuantizeLinear", x, scale, zero), scale, zero)

    def multiply(self, x: Activations, name: str, rows: int, columns: int, parts: int = 1) -> list[str]:
        """The products of x with an array of the package, or with each of the equal parts of its rows."""
        if self._is_exact:
            return [
                self.apply("MatMul", x.values, part)
                for part in self._split(self.weights(name, rows, columns), rows, parts)
            ]
        codes = self._split(self.weights(f"{name}{CODES}", rows, columns, kind=TensorProto.INT8), rows, parts)
        scales = self.weights(f"{name}{SCALES}", columns)
        return [
            self.apply("MatMulIntegerToFloat", x.values, part, x.scale, scales, x.zero, domain="com.microsoft")
            for part in codes
        ]

    def _split(self, weights: str, rows: int, parts: int) -> list[str]:
        if parts == 1:
            return [weights]
        return self.apply_all("Split", weights, self.constant([rows // parts] * parts, np.int64), outputs=parts, axis=0)

    def name(self, result: str, name: str) -> None:
        """Make it an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [result], [name]))

    def model(self) -> onnx.ModelProto:
        tokens = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["tokens", WIDTH])
        places = helper.make_tensor_value_info("places", TensorProto.INT64, ["places"])
        groups = helper.make_tensor_value_info("groups", TensorProto.FLOAT, ["vectors", "places"])
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["vectors", dims])
            for name, dims in (("vectors", DIMS), ("sentences", WIDTH))
        ]
        graph = helper.make_graph(self._nodes, "use", [tokens, places, groups], outputs, self._initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)],
            ir_version=FORMAT,
            producer_name="waypost",
        )


def build_model(builder: GraphBuilder | None = None) -> onnx.ModelProto:
    graph = builder or GraphBuilder()
    line = _first_layer(graph, "tokens")
    is_token = graph.apply("GreaterOrEqual", "places", graph.constant([0], np.int64))
    mask = graph.apply("Unsqueeze", graph.apply("Cast", is_token, to=TensorProto.FLOAT), graph.constant([1], np.int64))
    hidden = [
        graph.apply("Add", part, _convolve(graph, graph.apply("Mul", part, mask), width, left))
        for part, (width, left) in zip(line, BRANCHES, strict=True)
    ]
    tokens = graph.apply("Concat", graph.apply("Gather", "tokens", "places"), *hidden, axis=1)
    sentences = _dense(graph, _pool(graph, tokens))
    vectors = graph.apply("MatMul", sentences, graph.weights(PROJECTION, WIDTH, DIMS))
    for name, result in (("vectors", vectors), ("sentences", sentences)):
        graph.name(graph.apply("LpNormalization", result, axis=1, p=2), name)
    return graph.model()


def _first_layer(graph: GraphBuilder, embedded: str) -> list[str]:
    """Each branch after its first convolution. What depends on one token alone is computed once for each of `tokens`."""
    line = graph.quantize(embedded, "tokens")
    projected = [
        graph.apply(
            "Add",
            graph.multiply(line, f"proj{width}", WIDTH, CHANNELS)[0],
            graph.weights(f"proj_b{width}", CHANNELS),
        )
        for width, _ in BRANCHES
    ]
    gain = graph.apply("Concat", *(graph.weights(f"ln_g{width}", CHANNELS) for width, _ in BRANCHES), axis=0)
    bias = graph.apply("Concat", *(graph.weights(f"ln_b{width}", CHANNELS) for width, _ in BRANCHES), axis=0)
    joined = graph.apply("Concat", *projected, axis=1)
    normal = graph.apply("LayerNormalization", joined, gain, bias, axis=1, epsilon=EPSILON)
    sizes = graph.constant([CHANNELS] * len(BRANCHES), np.int64)
    parts = graph.apply_all("Split", normal, sizes, outputs=len(BRANCHES), axis=1)
    reach = graph.constant([PADDING, PADDING], np.int64)
    around = graph.apply("Pad", "places", reach, graph.constant(-1, np.int64))
    length = graph.apply("Shape", "places")
    made = []
    for part, (width, left) in zip(parts, BRANCHES, strict=True):
        total = graph.weights(f"b1_{width}", CHANNELS)
        codes = graph.quantize(part, f"first{width}")
        by_place = graph.multiply(codes, f"w1_{width}", width * CHANNELS, CHANNELS, width)
        for place, products in enumerate(by_place):
            start = graph.constant([PADDING - left + place], np.int64)
            neighbours = graph.apply("Slice", around, start, graph.apply("Add", length, start))
            with_zeros = graph.apply("Pad", products, graph.constant([0, 0, 1, 0], np.int64))  # at the last place, -1
            total = graph.apply("Add", total, graph.apply("Gather", with_zeros, neighbours))
        made.append(graph.apply("Add", graph.apply("Gather", part, "places"), graph.apply("Relu", total)))
    return made


def _convolve(graph: GraphBuilder, x: str, width: int, left: int) -> str:
    """The second convolution: the windows of all positions side by side in one product."""
    line = graph.quantize(x, f"second{width}")
    padded = graph.apply("Pad", line.values, graph.constant([left, 0, width - 1 - left, 0], np.int64), line.zero)
    length = graph.apply("Shape", "places")
    axis = graph.constant([0], np.int64)
    windows = []
    for place in range(width):
        start = graph.constant([place], np.int64)
        windows.append(graph.apply("Slice", padded, start, graph.apply("Add", length, start), axis))
    line = line._replace(values=graph.apply("Concat", *windows, axis=1))
    (product,) = graph.multiply(line, f"w2_{width}", width * CHANNELS, CHANNELS)
    return graph.apply("Relu", graph.apply("Add", product, graph.weights(f"b2_{width}", CHANNELS)))


def _pool(graph: GraphBuilder, tokens: str) -> str:
    """The sum of the layernormed tokens of each group over the root of their number, through one dense layer."""
    wide = WIDTH + HIDDEN
    normal = graph.apply(
        "LayerNormalization", tokens, graph.weights("ln_g", wide), graph.weights("ln_b", wide), axis=1, epsilon=EPSILON
    )
    counts = graph.apply("ReduceSum", "groups", graph.constant([1], np.int64), keepdims=1)
    root = graph.apply("Sqrt", counts)
    pooled = graph.apply("Div", graph.apply("MatMul", "groups", normal), root)
    dense = graph.apply("MatMul", pooled, graph.weights("cnn_W", wide, WIDTH))
    return graph.apply("Add", dense, graph.apply("Mul", root, graph.weights("cnn_b", WIDTH)))


def _dense(graph: GraphBuilder, x: str) -> str:
    """Two residual pairs of dense layers."""
    inner = graph.apply("Relu", graph.apply("MatMul", x, graph.weights("d0", WIDTH, BOTTLENECK)))
    inner = graph.apply("MatMul", inner, graph.weights("d1", BOTTLENECK, BOTTLENECK))
    shortcut = graph.apply("MatMul", x, graph.weights("p1", WIDTH, BOTTLENECK))
    x = graph.apply("Relu", graph.apply("Add", inner, shortcut))
    inner = graph.apply("Relu", graph.apply("MatMul", x, graph.weights("d2", BOTTLENECK, WIDTH)))
    inner = graph.apply("MatMul", inner, graph.weights("d3", WIDTH, WIDTH))
    shortcut = graph.apply("MatMul", x, graph.weights("p3", BOTTLENECK, WIDTH))
    return graph.apply("Tanh", graph.apply("Add", inner, shortcut))


def measure_ranges() -> dict[str, tuple[float, float]]:
    """The ranges over texts of real servers, by the exact graph."""
    from train_spaces import package, texts  # which reads the shared folder

    builder = GraphBuilder(is_exact=True)
    graph, weights, tokenizer = build_model(builder), load_model(package(), None), load_tokenizer(package())
    for name in set(builder.measured.values()) - {"tokens"}:
        graph.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    session = ModelSession(graph.SerializeToString(), {**weights.weights, PROJECTION: load_projection(NETWORK)})
    found: dict[str, list[npt.NDArray[np.float32]]] = {kind: [] for kind in builder.measured}
    every = texts()
    for text in every[:: len(every) // MEASURED_TEXTS]:
        line = np.array([BEGIN, *tokenizer.encode(text, MEASURED_TOKENS), END])
        distinct, places = np.unique(line, return_inverse=True)
        given: dict[str, npt.NDArray[Any]] = {
            "tokens": weights.table.embed(distinct),
            "places": places,
            "groups": np.ones((1, len(line)), np.float32),
        }
        for kind, name in builder.measured.items():
            found[kind].append((given[name] if name in given else session.run(given, name)).ravel())
    ranges = {}
    for kind, parts in found.items():
        share = OUTLIERS.get(kind, 1e-4)
        low, high = np.quantile(np.concatenate(parts), (share, 1 - share))
        ranges[kind] = (round(float(low), 1), round(float(high), 1))
    return ranges


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    asked = parser.parse_args()
    if asked.measure:
        print(measure_ranges())
        return
    made = build_model().SerializeToString(deterministic=True)
    if not asked.check:
        FILE.write_bytes(made)
    elif FILE.read_bytes() != made:
        sys.exit(f"{FILE.name} is not what would be written: run {Path(sys.argv[0]).name}.")


if __name__ == "__main__":
    main()
