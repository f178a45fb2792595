"""Converts sentences to vocabulary ids and back, with BERT's WordPiece or any tokenizer of ``tokenizers``."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from vlcli.data.files import parse_json
from vlcli.data.preparation import PREPARATIONS, preparation
from vlcli.data.sample import TextSample
from vlcli.errors import DataError
from vlcli.files import write_text

# The library warns at every fork once it has used threads; texts here are encoded one by one, so none are used.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

# Names of the special tokens: BERT's first, then those of RoBERTa and T5, of CLIP, and of Gemma.
SPECIALS = {
    "pad": ("[PAD]", "<pad>", "<|endoftext|>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
    "cls": ("[CLS]", "<s>", "<|startoftext|>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}
# The token whose id replaces a special token that a byte-pair or unigram vocabulary may lack: sentences then begin
# without a class token, and nothing can be masked (`Tokenizer.maskable`).
STAND_INS = {"cls": "sep", "mask": "unk", "pad": "sep"}
FILES = ("tokenizer.json", "vocab.txt")
_WORD = re.compile(r"\S+")
# Words whose pieces a process keeps.
_KEPT_WORDS = 200_000
# Share of words with accents above which a vocabulary keeps them.
ACCENTS = 0.01


class Tokenizer:
    """A vocabulary that converts sentences to ids.

    BERT's pre-tokenizer splits at every space, so the pieces of a sentence are those of its words one after another: of
    printable ASCII, each different word is cut once. Other sentences are cut whole.

    Args:
        engine: the tokenizer of the ``tokenizers`` library, without post-processing of its own.
        lowercase: whether it folds case (and accents), for the record.
        source: where it came from, for messages.
    """

    def __init__(self, engine: tokenizers.Tokenizer, *, lowercase: bool, source: str = "") -> None:
        engine.no_padding()
        engine.no_truncation()
        self.engine, self.lowercase, self.source = engine, lowercase, source
        known = {
            name: next((int(number) for one in names if (number := engine.token_to_id(one)) is not None), None)
            for name, names in SPECIALS.items()
        }
        self.ids = _complete(engine, known, source)
        self.begun, self.maskable = known["cls"] is not None, known["mask"] is not None
        self._hidden = frozenset(self.ids.values()) - {self.ids["unk"]}
        self.prepare, self.ended = PREPARATIONS["as-written"], True
        self._splits_at_spaces, self._pieces_of = _splits_at_spaces(engine), dict[str, list[int]]()

    def reading(self, options: Mapping[str, Any]) -> Tokenizer:
        """Return a copy that prepares and ends sentences as a recipe's or a bundle's text options say.

        They are ``prepare`` and ``words`` (:mod:`vlcli.data.preparation`; by default as written, whole), ``end``
        (``sep``, ``none``).
        """
        other = copy(self)
        other.prepare = preparation(str(options.get("prepare", "as-written")), options.get("words"))
        other.ended = options.get("end", "sep") == "sep"
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pieces_of": {}}  # they belong to this process

    @classmethod
    def load(cls, source: str | Path, lowercase: bool = True) -> Tokenizer:
        """Read a folder (``tokenizer.json`` or ``vocab.txt``), one of these files, or a name on the Hugging Face hub.

        Case is folded with ``lowercase``, unless ``tokenizer.json`` or ``tokenizer_config.json`` say otherwise. Raises
        DataError: nothing is there, the file is damaged, or the hub cannot be reached.
        """
        path, name = Path(source).expanduser(), str(source)
        if path.is_file():
            return cls._from_file(path, lowercase)
        if not path.is_dir():
            if path.suffix in (".txt", ".json") or name.startswith((".", "/", "~")) or name.count("/") > 1:
                raise _absent(name)
            path = _download(name)
        return cls._from_folder(path, lowercase)

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int = 1000, *, lowercase: bool = True, min_frequency: int = 1
    ) -> Tokenizer:
        """Learn a WordPiece vocabulary of at most ``size`` entries; the same texts give the same one.

        Where case is folded, accents go too, as in BERT's English vocabularies, unless one word in a hundred has some:
        in such a language they tell words apart (and are part of letters, as in Japanese and Korean). Raises DataError:
        the texts hold no word, or ``size`` has no room for their letters.
        """
        from vlcli.data.wordpiece import learn

        normaliser, splitter = _normaliser(lowercase, accents=True), pre_tokenizers.BertPreTokenizer()
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(text)))
        plain = {word: word if word.isascii() else _normaliser(lowercase).normalize_str(word) for word in counts}
        accents = sum(n for word, n in counts.items() if plain[word] != word) > ACCENTS * counts.total()
        if not accents:
            merged: Counter[str] = Counter()
            for word, count in counts.items():
                merged[plain[word]] += count
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
        accents = self.lowercase and getattr(self.engine.normalizer, "strip_accents", None) is False
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            **({"strip_accents": False} if accents else {}),
            "model_max_length": 512,
            **{f"{name}_token": self.engine.id_to_token(number) for name, number in self.ids.items()},
        }
        write_text(folder / "vocab.txt", "\n".join(words) + "\n")
        write_text(folder / "tokenizer_config.json", json.dumps(config, indent=1) + "\n")
        write_text(folder / "tokenizer.json", self.engine.to_str(pretty=False))

    def data_spec_fields(self) -> dict[str, int]:
        """Return the vocabulary's size and the ids of special tokens, as fields of ``vlcli.nn.DataSpec``."""
        return {"vocab_size": len(self), **{f"{name}_id": number for name, number in self.ids.items()}}

    def encode(self, raw: str, key: str = "", length: int | None = None) -> TextSample:
        """Encode a sentence as ``[CLS] pieces [SEP]``, prepared and ended as :meth:`reading` set it.

        Args:
            key: text id; by default the sentence itself.
            length: most pieces, specials included; pieces that do not fit are cut off before ``[SEP]``.
        """
        return self._encoded(self.prepare(raw), key or raw, length, self.ended)

    def encode_answer(self, raw: str) -> TextSample:
        """Encode a sentence for a decoder to write: as it is, and ended by ``[SEP]``."""
        return self._encoded(raw, raw, None, True)

    def _encoded(self, raw: str, key: str, length: int | None, ended: bool) -> TextSample:
        begun = self.begun
        room = None if length is None else max(length - begun - ended, 0)
        pieces, words = (numbers[:room] for numbers in self._cut(raw))
        ids = [*[self.ids["cls"]] * begun, *pieces, *[self.ids["sep"]] * ended]
        special = [*[True] * begun, *(number in self._hidden for number in pieces), *[True] * ended]
        return TextSample(key, raw, ids, special, [*[-1] * begun, *words, *[-1] * ended])

    def _cut(self, raw: str) -> tuple[list[int], list[int]]:
        if not (self._splits_at_spaces and raw.isascii() and raw.isprintable()):
            encoding = self.engine.encode(raw, add_special_tokens=False)
            starts = [match.start() for match in _WORD.finditer(raw)]
            return encoding.ids, [bisect_right(starts, start) - 1 for start, _ in encoding.offsets]
        ids: list[int] = []
        words: list[int] = []
        for number, word in enumerate(raw.split()):
            pieces = self._pieces_of.get(word)
            if pieces is None:
                pieces = self.engine.encode(word, add_special_tokens=False).ids
                if len(self._pieces_of) < _KEPT_WORDS:
                    self._pieces_of[word] = pieces
            ids += pieces
            words += [number] * len(pieces) if len(pieces) != 1 else (number,)
        return ids, words

    def pieces(self, words: str) -> tuple[int, ...]:
        return tuple(self.engine.encode(words, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        kept = self.tokens([number for number in ids if specials or int(number) not in self._hidden])
        return str(self.engine.decoder.decode(kept)) if self.engine.decoder else " ".join(kept)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.engine.id_to_token(int(number)) or "" for number in ids]

    def id(self, token: str) -> int | None:
        return self.engine.token_to_id(token)

    def __len__(self) -> int:
        return int(self.engine.get_vocab_size())

    @classmethod
    def _from_folder(cls, folder: Path, lowercase: bool) -> Tokenizer:
        config = folder / "tokenizer_config.json"
        if config.is_file():
            lowercase = bool(_json(config).get("do_lower_case", lowercase))
        if file := next(filter(Path.is_file, (folder / name for name in FILES)), None):
            return cls._from_file(file, lowercase)
        got = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        raise DataError("The folder holds no vocabulary.", where=str(folder), got=got, expected=" or ".join(FILES))

    @classmethod
    def _from_file(cls, file: Path, lowercase: bool) -> Tokenizer:
        if file.suffix == ".json":
            engine, folded = _read_engine(file), _json(file).get("normalizer") or {}
            return cls(engine, lowercase=bool(folded.get("lowercase", lowercase)), source=str(file))
        words = [line.rstrip("\r") for line in _text(file).rstrip("\n").split("\n")]
        vocabulary = {word: number for number, word in enumerate(words)}
        if twice := [word for number, word in enumerate(words) if vocabulary[word] != number]:
            raise DataError("The vocabulary lists a piece twice.", where=str(file), got=repr(twice[0]))
        return cls(_wordpiece(vocabulary, lowercase, str(file)), lowercase=lowercase, source=str(file))


def _splits_at_spaces(engine: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer is BERT's: nothing in it looks beyond a space."""
    content = json.loads(engine.to_str())
    kinds = [(content.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    odd = (token["lstrip"] or token["rstrip"] or " " in token["content"] for token in content.get("added_tokens", ()))
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and not any(odd)


def _normaliser(lowercase: bool, accents: bool = False) -> Any:
    return normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False if accents else None)


def _wordpiece(
    vocabulary: dict[str, int], lowercase: bool, source: str = "", accents: bool = False
) -> tokenizers.Tokenizer:
    if SPECIALS["unk"][0] not in vocabulary:
        raise _lacks("unk", source)
    model = models.WordPiece(vocabulary, unk_token=SPECIALS["unk"][0], max_input_chars_per_word=100)
    engine = tokenizers.Tokenizer(model)
    engine.normalizer = _normaliser(lowercase, accents)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.add_special_tokens([names[0] for names in SPECIALS.values() if names[0] in vocabulary])
    return engine


def _complete(engine: tokenizers.Tokenizer, known: Mapping[str, int | None], source: str) -> dict[str, int]:
    loose = not isinstance(engine.model, models.WordPiece | models.WordLevel)
    ids: dict[str, int] = {}
    for name, known_id in known.items():
        number = known.get(STAND_INS.get(name, "")) if known_id is None and loose else known_id
        if number is None:
            raise _lacks(SPECIALS[name][0], source)
        ids[name] = number
    return ids


def _lacks(name: str, source: str) -> DataError:
    what, expected = "The vocabulary lacks a special token.", "[PAD] [UNK] [CLS] [SEP] [MASK]"
    return DataError(what, where=source, got=f"no {name}", expected=expected)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError("The vocabulary cannot be read.", where=str(file), got=got) from None


def _json(file: Path) -> dict[str, Any]:
    content = parse_json(_text(file), str(file))
    return content if isinstance(content, dict) else {}


def _read_engine(file: Path) -> tokenizers.Tokenizer:
    content = _text(file)
    try:
        return tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises bare Exception
        raise DataError("The tokenizer file is damaged.", where=str(file), got=str(error)) from None


def _download(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    cause = ""
    for file in FILES:
        try:
            return Path(hf_hub_download(name, file)).parent
        except Exception as error:  # offline, unknown name and missing file each have classes of their own
            cause = str(error).strip().split("\n", 1)[0]
    raise _absent(f"{name} ({cause})")


def _absent(name: str) -> DataError:
    what = "The vocabulary is not here and cannot be fetched."
    expected = "a folder, a file, or a name on the Hugging Face hub"
    hint = "give a folder or file that is here: text.vocabulary=FOLDER (vocab.txt, tokenizer.json)"
    return DataError(what, where="text.vocabulary", got=name, expected=expected, hint=hint)
