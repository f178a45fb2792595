"""Keeps the token ids of sentences beside their columns, written by whichever process needs them first."""

import hashlib
import json
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.data.columns.index import is_whole, remembered, write_meta
from vlcli.data.columns.strings import Strings, StringsWriter
from vlcli.data.columns.table import ColumnExamples
from vlcli.data.sample import TextSample
from vlcli.files import locked, new_folder

_META = "tokens.json"
_WIDE = 1 << 16


class Tokens:
    """Token ids of the sentences of a folder of columns.

    A record holds a sentence's N ids (2 or 4 bytes each) and the words they belong to (2 bytes each): -1 for specials
    around it, -2 - W for a special within word W.
    """

    def __init__(self, folder: Path, prepare: Any) -> None:
        self._records, self._prepare = Strings(folder, "tokens"), prepare
        self._code: str = json.loads((folder / _META).read_bytes())["code"]
        self._size = array(self._code).itemsize + 2

    def samples(self, rows: Sequence[int], texts: Sequence[str], keys: Sequence[str]) -> list[TextSample]:
        """Return the sentences of several rows, in lists that the caller may change; an empty key: the sentence."""
        records = self._records.read_many(rows)
        counts = [len(record) // self._size for record in records]
        joined = b"".join(record[: -2 * count] for record, count in zip(records, counts, strict=True))
        ids = np.frombuffer(joined, self._code).tolist()
        words = np.frombuffer(b"".join(r[-2 * count :] for r, count in zip(records, counts, strict=True)), np.int16)
        special, positions = (words < 0).tolist(), np.where(words < -1, -2 - words, words).tolist()
        samples = []
        for text, key, (start, stop) in zip(texts, keys, pairwise(accumulate(counts, initial=0)), strict=True):
            raw = self._prepare(text)
            samples.append(TextSample(key or raw, raw, ids[start:stop], special[start:stop], positions[start:stop]))
        return samples


def tokens_of(examples: ColumnExamples, tokenizer: Any, length: int | None) -> Tokens | None:
    """Return the token ids of the examples' sentences, written where they are missing; None where they do not fit."""
    cut = hashlib.sha256(tokenizer.engine.to_str().encode()).hexdigest()
    folder = remembered(examples, "tokens", [cut, repr(tokenizer.prepare), tokenizer.ended, length])
    if not is_whole(folder, _META):
        with locked(folder.parent):
            if not is_whole(folder, _META) and not _write(folder, examples, tokenizer, length):
                return None
    return Tokens(folder, tokenizer.prepare)


def _write(folder: Path, examples: ColumnExamples, tokenizer: Any, length: int | None) -> bool:
    code = "H" if len(tokenizer) <= _WIDE else "I"
    chosen = None if examples.rows is None else set(np.asarray(examples.rows).tolist())
    with new_folder(folder) as beside:
        with StringsWriter(beside, "tokens") as writer:
            for row, text in enumerate(examples.texts()):
                if text is None or (chosen is not None and row not in chosen):
                    writer.append(b"")
                    continue
                sample = tokenizer.encode(text, "", length)
                words = sample.words
                if sum(sample.special) != words.count(-1):
                    words = [-2 - w if s and w >= 0 else w for w, s in zip(words, sample.special, strict=True)]
                if len(words) > 1 and max(words) > 32_000:
                    return False
                writer.append(array(code, sample.ids).tobytes() + array("h", words).tobytes())
                if not row & 0xFFFF:
                    writer.settle()
        write_meta(beside, _META, code=code)
    return True
