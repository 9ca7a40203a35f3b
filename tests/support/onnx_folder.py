"""A sentence model of five words as an ONNX folder: the vector of a token is a row of a small table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ("[PAD]", "[UNK]", "north", "east", "up")
TABLE = np.float32([[9, 9, 9], [0.1, 0.1, 0.1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])  # padding would show


def write_model(folder: Path, *, pools: bool = False) -> Path:
    """`pools`: the graph itself returns one vector per text."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["texts", "tokens"])
    shape = ["texts", 3] if pools else ["texts", "tokens", 3]
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, shape)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows" if pools else "made"])]
    constants = [numpy_helper.from_array(TABLE, "table")]
    if pools:
        constants.append(numpy_helper.from_array(np.int64([1]), "axes"))
        nodes.append(helper.make_node("ReduceMax", ["rows", "axes"], ["made"], keepdims=0))
    graph = helper.make_graph(nodes, "words", [ids, mask], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"hidden_size": 3, "model_type": "words"}))
    return folder
