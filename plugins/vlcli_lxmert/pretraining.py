"""Writes LXMERT's pre-training data: files grouped by image, the answer table, Table 1."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlcli.data import ANSWER_TABLE_SIZE, answer_rows, best_answer, build_answer_table, minival
from vlcli.errors import DataError
from vlcli.files import write_json, write_text
from vlcli.metrics import table_form
from vlcli.progress import Progress
from vlcli_lxmert.aggregate import SPLITS, CorpusSource, aggregate, composition, find_sources, refuse_tests
from vlcli_lxmert.readers import HELD, read_data, refuse_leaks, write_data, writing

Changes = Mapping[str, Mapping[str, Any] | None]
"""By data set, what differs from its usual reader; None leaves it out."""


def write_pretraining(
    root: Path, out: Path, progress: Progress, changes: Changes | None = None, minival_file: str | None = None
) -> dict[str, Any]:
    """Writes LXMERT's files and ``minival.txt`` into ``out``; returns ``files`` and ``composition``.

    Raises DataError: nothing is there, a file is malformed, or an image of a test split would be trained on.
    """
    sources = find_sources(root, changes)
    refuse_tests(sources)
    if minival(root, minival_file)[0] is None:
        progress.warn("there is no list of minival: all of COCO's validation images are held out")
    data = aggregate(sources, root, minival_file=minival_file, progress=progress)
    by_split = {split: list(images.values()) for split, images in data.items() if images}
    refuse_leaks(by_split, [file for source in sources for file in source.files], root)
    files = [out / f"{split}.json" for split in by_split]
    for file, images in zip(files, by_split.values(), strict=True):
        write_data(file, images)
    if names := [datum.image for split in HELD for datum in by_split.get(split, ())]:
        files.append(out / "minival.txt")
        with writing(files[-1]):
            write_text(files[-1], "".join(f"{name}\n" for name in names))
    return {"files": [str(file) for file in files], "composition": composition(by_split)}


def table_one(root: Path, progress: Progress, changes: Changes | None = None) -> list[dict[str, Any]]:
    """Returns LXMERT's Table 1 of aggregated files, else of the official ones. Raises DataError: there are none."""
    files = {split: file for split in SPLITS if (file := root / f"lxmert/{split}.json").is_file()}
    if files and not changes:
        progress.info(f"counted in {', '.join(map(str, files.values()))}")
        return composition({split: read_data(file) for split, file in files.items()})
    data = aggregate(find_sources(root, changes), root, progress=progress)
    return composition({split: images.values() for split, images in data.items()})


def write_answers(
    root: Path, out: Path, progress: Progress, changes: Changes | None = None, size: int = ANSWER_TABLE_SIZE
) -> dict[str, Any]:
    """Writes the answer table of the question sets under ``root`` in the form of ``all_ans.json``.

    Returns ``file``, ``answers``, ``sets`` (answers that belong to each) and ``questions`` (the share of each set that
    the table answers). Raises DataError: no questions are there.
    """
    counts = {source.name: best for source in find_sources(root, changes) if (best := _best(source, progress))}
    if not counts:
        raise DataError("There are no questions to make a table of.", where=str(root), expected="VQA, GQA or VG's")
    table = build_answer_table(counts, size)
    with writing(out):
        write_json(out, answer_rows(table))
    return {
        "file": str(out),
        "answers": len(table),
        "sets": dict(Counter(name for names in table.sets for name in names)),
        "questions": {
            name: sum(n for answer, n in best.items() if table.find(answer) is not None) / best.total()
            for name, best in counts.items()
        },
    }


def _best(source: CorpusSource, progress: Progress) -> Counter[str]:
    counts: Counter[str] = Counter()
    for split, reader in source.parts.items():
        best = (best_answer(example.targets) for example in reader.examples())
        if asked := [answer for answer in best if answer is not None]:
            progress.info(f"{source.name} {split}: {len(asked):,} questions")
        # VQA's table is made of answers that its own rule has normalised first.
        counts.update(table_form(answer) if source.name == "vqa" else answer for answer in asked)
        reader.forget()
    return counts
