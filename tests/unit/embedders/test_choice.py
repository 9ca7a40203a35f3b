"""Choosing, loading and caching embedders."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from waypost import limits
from waypost.embedders.choice import NO_MULTILINGUAL_MODEL, choose_embedder
from waypost.embedders.lazy_embedder import LazyEmbedder, ModelLoader
from waypost.errors import ConfigurationError, Unavailable
from waypost.search.vectors import SpaceRole, Vectors


class Counting:
    """A model whose vectors are the lengths of the texts."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> Vectors:
        self.asked.append(list(texts))
        return np.array([[len(text), 1] for text in texts], np.float32).reshape(-1, 2)


def lazy(model: Counting, cached: int = limits.EMBEDDER_VECTOR_CACHE) -> LazyEmbedder:
    return LazyEmbedder("counting", 2, ModelLoader(lambda: {"model": model}), "model", cached)


# --- Choosing -------------------------------------------------------------------------------------


_SLOW_AND_QUICK = [(SpaceRole.MULTILINGUAL, False), (SpaceRole.STATIC, True)]


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("auto", [*_SLOW_AND_QUICK, (SpaceRole.ENGLISH, False)]),
        ("use", _SLOW_AND_QUICK),
        ("minilm", [(SpaceRole.ENGLISH, False), (SpaceRole.STATIC, True)]),
    ],
)
def test_each_setting_has_its_spaces(setting: str, wanted: list[tuple[SpaceRole, bool]]) -> None:
    chosen = choose_embedder(setting, None)
    assert [(space.role, space.is_quick) for space in chosen.spaces] == wanted
    assert len({space.name for space in chosen.spaces}) == len(wanted)
    assert chosen.warnings == ()
    assert [space.embedder.encode(["hello world"]).shape for space in chosen.spaces] == [(1, 256)] * len(wanted)


def test_nothing_is_loaded_before_it_is_needed() -> None:
    chosen = choose_embedder("auto", None)
    assert not any(loading.is_ready for loading in chosen.loaders)


def test_loading_goes_on_in_the_background() -> None:
    chosen = choose_embedder("auto", None)
    chosen.load()
    for space in chosen.spaces:
        space.embedder.encode(["waits for it"])
    assert all(loading.is_ready for loading in chosen.loaders)
    assert chosen.failures == ()


def test_none_means_none_and_no_warning() -> None:
    assert choose_embedder("none", None) == ((), (), ())


def test_without_the_package_the_english_model_answers_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for setting in ("auto", "minilm"):
        chosen = choose_embedder(setting, None)
        assert [space.role for space in chosen.spaces] == [SpaceRole.ENGLISH]
        assert chosen.warnings == (NO_MULTILINGUAL_MODEL,)
    with pytest.raises(ConfigurationError, match="not installed"):
        choose_embedder("use", None)


@pytest.mark.parametrize("setting", ["", "USE", "mini", "onnx"])
def test_an_unknown_embedder_is_refused_with_the_valid_values(setting: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        choose_embedder(setting, None)
    assert refused.value.path == "embedder"
    assert "onnx:FOLDER" in (refused.value.hint or "")


# --- Loading --------------------------------------------------------------------------------------


def test_a_model_is_loaded_once_for_all_callers() -> None:
    gate, loads = threading.Event(), []

    def load() -> dict[str, Counting]:
        loads.append(1)
        assert gate.wait(120)
        return {"model": Counting()}

    loading = ModelLoader(load)
    embedder = LazyEmbedder("slow", 2, loading, "model")
    got: list[Vectors] = []
    loading.start()
    threads = [threading.Thread(target=lambda: got.append(embedder.encode(["abc"]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not embedder.is_ready
    gate.set()
    for thread in threads:
        thread.join(120)
    assert embedder.is_ready
    assert len(got) == 3
    assert loads == [1]


def test_a_model_that_cannot_be_loaded_raises_its_reason_each_time(caplog: pytest.LogCaptureFixture) -> None:
    def load() -> dict[str, Counting]:
        raise Unavailable("The disk is gone.", hint="Find it.")

    loading = ModelLoader(load)
    embedder = LazyEmbedder("broken", 2, loading, "model")
    for _ in range(2):
        with pytest.raises(Unavailable, match="The disk is gone"):
            embedder.encode(["abc"])
    assert not embedder.is_ready
    assert "The disk is gone. Find it." in (loading.failure or "")
    assert len(caplog.records) == 1


_EXIT_WHILE_LOADING = """
import threading
from waypost.embedders.english_encoder import load_english
from waypost.embedders.lazy_embedder import ModelLoader

inside = threading.Event()
def load():
    loaded = load_english()
    inside.set()
    for _ in range(100):
        loaded["english"](["agent " * 100])
    return loaded
threading.Thread(target=ModelLoader(load).start, daemon=True).start()
assert inside.wait(120)
"""


def test_a_process_that_ends_while_a_model_runs_ends_cleanly() -> None:
    command = [sys.executable, "-c", _EXIT_WHILE_LOADING]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


# --- Remembering ----------------------------------------------------------------------------------


def test_a_question_is_embedded_once() -> None:
    model = Counting()
    embedder = lazy(model)
    for _ in range(2):
        assert embedder.encode_parts("whole", []).tolist() == [[5, 1]]
        assert embedder.encode_parts("whole", ["a clause", "b"]).tolist() == [[5, 1], [8, 1], [1, 1]]
    assert model.asked == [["whole"], ["whole", "a clause", "b"]]


def test_changing_a_returned_vector_does_not_change_the_cache() -> None:
    embedder = lazy(Counting())
    embedder.encode_parts("abc", [])[:] = 0
    assert embedder.encode_parts("abc", []).tolist() == [[3, 1]]


def test_the_longest_unused_is_forgotten() -> None:
    model = Counting()
    embedder = lazy(model, 2)
    for text in ("a", "b", "a", "c"):
        embedder.encode_parts(text, [])
    assert len(embedder) == 2
    embedder.encode_parts("a", [])
    embedder.encode_parts("b", [])
    assert model.asked == [["a"], ["b"], ["c"], ["b"]]


def test_texts_of_agents_are_not_remembered() -> None:
    embedder = lazy(Counting())
    embedder.encode(["what it is", "an example"])
    embedder.encode(["what it is, without an example"])
    embedder.encode_parts("many", [str(number) for number in range(limits.EMBEDDER_CACHED_BATCH)])
    assert len(embedder) == 0
    assert embedder.encode([]).shape == (0, 2)
    assert (embedder.name, embedder.dims, embedder.is_ready) == ("counting", 2, True)
