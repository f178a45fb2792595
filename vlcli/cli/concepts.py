"""``vlcli data concepts``: the vocabulary of visual concepts, from captions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def concepts(
    captions: Annotated[
        list[Path], typer.Argument(help="Caption files: COCO's, Karpathy's, {image, captions}, or text.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Where to: JSON where the name ends so, else `word, POS, count`.")
    ] = Path("concepts.txt"),
    size: Annotated[int, typer.Option("--size", min=0, help="Most words; 0 for all.")] = 1000,
    pos: Annotated[
        str, typer.Option("--pos", help="Parts of speech: NN, VB, JJ, IN, DT, PRP, other, or all.")
    ] = "NN,VB,JJ",
    function_words: Annotated[
        bool, typer.Option("--function-words", help="Keep articles, auxiliaries and the like.")
    ] = False,
    min_count: Annotated[int, typer.Option("--min-count", min=1, help="How often a word must occur.")] = 1,
    split: Annotated[str, typer.Option("--split", help="Of a Karpathy file; several with commas.")] = "train",
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Make the word list of visual concepts: the most frequent words of captions.

    vlcli data concepts captions_train2014.json --out words.txt --size 1000
    """
    from collections import Counter

    from vlcli.cli import console
    from vlcli.data.caption_files import read_captions
    from vlcli.data.concepts import build_vocabulary, write_vocabulary
    from vlcli.data.english import GROUPS

    texts = [found for path in captions for found in read_captions(path, split.split(","))]
    chosen = GROUPS if pos == "all" else tuple(part.strip() for part in pos.split(","))
    words = build_vocabulary(texts, size, pos=chosen, function_words=function_words, min_count=min_count)
    path = write_vocabulary(out, words)
    groups = Counter(word.pos for word in words)
    if json_:
        console.out_json({"path": str(path), "images": len(texts), "words": len(words), "pos": dict(groups)})
        return
    rows = [[word.word, word.pos, f"{word.count:,}", f"{word.images:,}"] for word in words[:10]]
    console.table(["most frequent", "part of speech", "times", "pictures"], rows)
    told = ", ".join(f"{count} {group}" for group, count in groups.most_common())
    console.out(f"{path}: {len(words)} words ({told}) of {len(texts):,} pictures")
