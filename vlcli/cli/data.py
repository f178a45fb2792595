"""``vlcli data``: makes a world, counts what a recipe's data hold; packages add commands to the group."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Exit, Option

from vlcli import registry
from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, report, verb
from vlcli.cli.plugin import PluginGroup
from vlcli.plain import comma_list
from vlcli.recipe.load import load
from vlcli.recipe.overrides import parse
from vlcli.recipe.stage_record import writing_alone

app = typer.Typer(
    cls=PluginGroup, help="Data: make a world, look at a recipe's data.", no_args_is_help=True, rich_markup_mode=None
)
_WORD_LIST = "Where to: JSON where the name ends so, else `word, POS, count`."
_UNSURE = "not found on an official page; look at the source before you rely on it"


@verb(app, "make", "seed", "json_", "quiet", "verbose")
def make(
    request: RunRequest,
    world: Annotated[str, Argument(help="Which world: shapes.")],
    folder: Annotated[Path, Argument(help="Where to.")],
    words: options.Words = None,
    images: Annotated[int | None, Option(min=20, help="Pictures of the shared set.")] = None,
    size: Annotated[int | None, Option(min=64, help="Side of a picture in pixels.")] = None,
    workers: Annotated[int, Option(min=1, help="Processes that draw.")] = min(4, os.cpu_count() or 1),
) -> None:
    """Generate a world with annotations in every benchmark's own format.

    vlcli data make shapes DATA --images 4000 captions=3
    """
    from vlcli.stages.make import world_config

    spec: dict[str, Any] = {"name": world}
    for override in map(parse, words or []):
        spec[".".join(override.keys)] = override.value
    numbers = {"images": images, "size": size, "seed": request.seed}
    spec |= {key: value for key, value in numbers.items() if value is not None}
    config = world_config(spec, "make")
    with writing_alone(folder):
        counts = config.make(folder, request.progress(), workers)
    if request.json_:
        console.out_json({"path": str(folder), "counts": counts})
        return
    console.table(["what", "how many"], [[name, f"{number:,}"] for name, number in counts.items()])
    console.out(str(folder))


@verb(app, "stats", "output", "plugin", "trust", "json_", "verbose")
def stats(
    request: RunRequest,
    words: options.RecipesAndWords = None,
    stage: Annotated[str | None, Option(help="One stage alone.")] = None,
    root: Annotated[Path | None, Option(help="LXMERT's Table 1 of a data root instead.")] = None,
) -> None:
    """Count examples, pictures and words of every data set that a recipe names.

    With --root instead of a recipe: the same as `vlcli data composition ROOT`.
    """
    from vlcli.tools.dataset_counts import dataset_counts

    if root is not None and not options.split_words(words)[0]:
        registry.load("commands", "data.composition")(root, words, json_=request.json_, verbose=request.verbose)
        return
    name, overrides = options.one_name(words)
    rows, unknown = dataset_counts(load(name, overrides, only=stage, trust=request.trust), stage, request.output)
    if request.json_:
        document = [{**row, "error": row["error"].as_dict()} if "error" in row else row for row in rows]
        console.out_json({"recipe": name, "data": document, **({"notes": unknown} if unknown else {})})
    else:
        columns = ["stage", "data set", "split", "examples", "pictures", "texts", "words"]
        console.table(columns, [[str(row.get(column, "cannot be read")) for column in columns] for row in rows])
        notes = (f"{row['stage']}: {line}" for row in rows for line in row.get("notes", ()))
        console.out_lines(dict.fromkeys([*notes, *unknown]))
        for row in rows:
            if "composition" in row:
                titles = registry.load("datasets", row["data set"]).composition_titles
                console.counts(row["composition"], titles, f"{row['stage']}: {row['data set']}")
    errors = dict.fromkeys(row["error"] for row in rows if "error" in row)
    if codes := [report(error, verbose=request.verbose) for error in errors]:
        raise Exit(codes[0])


@verb(app, "coverage")
def coverage(
    answers: Annotated[Path, Argument(help="Answers of a task, e.g. trainval_label2ans.json.")],
    table: Annotated[Path, Argument(help="The table they are looked for in, e.g. all_ans.json.")],
    json_: options.Json = False,
) -> None:
    """Count the answers of one table that another one has, as fine-tuning takes over the rows of an answer head."""
    from vlcli.data.answers import mapped, read_answers

    wanted = read_answers(answers).strings
    count, missing = mapped(wanted, read_answers(table))
    if json_:
        console.out_json({"mapped": count, "answers": len(wanted), "missing": missing})
        return
    console.out(f"{count:,} of {len(wanted):,} answers have a row")
    if missing:
        console.out(f"without one: {comma_list(map(repr, missing), 10)}")


@verb(app, "concepts")
def concepts(
    captions: Annotated[list[Path], Argument(help="Caption files: COCO's, Karpathy's, {image, captions}, or text.")],
    out: Annotated[Path, Option("--out", "-o", help=_WORD_LIST)] = Path("concepts.txt"),
    size: Annotated[int, Option(min=0, help="Most words; 0 for all.")] = 1000,
    pos: Annotated[str, Option(help="Parts of speech: NN, VB, JJ, IN, DT, PRP, other, or all.")] = "NN,VB,JJ",
    function_words: Annotated[bool, Option("--function-words", help="Keep articles and auxiliaries.")] = False,
    min_count: Annotated[int, Option(min=1, help="How often a word must occur.")] = 1,
    split: Annotated[str, Option(help="Of a Karpathy file; several with commas.")] = "train",
    json_: options.Json = False,
) -> None:
    """Make the word list of visual concepts: the most frequent words of captions.

    vlcli data concepts captions_train2014.json --out words.txt --size 1000
    """
    from collections import Counter

    from vlcli.data.concepts import build_vocabulary, write_vocabulary
    from vlcli.data.english import GROUPS
    from vlcli.data.readers.captions import read_captions

    texts = [caption for path in captions for caption in read_captions(path, split.split(","))]
    chosen = GROUPS if pos == "all" else tuple(options.comma_separated(pos))
    words = build_vocabulary(texts, size, pos=chosen, function_words=function_words, min_count=min_count)
    path = write_vocabulary(out, words)
    groups = Counter(word.pos for word in words)
    if json_:
        console.out_json({"path": str(path), "images": len(texts), "words": len(words), "pos": dict(groups)})
        return
    rows = [[word.word, word.pos, f"{word.count:,}", f"{word.images:,}"] for word in words[:10]]
    console.table(["most frequent", "part of speech", "times", "pictures"], rows)
    by_group = ", ".join(f"{count} {group}" for group, count in groups.most_common())
    console.out(f"{path}: {len(words)} words ({by_group}) of {len(texts):,} pictures")


@verb(app, "unpack", "json_", "quiet", "verbose")
def unpack(
    request: RunRequest,
    source: Annotated[Path, Argument(help="A file or folder of Parquet, Arrow or arrays (.npz, idx, CIFAR).")],
    into: Annotated[Path, Option("--out", "-o", help="The folder to make: images/ and a .jsonl for each split.")],
    max_pixels: options.MaxPixels = 178,
) -> None:
    """Write pictures that lie inside tables or arrays to files, with the other columns as JSON lines.

    vlcli data unpack photos.parquet --out photos
    """
    from vlcli.tools.unpacking import unpack as write_out

    with writing_alone(into):
        unpacked = write_out(source, into, max_pixels * 1_000_000, request.progress())
    if request.json_:
        console.out_json({"path": str(into), **vars(unpacked)})
        return
    console.table(["table", "rows"], [[f"{name}.jsonl", f"{count:,}"] for name, count in unpacked.tables.items()])
    console.out(f"{unpacked.pictures:,} pictures in {into / 'images'}")
    console.err_lines(f"left out {where}: {why}" for where, why in list(unpacked.bad.items())[:5])
    if len(unpacked.bad) > 5:
        console.err(f"left out {len(unpacked.bad) - 5:,} more rows")
    console.out(f"next: vlcli init {into} -o first.yaml")


@verb(app, "where")
def where(words: options.RecipesAndWords = None, trust: options.Trust = False, json_: options.Json = False) -> None:
    """Say of every data set and checkpoint of a recipe whether it is there, and how you get it where it is not.

    Nothing is downloaded: the commands are for you to run. Without a recipe: every data set that vlcli knows.
    """
    from vlcli.tools.published import NOT_VERIFIED, SOURCES, wanted_by

    if not words:
        if json_:
            console.out_json({"sources": {name: source._asdict() for name, source in SOURCES.items()}})
            return
        rows = [[name, one.title, one.size, one.licence, one.url] for name, one in sorted(SOURCES.items())]
        console.table(["reader", "data set", "size", "licence", "source"], rows)
        console.out(f"{NOT_VERIFIED}: {_UNSURE}")
        return
    name, overrides = options.one_name(words)
    wanted = wanted_by(load(name, overrides, trust=trust))
    if json_:
        console.out_json({"recipe": name, "wanted": [one.as_dict() for one in wanted]})
        return
    cells = [[one.what, one.name, one.state, ", ".join(one.stages)] for one in wanted]
    console.table(["what", "name", "state", "stages"], cells)
    for one in wanted:
        if one.missing:
            console.out(f"\n{one.name} ({', '.join(one.stages)}) is missing:")
            console.out_lines(f"  {line}" for line in [*one.missing[:6], *_how_to_get(one.source)])


def _how_to_get(source: Any) -> list[str]:
    from vlcli.tools.published import NOT_VERIFIED

    if source is None:
        return ["these are files of your own: check the recipe's `root`, e.g. root=FOLDER"]
    facts = {"source": source.url, "licence": source.licence, "size": source.size, "layout under root": source.layout}
    lines = [f"{label}: {text}" for label, text in facts.items() if text]
    by_hand = "to get it: follow the page (a form, or pictures by address)"
    lines += ["to get it, in the data root:" if source.commands else by_hand]
    lines += [f"  {line}" for line in source.commands]
    return [*lines, *([f"{NOT_VERIFIED}: {_UNSURE}"] if NOT_VERIFIED in f"{source.licence} {source.size}" else [])]
