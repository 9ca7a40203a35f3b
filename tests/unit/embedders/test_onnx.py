"""An ONNX sentence model instead of the default network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.onnx_folder import write_model
from waypost.embedders.choice import choose_embedder
from waypost.embedders.onnx import OnnxEncoder, open_onnx_folder
from waypost.errors import ConfigurationError, Unavailable

HALF = 0.5**0.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "words")


def test_a_text_is_the_mean_of_its_tokens_without_the_padding(folder: Path) -> None:
    encode = OnnxEncoder(open_onnx_folder(folder))
    made = encode(["north east up up", "north", "", "north east"])
    assert made[1] == pytest.approx([1, 0, 0])
    assert made[3] == pytest.approx([HALF, HALF, 0])
    assert not made[2].any()
    assert np.linalg.norm(made[0]) == pytest.approx(1)
    assert made == pytest.approx(
        np.vstack([encode([text]) for text in ("north east up up", "north", "", "north east")])
    )


def test_many_texts_come_back_in_their_order(folder: Path) -> None:
    texts = ["north", "east east", "up up up"] * 20
    made = OnnxEncoder(open_onnx_folder(folder))(texts)
    assert made.argmax(axis=1).tolist() == [0, 1, 2] * 20


def test_pooling_may_use_the_first_token(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert OnnxEncoder(open_onnx_folder(folder))(["east up"])[0] == pytest.approx([0, 1, 0])


def test_the_output_of_a_graph_that_pools_itself_is_used_unchanged(tmp_path: Path) -> None:
    encode = OnnxEncoder(open_onnx_folder(write_model(tmp_path / "pooling", pools=True)))
    assert encode(["north up"])[0] == pytest.approx([HALF, 0, HALF])


def test_waypost_json_sets_prefix_token_limit_and_pooling(folder: Path) -> None:
    (folder / "waypost.json").write_text(json.dumps({"prefix": "up ", "max_tokens": 2}))
    assert OnnxEncoder(open_onnx_folder(folder))(["east north north"])[0] == pytest.approx([0, HALF, HALF])


def test_an_onnx_model_replaces_the_network_and_its_name_identifies_it(folder: Path) -> None:
    chosen = choose_embedder(f"onnx:{folder}", None)
    slow, quick = chosen.spaces
    assert (slow.embedder.dims, slow.is_quick, slow.quantizer.lists) == (3, False, 1)
    assert (quick.embedder.dims, quick.is_quick) == (256, True)
    assert slow.embedder.encode(["up"])[0] == pytest.approx([0, 0, 1])
    (folder / "waypost.json").write_text(json.dumps({"prefix": "up "}))
    assert choose_embedder(f"onnx:{folder}", None).spaces[0].name != slow.name


def test_landmarks_in_the_folder_are_used(folder: Path) -> None:
    np.save(folder / "landmarks.npy", np.eye(3, dtype=np.int8))
    assert choose_embedder(f"onnx:{folder}", None).spaces[0].quantizer.lists == 3
    np.save(folder / "landmarks.npy", np.eye(4, dtype=np.int8))
    with pytest.raises(ConfigurationError, match=r"landmarks\.npy"):
        choose_embedder(f"onnx:{folder}", None)
    (folder / "landmarks.npy").write_bytes(b"nonsense")
    with pytest.raises(ConfigurationError, match=r"landmarks\.npy"):
        choose_embedder(f"onnx:{folder}", None)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx_data", "tokenizer.json", "landmarks.npy"])
def test_other_weights_or_landmarks_are_another_space(folder: Path, name: str) -> None:
    """Otherwise vectors of the old model would stay, and an index with other lists could not be opened."""
    content = (folder / name).read_bytes() if (folder / name).exists() else b"old"
    (folder / name).write_bytes(content)
    before = open_onnx_folder(folder).name
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert open_onnx_folder(folder).name != before
    (folder / name).write_bytes(content)
    assert open_onnx_folder(folder).name == before


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_missing_model_file_is_named_in_the_error(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=name) as refused:
        choose_embedder(f"onnx:{folder}", None)
    assert refused.value.path == "embedder"


@pytest.mark.parametrize(
    ("file", "content"),
    [("config.json", "{}"), ("config.json", "["), ("waypost.json", '{"pooling": "sum"}'), ("waypost.json", '{"x": 1}')],
)
def test_a_model_folder_with_an_invalid_configuration_is_refused(folder: Path, file: str, content: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(ConfigurationError):
        choose_embedder(f"onnx:{folder}", None)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_leaves_the_service_without_its_vectors(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"nonsense")
    chosen = choose_embedder(f"onnx:{folder}", None)
    with pytest.raises(Unavailable, match="cannot be used"):
        chosen.spaces[0].embedder.encode(["up"])
    assert len(chosen.failures) == 1


def test_another_length_than_stated_is_noticed(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4}))
    with pytest.raises(Unavailable, match="3 numbers, not of 4"):
        OnnxEncoder(open_onnx_folder(folder))


def test_missing_packages_are_named_with_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(__import__("sys").modules, "tokenizers")
    with pytest.raises(ConfigurationError, match="tokenizers") as refused:
        open_onnx_folder(folder)
    assert "waypost[onnx]" in (refused.value.hint or "")
