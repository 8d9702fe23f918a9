"""Language models in a folder: real ones of transformers and sentence-transformers, too small to be good, over real tables."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest

from poscod import POSCOD, Activations
from poscod.backends.texts import open_text_model
from poscod.cli import main
from poscod.exceptions import InvalidInputError

pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "what",
    "is",
    "my",
    "balance",
    "pay",
    "the",
    "bill",
    "card",
    "lost",
    "please",
    "a",
    "b",
    "c",
]
CLASSES = ("balance", "bill", "lost card")
TEXTS = ["what is my balance", "pay the bill", "card lost", "please a b c a b c a b c a b c a b c"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A classifier, the same without its head, and an encoder of sentences, each in a folder."""
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages about themselves
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
        from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

        torch.manual_seed(0)
        tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}, model_max_length=12)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        names = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: i for i, name in enumerate(CLASSES)}}
        config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=12, num_labels=3, **sizes, **names)
        network = BertForSequenceClassification(config).eval()
        for name, part in (("classifier", network), ("body", network.bert)):
            part.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        body = Transformer(str(folder / "body"), max_seq_length=12)
        SentenceTransformer(modules=[body, Pooling(16)], device="cpu").save(str(folder / "sentences"))
    return folder, tokenizer, network


def test_classifier_is_run_as_transformers_runs_it(models):
    import torch

    folder, tokenizer, network = models
    model = open_text_model(folder / "classifier")
    assert model.classes == CLASSES
    assert model.max_tokens == 12
    found = model.activations(TEXTS, labels=np.array([0, 1, 2, -1]), batch_size=3)
    assert model.cut == 1
    with torch.inference_mode():
        given = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
        np.testing.assert_allclose(found.logits, network(**given).logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(found.features, network.bert(**given).pooler_output.numpy(), atol=1e-5)
    np.testing.assert_allclose(found.logits, found.features @ found.weight.T + found.bias, atol=1e-5)
    assert found.classes.tolist() == list(CLASSES)
    assert found.labels.tolist() == [0, 1, 2, -1]
    short = open_text_model(folder / "classifier", max_tokens=5)
    short.activations(TEXTS)
    assert short.cut == 2


def test_sentences_become_means_of_tokens(models):
    import torch

    folder, tokenizer, network = models
    model = open_text_model(folder / "sentences")
    found = model.activations(TEXTS, batch_size=3)
    assert (model.cut, model.classes, found.logits) == (1, (), None)
    with torch.inference_mode():
        given = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
        tokens, mask = network.bert(**given).last_hidden_state, given["attention_mask"][:, :, None]
    np.testing.assert_allclose(found.features, ((tokens * mask).sum(1) / mask.sum(1)).numpy(), atol=1e-5)
    with pytest.raises(InvalidInputError, match="layer is for classifiers"):
        model.activations(TEXTS, layer="0")


def shell(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.fixture
def questions(tmp_path):
    rows = [f'{i},{text},"{name}"' for i, (text, name) in enumerate(zip(TEXTS, (*CLASSES, "oos"), strict=True))]
    path = tmp_path / "questions.csv"
    path.write_text("\n".join(["id,question,intent", *rows]))
    return path


def test_table_keeps_its_columns(models, questions, tmp_path, capsys):
    folder, out = models[0], tmp_path / "known.parquet"
    words = ("extract", questions, "--text", "question", "--target", "intent", "--model", folder / "classifier", "-o")
    code, said, err = shell(capsys, *words, out)
    assert code == 0, err
    assert "4 texts: 16 features, 3 logits." in said
    assert "of 3 labeled texts." in said
    assert "('balance', 'bill', 'lost card'): 1." in said
    assert "Note: cut at the end: 1 of 4 texts, longer than the 12 tokens that are read." in said
    assert "Its columns for poscod fit: --embedding embedding --logits 'logit_*'" in said
    table = pq.read_table(out)
    logits = [f"logit_{name}" for name in CLASSES]
    assert table.column_names == ["id", "question", "intent", "embedding", *logits]
    expected = open_text_model(folder / "classifier").activations(TEXTS)
    np.testing.assert_allclose(np.column_stack([table[name] for name in logits]), expected.logits, atol=1e-6)
    assert table["question"].to_pylist() == TEXTS
    assert shell(capsys, *words, tmp_path / "known.npz")[0] == 0
    written = Activations.load(tmp_path / "known.npz")
    assert (written.labels.tolist(), written.classes.tolist()) == ([0, 1, 2, -1], list(CLASSES))
    np.testing.assert_allclose(written.features, expected.features, atol=1e-6)
    document = json.loads(shell(capsys, *words, out, "--json")[1])
    assert (document["cut"], document["labeled"], len(document["warnings"])) == (1, 3, 3)


def test_from_texts_to_a_model(models, tmp_path, capsys, rng):
    """Sentences of known words, and traffic with words that no sentence had."""
    known = [" ".join(rng.permutation(["my", "balance", "is", "what"])[: 3 + i % 2]) for i in range(60)]
    other = [" ".join(rng.permutation(["pay", "the", "bill", "please"])[: 3 + i % 2]) for i in range(60)]
    strange = [" ".join(rng.choice(["a", "b", "c"], 4)) for _ in range(40)]
    lines = [f"{text},{label}" for texts, label in ((known, "balance"), (other, "bill")) for text in texts]
    (tmp_path / "labeled.csv").write_text("\n".join(["text,intent", *lines]))
    (tmp_path / "log.txt").write_text("\n".join([*known[:30], *other[:30], *strange]))
    for name, columns in (("labeled.csv", ("--text", "text")), ("log.txt", ())):
        target = tmp_path / name.replace(name[-4:], ".parquet")
        code, _, err = shell(
            capsys, "extract", tmp_path / name, *columns, "--model", models[0] / "sentences", "-o", target
        )
        assert code == 0, err
    words = ("--target", "intent", "--embedding", "embedding", "--ratio", "paper", "--tpr-min", "0.9")
    model = tmp_path / "model.poscod"
    code, said, err = shell(capsys, "fit", tmp_path / "labeled.parquet", tmp_path / "log.parquet", *words, "-o", model)
    assert code == 0, err
    assert "16 features ('embedding'), a classifier was trained" in said
    accepted = POSCOD.load(model).decide(open_text_model(models[0] / "sentences").activations(strange).features).accept
    assert accepted.mean() < 0.3


def test_refusals_are_sentences(models, questions, tmp_path, capsys):
    folder = models[0]
    pickled, code = tmp_path / "pickled", tmp_path / "code"
    shutil.copytree(folder / "classifier", pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    shutil.copytree(folder / "classifier", code)
    config = json.loads((code / "config.json").read_text())
    (code / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    foreign = tmp_path / "foreign"
    shutil.copytree(folder / "sentences", foreign)
    (foreign / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Model"}]))
    empty, gaps = tmp_path / "empty", tmp_path / "gaps.csv"
    empty.mkdir()
    gaps.write_text("question,intent\nwhat is,a\n,b\n")
    (tmp_path / "no.txt").write_text("\n\n")
    text = ("--text", "question", "--model")
    for source, words, sentence in (
        (questions, (*text, "bert-base-uncased"), "bert-base-uncased is not a folder: nothing is downloaded"),
        (questions, (*text, empty), "must hold a model of transformers (config.json)"),
        (questions, (*text, folder / "body"), "it was not trained as a classifier"),
        (questions, (*text, pickled), "pytorch_model.bin may hold a pickle and is not read"),
        (questions, (*text, code), "names code of its own (auto_map)"),
        (questions, (*text, foreign), "got 'evil.Model': no other code is run"),
        (questions, ("--model", folder / "sentences"), "--text is missing: name the column of"),
        (questions, ("--text", "qestion", "--model", folder / "sentences"), "did you mean 'question'?"),
        (questions, ("--text", "id", "--model", folder / "sentences"), "'id' of"),
        (questions, (*text, folder / "sentences", "--max-tokens", "1"), "--max-tokens must be a whole number >= 3"),
        (questions, (*text, folder / "sentences", "--resize", "3"), "--resize is not for texts"),
        (questions, (*text, folder / "sentences", "--amp", "bfloat16"), "--amp is for classifiers"),
        (
            gaps,
            (*text, folder / "sentences"),
            "the column of --text must hold a text in every row, got an empty text at row 2",
        ),
        (tmp_path / "no.txt", ("--model", folder / "sentences"), "has no texts"),
    ):
        done, out, err = shell(capsys, "extract", source, *words, "-o", tmp_path / "out.parquet")
        assert (done, out) == (2, ""), err
        assert sentence in err
        assert err.count("\n") == 1
    done, _, err = shell(capsys, "extract", questions, *text, folder / "sentences", "-o", tmp_path / "out.csv")
    assert done == 2
    assert "lists of numbers, which CSV cannot" in err
    assert not [*tmp_path.glob("out.*")]
