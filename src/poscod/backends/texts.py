# SPDX-License-Identifier: BSD-3-Clause
"""Language models in a local folder: sequence classifiers of transformers and models of sentence-transformers, over texts.

Convention: nothing is downloaded, no code of a folder is run, and weights are .safetensors. A text that is longer than what a model reads is cut at its end and counted.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poscod._files import open_source
from poscod._optional import require
from poscod._validation import check_count, listed
from poscod.activations import Activations
from poscod.backends._running import Blocks, reason, watched
from poscod.backends._spool import Spool
from poscod.exceptions import InvalidInputError

__all__ = ["TextModel", "open_text_model"]

# Modules of sentence-transformers that compute and import nothing that a folder names.
MODULES = ("Dense", "Dropout", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding", "Transformer")
# Of a tokenizer without a limit.
_NO_LIMIT = 10**6
_EXTRA = "texts"


class TextModel(ABC):
    """A language model that turns texts into `Activations`; see `open_text_model`.

    Attributes
    ----------
    classes : tuple of str
        Names of its classes, in the order of the logits; empty where it makes embeddings only.
    max_tokens : int or None
        Tokens that it reads of a text; None for all.
    cut : int
        Texts of the last call that were longer.
    """

    classes: tuple[str, ...] = ()
    max_tokens: int | None = None
    cut = 0

    def activations(
        self,
        texts: Sequence[str],
        *,
        labels: Any = None,
        batch_size: int = 32,
        to: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Activations:
        """Run the model over texts.

        Parameters
        ----------
        texts : sequence of str
            The texts, none of them empty.
        labels : array-like of shape (n,), default=None
            Class indices, or -1.
        batch_size : int, default=32
            Texts at a time.
        to : str or path-like, default=None
            A file (.npz or .safetensors) to write; rows go to disk batch by batch, and what is returned is a memory map of it.
        progress : bool, default=None
            Whether to show a bar; None shows one on a terminal.
        **options : dict
            ``device``, and for a classifier ``amp``, ``layer``, ``dtype``, as in `poscod.backends.torch.extract`.

        Returns
        -------
        rows : Activations
            Of a classifier pooled features, logits and the last layer; of other models the embedding as features.
        """
        texts = [_text(text, row) for row, text in enumerate(texts)]
        self.cut = 0
        return self._run(texts, labels, check_count(batch_size, "batch_size"), to, progress, options)

    @abstractmethod
    def _run(
        self, texts: list[str], labels: Any, batch_size: int, to: Any, progress: bool | None, options: dict[str, Any]
    ) -> Activations:
        """Run the model over checked texts."""

    def _count(self, tokenizer: Any, texts: list[str]) -> None:
        """Count the texts that are longer than what is read."""
        if self.max_tokens is not None:
            tokens = tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
            self.cut += sum(len(ids) > self.max_tokens for ids in tokens)


class SequenceClassifier(TextModel):
    """A classifier of transformers and its tokenizer."""

    def __init__(self, folder: Path, max_tokens: int | None) -> None:
        transformers = require("transformers", extra=_EXTRA, feature="Running a language model")
        where: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        with _sentences(folder), _silent(transformers):
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **where)
            self.network, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                str(folder), use_safetensors=True, output_loading_info=True, **where
            )
        config = self.network.config
        if missing := sorted(info["missing_keys"]):
            raise InvalidInputError(
                f"{folder} has no weights for {listed(missing[-4:])}: it was not trained as a classifier. Train one, or take a folder of "
                "sentence-transformers for embeddings."
            )
        if config.num_labels < 2 or config.problem_type in ("regression", "multi_label_classification"):
            raise InvalidInputError(
                f"{folder} must hold a classifier of one label out of several, got {config.problem_type or 'one output'}."
            )
        if self.tokenizer.pad_token is None:  # generative models have none; the end of a text is as good
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if config.pad_token_id is None:
            config.pad_token_id = self.tokenizer.pad_token_id
        self.classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
        limits = (max_tokens, self.tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
        self.max_tokens = min((limit for limit in limits if limit and limit < _NO_LIMIT), default=None)

    def _run(
        self, texts: list[str], labels: Any, batch_size: int, to: Any, progress: bool | None, options: dict[str, Any]
    ) -> Activations:
        from poscod.backends.torch import extract

        def batch(rows: slice) -> Any:
            self._count(self.tokenizer, texts[rows])
            cut = {"truncation": True, "max_length": self.max_tokens} if self.max_tokens else {}
            given = self.tokenizer(texts[rows], padding=True, return_tensors="pt", verbose=False, **cut)
            return {**given, **({} if labels is None else {"labels": labels[rows]})}

        batches = Blocks(len(texts), batch_size, batch)
        return extract(self.network, batches, to=to, progress=progress, classes=self.classes, **options)


class SentenceEncoder(TextModel):
    """A model of sentence-transformers."""

    def __init__(self, folder: Path, max_tokens: int | None) -> None:
        package = require("sentence_transformers", extra=_EXTRA, feature="Running a model of sentence-transformers")
        for module in _json(folder / "modules.json"):
            kind = str(module.get("type", "")) if isinstance(module, dict) else ""
            if not kind.startswith("sentence_transformers.") or kind.rpartition(".")[2] not in MODULES:
                raise InvalidInputError(
                    f"{folder / 'modules.json'} must name modules of sentence-transformers ({', '.join(MODULES)}), got '{kind}': no other code is run."
                )
        with _sentences(folder), _silent(require("transformers", extra=_EXTRA, feature="Running a language model")):
            self.network = package.SentenceTransformer(
                str(folder),
                device="cpu",
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        own = self.network.max_seq_length
        self.max_tokens = own if max_tokens is None else min(max_tokens, own or max_tokens)
        if self.max_tokens is not None and self.max_tokens != own:
            self.network.max_seq_length = self.max_tokens

    def _run(
        self, texts: list[str], labels: Any, batch_size: int, to: Any, progress: bool | None, options: dict[str, Any]
    ) -> Activations:
        if unknown := [name for name in options if name not in ("device", "dtype") and options[name] is not None]:
            raise InvalidInputError(f"{{{unknown[0]}}} is for classifiers: leave it out.", got=options[unknown[0]])
        blocks = Blocks(len(texts), batch_size, lambda rows: (rows, texts[rows]))
        with Spool(to, dtype=options.get("dtype", "float32")) as spool:
            for rows, part in watched(blocks, "extract", progress, extra=_EXTRA):
                self._count(self.network.tokenizer, part)
                found = self.network.encode(
                    part, batch_size=batch_size, show_progress_bar=False, device=options.get("device")
                )
                spool.add(found, None, None if labels is None else labels[rows])
            return spool.finish()


def open_text_model(path: str | os.PathLike[str], *, max_tokens: int | None = None) -> TextModel:
    """Open a language model in a local folder.

    Parameters
    ----------
    path : str or path-like
        A folder as ``save_pretrained`` of transformers writes it (a sequence classifier with its tokenizer), or as ``save`` of sentence-transformers does (it has a
        file modules.json). Nothing is downloaded, weights are .safetensors, and code in the folder is not run.
    max_tokens : int, default=None
        Tokens to read of a text; None reads as many as the model can.

    Returns
    -------
    model : TextModel
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InvalidInputError(
            f"{folder} is not a folder: nothing is downloaded; save the model there with save_pretrained (transformers) or save "
            "(sentence-transformers), with its tokenizer, and give the folder."
        )
    if max_tokens is not None:
        check_count(max_tokens, "max_tokens", 3)
    sentences = (folder / "modules.json").exists()
    if not sentences and not (folder / "config.json").exists():
        raise InvalidInputError(
            f"{folder} must hold a model of transformers (config.json) or of sentence-transformers (modules.json)."
        )
    for file in folder.rglob("*.json"):
        if file.name in ("config.json", "tokenizer_config.json") and "auto_map" in _json(file):
            raise InvalidInputError(f"{file} names code of its own (auto_map), which is not run: use a model without.")
    for file in sorted({*folder.rglob("*.bin"), *folder.rglob("*.pt"), *folder.rglob("*.pth")}):
        if not any(file.parent.glob("*.safetensors")):
            raise InvalidInputError(
                f"{file} may hold a pickle and is not read: save the model again with safe_serialization=True, which writes .safetensors."
            )
    return SentenceEncoder(folder, max_tokens) if sentences else SequenceClassifier(folder, max_tokens)


def is_text_model(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder looks like a language model."""
    return any((Path(path) / name).is_file() for name in ("modules.json", "config.json"))


def _text(text: Any, row: int) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(
            "{texts} must hold a text in every row, got {got} at row {row}.", got=_got(text), row=row
        )
    return text


def _got(text: Any) -> str:
    return "an empty text" if isinstance(text, str) else "a gap" if text is None else repr(text)


def _json(path: Path) -> Any:
    """Read a small file of a model."""
    try:
        with open_source(path) as file:
            return json.load(file)
    except ValueError as error:
        raise InvalidInputError(f"{path} could not be read as JSON ({reason(error)}).") from None


@contextmanager
def _sentences(folder: Path) -> Iterator[None]:
    """Turn what the packages raise into one sentence."""
    try:
        yield
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{folder} could not be opened as a language model ({reason(error)}).") from error


@contextmanager
def _silent(transformers: Any) -> Iterator[None]:
    """Keep transformers from printing bars and advice while it reads files."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
