#!/usr/bin/env python3
"""Write the graph of the Universal Sentence Encoder, multilingual, version 3, for onnxruntime. Needs the package `onnx`.

    scripts/build_graph.py            write src/waypost/embedders/data/use.onnx
    scripts/build_graph.py --check    say whether it is what would be written

The graph contains no weights: its initializers have the names and shapes of the arrays in the installed package
(`embedders/use_model.py`), which are passed to the session when the model is loaded.

`tokens` are the embeddings of distinct tokens: what depends on one alone is computed once. `places` are the texts as one
line, each place the position of its token in `tokens`; two paddings (-1) between texts keep the convolutions apart, so
that no text is padded to the length of another. `groups` has a row for each vector, with a one at each place that
belongs to it. Outputs: `vectors`, projected to the numbers that are kept, and `sentences`, those of the original model;
both of unit length.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from waypost.embedders.use_model import DIMS, PROJECTION, WIDTH

FILE = Path(__file__).resolve().parent.parent / "src" / "waypost" / "embedders" / "data" / "use.onnx"
OPSET = 17  # the first with LayerNormalization
FORMAT = 8
EPSILON = 1e-12
PADDING = 2  # the longest reach of a convolution to one side
BRANCHES = ((2, 0), (3, 1), (5, 2))  # width of each convolution, and tokens to the left
CHANNELS = 256
HIDDEN = len(BRANCHES) * CHANNELS
BOTTLENECK = 320


class GraphBuilder:
    """Nodes in order of computation. Each method returns the name of its result."""

    def __init__(self) -> None:
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

    def weights(self, name: str, *shape: int) -> str:
        """An array of the package. Its location is never read: the session is given the array itself."""
        if all(each.name != name for each in self._initializers):
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="package")
            self._initializers.append(tensor)
        return name

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
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=FORMAT, producer_name="waypost"
        )


def build_model() -> onnx.ModelProto:
    graph = GraphBuilder()
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
    projected = [
        graph.apply(
            "Add",
            graph.apply("MatMul", embedded, graph.weights(f"proj{width}", WIDTH, CHANNELS)),
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
        weights = graph.apply_all(
            "Split",
            graph.weights(f"w1_{width}", width * CHANNELS, CHANNELS),
            graph.constant([CHANNELS] * width, np.int64),
            outputs=width,
            axis=0,
        )
        total = graph.weights(f"b1_{width}", CHANNELS)
        for place, weight in enumerate(weights):
            start = graph.constant([PADDING - left + place], np.int64)
            neighbours = graph.apply("Slice", around, start, graph.apply("Add", length, start))
            products = graph.apply("MatMul", part, weight)
            with_zeros = graph.apply("Pad", products, graph.constant([0, 0, 1, 0], np.int64))  # at the last place, -1
            total = graph.apply("Add", total, graph.apply("Gather", with_zeros, neighbours))
        made.append(graph.apply("Add", graph.apply("Gather", part, "places"), graph.apply("Relu", total)))
    return made


def _convolve(graph: GraphBuilder, x: str, width: int, left: int) -> str:
    """The second convolution: the windows of all positions side by side in one product."""
    padded = graph.apply("Pad", x, graph.constant([left, 0, width - 1 - left, 0], np.int64))
    length = graph.apply("Shape", "places")
    axis = graph.constant([0], np.int64)
    windows = []
    for place in range(width):
        start = graph.constant([place], np.int64)
        windows.append(graph.apply("Slice", padded, start, graph.apply("Add", length, start), axis))
    product = graph.apply(
        "MatMul",
        graph.apply("Concat", *windows, axis=1),
        graph.weights(f"w2_{width}", width * CHANNELS, CHANNELS),
    )
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    made = build_model().SerializeToString(deterministic=True)
    if not parser.parse_args().check:
        FILE.write_bytes(made)
    elif FILE.read_bytes() != made:
        sys.exit(f"{FILE.name} is not what would be written: run {Path(sys.argv[0]).name}.")


if __name__ == "__main__":
    main()
