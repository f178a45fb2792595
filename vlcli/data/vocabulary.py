"""Sentences to vocabulary ids and back; WordPiece as BERT has it, on the ``tokenizers`` library."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from vlcli.data.files import parse_json
from vlcli.data.preparation import PREPARATIONS, preparation
from vlcli.data.sample import TextSample
from vlcli.data.word_pieces import WordPieces
from vlcli.errors import DataError
from vlcli.files import write_text

# The library warns at every fork once it has used threads; texts here are encoded one by one, so none are used.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

SPECIALS = {
    "pad": ("[PAD]", "<pad>", "<|endoftext|>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
    "cls": ("[CLS]", "<s>", "<|startoftext|>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}
"""The names special tokens go by: BERT's first, then those of RoBERTa and T5, of CLIP, and of Gemma."""
STAND_INS = {"cls": "sep", "mask": "unk", "pad": "sep"}
"""Whose id stands for a special token that a vocabulary of byte pairs or of a unigram model may lack: sentences then
begin without a class token, and nothing can be masked (``Tokenizer.maskable``)."""
FILES = ("tokenizer.json", "vocab.txt")
_WORD = re.compile(r"\S+")
ACCENTS = 0.01
"""Share of words with accents above which a vocabulary keeps them."""


class Tokenizer:
    """A vocabulary with what turns sentences into its ids.

    Args:
        engine: the tokenizer of the ``tokenizers`` library, without post-processing of its own.
        lowercase: whether it folds case (and accents), for the record.
        source: where it came from, for messages.
    """

    def __init__(self, engine: tokenizers.Tokenizer, *, lowercase: bool, source: str = "") -> None:
        engine.no_padding()
        engine.no_truncation()
        self.engine, self.lowercase, self.source = engine, lowercase, source
        known = {name: _special(engine, names) for name, names in SPECIALS.items()}
        self.ids = _complete(engine, known, source)
        self.begun, self.maskable = known["cls"] is not None, known["mask"] is not None
        self._special_ids = frozenset(self.ids.values())
        self._hidden = self._special_ids - {self.ids["unk"]}
        self.prepare, self.ended = PREPARATIONS["as-written"], True
        self._by_words = WordPieces(engine)

    def reading(self, options: Mapping[str, Any]) -> Tokenizer:
        """The same vocabulary, with sentences prepared and ended as a recipe's or a bundle's text options say.

        Args:
            options: ``prepare`` and ``words`` (:mod:`vlcli.data.preparation`), ``end`` (``sep`` or ``none``); what is
                not named is as written, whole, and ended by ``[SEP]``.
        """
        made = copy(self)
        made.prepare = preparation(str(options.get("prepare", "as-written")), options.get("words"))
        made.ended = options.get("end", "sep") == "sep"
        return made

    @classmethod
    def load(cls, source: str | Path, lowercase: bool = True) -> Tokenizer:
        """From a folder (``tokenizer.json`` or ``vocab.txt``), one of these files, or a name on the Hugging Face hub.

        Args:
            source: folder, file or hub name.
            lowercase: fold case; where ``tokenizer.json`` or ``tokenizer_config.json`` say otherwise, they hold.

        Raises:
            DataError: nothing is there, the file is damaged, or the hub cannot be reached.
        """
        path = Path(source).expanduser()
        if path.is_dir():
            return cls._from_folder(path, lowercase)
        if path.is_file():
            return cls._from_file(path, lowercase)
        if path.suffix in (".txt", ".json") or str(source).startswith((".", "/", "~")) or str(source).count("/") > 1:
            raise _absent(str(source))
        return cls._from_folder(_download(str(source)), lowercase)

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int = 1000, *, lowercase: bool = True, min_frequency: int = 1
    ) -> Tokenizer:
        """A WordPiece vocabulary of at most ``size`` entries made from ``texts``; the same texts give the same one.

        Where case is folded, accents go too, as in BERT's English vocabularies, unless one word in a hundred has some:
        in such a language they tell words apart (and are part of letters, as in Japanese and Korean).

        Raises:
            DataError: the texts hold no word, or ``size`` has no room for their letters.
        """
        from vlcli.data.wordpiece import learn

        normaliser, splitter = _normaliser(lowercase, accents=True), pre_tokenizers.BertPreTokenizer()
        counts: dict[str, int] = {}
        for text in texts:
            for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(text)):
                counts[word] = counts.get(word, 0) + 1
        plain = {word: word if word.isascii() else _normaliser(lowercase).normalize_str(word) for word in counts}
        changed = sum(count for word, count in counts.items() if plain[word] != word)
        accents = changed > ACCENTS * sum(counts.values())
        if not accents:
            merged: dict[str, int] = {}
            for word, count in counts.items():
                if plain[word]:
                    merged[plain[word]] = merged.get(plain[word], 0) + count
            counts = merged
        specials = [names[0] for names in SPECIALS.values()]
        pieces = [*specials, *learn(counts, size - len(specials), min_frequency)]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        return cls(_wordpiece(vocabulary, lowercase, accents=accents), lowercase=lowercase)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, ``vocab.txt`` and ``tokenizer_config.json``, which transformers loads too."""
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = self.engine.get_vocab()
        words = sorted(vocabulary, key=vocabulary.__getitem__)
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            **({"strip_accents": False} if self.lowercase and _keeps_accents(self.engine) else {}),
            "model_max_length": 512,
            **{f"{name}_token": self.engine.id_to_token(number) for name, number in self.ids.items()},
        }
        write_text(folder / "vocab.txt", "\n".join(words) + "\n")
        write_text(folder / "tokenizer_config.json", json.dumps(config, indent=1) + "\n")
        write_text(folder / "tokenizer.json", self.engine.to_str(pretty=False))

    def data_spec_fields(self) -> dict[str, int]:
        """Size of the vocabulary and ids of special pieces, as fields of ``vlcli.nn.model.DataSpec``."""
        return {"vocab_size": len(self), **{f"{name}_id": number for name, number in self.ids.items()}}

    def encode(self, raw: str, key: str = "", length: int | None = None) -> TextSample:
        """One sentence as ``[CLS] pieces [SEP]``, or without ``[SEP]``, prepared as :meth:`reading` was told.

        Args:
            raw: the sentence.
            key: text id; by default the sentence itself.
            length: most pieces, specials included; pieces that do not fit are cut off before ``[SEP]``.
        """
        return self._encoded(self.prepare(raw), key or raw, length, self.ended)

    def encode_answer(self, raw: str) -> TextSample:
        """What a decoder says: always as it is written, and ended by ``[SEP]``."""
        return self._encoded(raw, raw, None, True)

    def _encoded(self, raw: str, key: str, length: int | None, ended: bool) -> TextSample:
        first = [self.ids["cls"]] * self.begun
        room = None if length is None else max(length - len(first) - ended, 0)
        pieces, words = self._by_words.cut(raw) or self._cut(raw)
        pieces, words = pieces[:room], words[:room]
        ids = [*first, *pieces, *[self.ids["sep"]] * ended]
        inner = [number in self._hidden for number in pieces]
        special = [*[True] * len(first), *inner, *[True] * ended]
        return TextSample(key, raw, ids, special, [*[-1] * len(first), *words, *[-1] * ended])

    def _cut(self, raw: str) -> tuple[list[int], list[int]]:
        """Ids of a sentence's pieces, and the number of the word that each begins in."""
        encoding = self.engine.encode(raw, add_special_tokens=False)
        starts = [match.start() for match in _WORD.finditer(raw)]
        return encoding.ids, [bisect_right(starts, start) - 1 for start, _ in encoding.offsets]

    def pieces(self, words: str) -> tuple[int, ...]:
        """The ids of a few words' pieces, without specials."""
        return tuple(self.engine.encode(words, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """Ids as a sentence, special tokens left out unless asked for."""
        hidden = frozenset() if specials else self._hidden
        kept = [self.engine.id_to_token(int(number)) or "" for number in ids if int(number) not in hidden]
        return str(self.engine.decoder.decode(kept)) if self.engine.decoder else " ".join(kept)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces themselves, e.g. to write beside an attention map."""
        return [self.engine.id_to_token(int(number)) or "" for number in ids]

    def id(self, token: str) -> int | None:
        """The id of one piece, None where it is not in the vocabulary."""
        number: int | None = self.engine.token_to_id(token)
        return number

    def __len__(self) -> int:
        """Entries of the vocabulary, added ones included."""
        return int(self.engine.get_vocab_size())

    @classmethod
    def _from_folder(cls, folder: Path, lowercase: bool) -> Tokenizer:
        config = folder / "tokenizer_config.json"
        if config.is_file():
            lowercase = bool(_json(config).get("do_lower_case", lowercase))
        for name in FILES:
            if (folder / name).is_file():
                return cls._from_file(folder / name, lowercase)
        got = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        raise DataError("The folder holds no vocabulary.", where=str(folder), got=got, expected=" or ".join(FILES))

    @classmethod
    def _from_file(cls, file: Path, lowercase: bool) -> Tokenizer:
        if file.suffix == ".json":
            engine, folded = _read_engine(file), _json(file).get("normalizer") or {}
            return cls(engine, lowercase=bool(folded.get("lowercase", lowercase)), source=str(file))
        words = [line.rstrip("\r") for line in _text(file).rstrip("\n").split("\n")]
        vocabulary = {word: number for number, word in enumerate(words)}
        if len(vocabulary) != len(words):
            twice = next(word for number, word in enumerate(words) if vocabulary[word] != number)
            raise DataError("The vocabulary lists a piece twice.", where=str(file), got=repr(twice))
        return cls(_wordpiece(vocabulary, lowercase, str(file)), lowercase=lowercase, source=str(file))


def _normaliser(lowercase: bool, accents: bool = False) -> Any:
    return normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False if accents else None)


def _keeps_accents(engine: tokenizers.Tokenizer) -> bool:
    return getattr(engine.normalizer, "strip_accents", None) is False


def _wordpiece(
    vocabulary: dict[str, int], lowercase: bool, source: str = "", accents: bool = False
) -> tokenizers.Tokenizer:
    if SPECIALS["unk"][0] not in vocabulary:
        raise _lacks("unk", source)
    engine = tokenizers.Tokenizer(
        models.WordPiece(vocabulary, unk_token=SPECIALS["unk"][0], max_input_chars_per_word=100)
    )
    engine.normalizer = _normaliser(lowercase, accents)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.add_special_tokens([names[0] for names in SPECIALS.values() if names[0] in vocabulary])
    return engine


def _special(engine: tokenizers.Tokenizer, names: tuple[str, ...]) -> int | None:
    return next((int(number) for name in names if (number := engine.token_to_id(name)) is not None), None)


def _complete(engine: tokenizers.Tokenizer, known: Mapping[str, int | None], source: str) -> dict[str, int]:
    """Ids of all special tokens; those of CLIP and SigLIP have stand-ins for what they lack.

    Raises:
        DataError: one is missing that no other stands for.
    """
    loose = not isinstance(engine.model, models.WordPiece | models.WordLevel)
    made: dict[str, int] = {}
    for name, number in known.items():
        other = known.get(STAND_INS.get(name, "")) if loose else None
        found = number if number is not None else other
        if found is None:
            raise _lacks(SPECIALS[name][0], source)
        made[name] = found
    return made


def _lacks(name: str, source: str) -> DataError:
    return DataError(
        "The vocabulary lacks a special token.",
        where=source,
        got=f"no {name}",
        expected="[PAD] [UNK] [CLS] [SEP] [MASK]",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "The vocabulary cannot be read.", where=str(file), got=f"{type(error).__name__}: {error}"
        ) from None


def _json(file: Path) -> dict[str, Any]:
    content = parse_json(_text(file), str(file))
    return content if isinstance(content, dict) else {}


def _read_engine(file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(_text(file))
    except DataError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise DataError("The tokenizer file is damaged.", where=str(file), got=str(error)) from None


def _download(name: str) -> Path:
    """The folder of the hub's cache that holds the vocabulary called ``name``."""
    from huggingface_hub import hf_hub_download

    cause = ""
    for file in FILES:
        try:
            return Path(hf_hub_download(name, file)).parent
        except Exception as error:  # offline, unknown name and missing file each have classes of their own
            cause = str(error).strip().split("\n", 1)[0]
    raise _absent(name, cause=cause)


def _absent(name: str, cause: str = "") -> DataError:
    return DataError(
        "The vocabulary is not here and cannot be fetched.",
        where="text.vocabulary",
        got=name + (f" ({cause})" if cause else ""),
        expected="a folder, a file, or a name on the Hugging Face hub",
        hint="give a folder or file that is here: text.vocabulary=FOLDER (vocab.txt, tokenizer.json)",
    )
