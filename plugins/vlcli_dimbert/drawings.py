"""The pictures of the DiMBERT paper: what regions and words look at (Figure 3), captions side by side (Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vlcli.data import FUNCTION_WORDS, Example
from vlcli.drawings import Album, Drawing, DrawingContext, paired, save_numbers, save_picture, side_by_side
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import UsageError
from vlcli.nn import CONCEPT, Batch, Recorder, Text
from vlcli.report import COLOURS, INK, Cell, contact_sheet, draw_boxes
from vlcli_dimbert.stream import SingleStream

SHORT = 320
"""Small pictures are enlarged to this many pixels before boxes are drawn on them."""
QUIET = "#707070"


@dataclass
class Grounding:
    """Attention of the last layer between the regions of a picture and its words.

    Attributes:
        boxes: (R, 4) in shares of the picture.
        words: words of the sentence, then of the concepts, each with its kind (``sentence`` or ``concept``).
        seen: (W, R) from every word to every region.
        named: (R, W) from every region to every word.
    """

    boxes: Tensor
    words: list[tuple[str, str]]
    seen: Tensor
    named: Tensor


class GroundedWords(Drawing):
    """Which regions a word looks at, and which words a region looks at: attention of the last layer, heads averaged.

    Of each picture four panels, as in the paper's Figure 3: (a) a word with its top regions; (b) a region with its top
    words out of sentence and concepts; (c) the same region in each further model of ``from`` (one without concepts, as
    published); (d) the same region where the model is given no sentence.

    Args:
        count: examples drawn, the first of the data.
        word: the word of panel (a); None: the content word that looks at regions most.
        top: so many regions, and so many words.
    """

    paper = "DiMBERT, Liu et al. 2021, Figure 3"
    reads_data = True

    def __init__(self, *, count: int = 4, word: str | None = None, top: int = 3) -> None:
        self.count, self.word, self.top = count, word, top

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundles = _called(scene.bundles())
        runners = {name: scene.runner(bundle, limit=self.count) for name, bundle in bundles.items()}
        if not runners:
            scene.bundle()  # says what is lacking
        first = next(iter(runners.values()))
        album, made, numbers = Album(first.data), [], []
        for code in range(min(self.count, first.data.total)):
            cells, told = self._panels(scene.device, bundles, runners, code, album)
            file = scene.folder / f"grounding-{code + 1}.png"
            made.append(save_picture(contact_sheet(cells, columns=len(cells), width=SHORT), file))
            numbers.append(told)
        return [*made, save_numbers(numbers, scene.folder / "grounding.json")]

    def _panels(
        self, device: str, bundles: dict[str, Bundle], runners: dict[str, TaskRunner], code: int, album: Album
    ) -> tuple[list[Cell], dict[str, Any]]:
        found = {name: grounding(runner, bundles[name], code, device) for name, runner in runners.items()}
        (name, own), *others = found.items()
        alone = grounding(runners[name], bundles[name], code, device, sentence=False)
        example = runners[name].data.examples[code]
        picture = _enlarged(album.open(example.images[0]))
        word = self._word(own)
        regions = own.seen[word].topk(min(self.top, len(own.boxes))).indices.tolist()
        told: dict[str, Any] = {"key": example.key, "sentence": example.text, "word": own.words[word][0]}
        told["regions"] = {str(row): round(float(own.seen[word, row]), 4) for row in regions}
        cells = [_regions_cell(picture, own, word, regions, str(example.text))]
        panels = [(name, own), *others, (f"{name}, no sentence", alone)]
        for letter, (label, shown) in zip("bcdefgh", panels, strict=False):
            best = self._named(shown, regions[0])
            told[label] = {f"{text} ({kind})": round(weight, 4) for text, kind, weight in best}
            cells.append(_words_cell(picture, shown, regions[0], best, f"({letter}) {label}"))
        return cells, told

    def _word(self, own: Grounding) -> int:
        spoken = [place for place, (_, kind) in enumerate(own.words) if kind == "sentence"]
        if self.word is not None:
            hits = [place for place in spoken if own.words[place][0].lower() == self.word.lower()]
            if not hits:
                expected = " ".join(own.words[place][0] for place in spoken)
                where = "drawing dimbert-grounding, word"
                raise UsageError("The sentence has no such word.", where=where, got=self.word, expected=expected)
            return hits[0]
        content = [place for place in spoken if own.words[place][0].lower() not in FUNCTION_WORDS] or spoken
        if not content:
            raise UsageError("The sentence has no word.", where="drawing dimbert-grounding")
        return max(content, key=lambda place: float(own.seen[place].sum()))

    def _named(self, shown: Grounding, region: int) -> list[tuple[str, str, float]]:
        weights = shown.named[min(region, len(shown.named) - 1)]
        order = weights.argsort(descending=True)[: self.top].tolist()
        return [(*shown.words[place], float(weights[place])) for place in order]


def _called(bundles: dict[str, Bundle]) -> dict[str, Bundle]:
    short = [Path(name).name for name in bundles]
    return dict(zip(short, bundles.values(), strict=True)) if len(set(short)) == len(short) else bundles


def grounding(runner: TaskRunner, bundle: Bundle, code: int, device: str, *, sentence: bool = True) -> Grounding:
    """What one example's words and regions look at in the last layer.

    Args:
        runner: the model on its data.
        bundle: its vocabulary.
        code: which example; of several pictures the first is looked at.
        device: where the model is.
        sentence: False: only the separators are given in its place.

    Raises:
        UsageError: the model is no single stream, or reads no text.
    """
    model = runner.model
    if not isinstance(model, SingleStream) or bundle.tokenizer is None:
        got, expected = type(model).__name__, "dimbert, uniter or vl-bert"
        raise UsageError("The drawing is of a single stream over regions and words.", got=got, expected=expected)
    batch = runner.data.batch([code]).to(device)
    batch = batch if sentence else _speechless(batch)
    record = Recorder()
    with evaluating(runner.module), torch.no_grad():
        runner.step(batch, record=record).fused()
        boxes, words = _columns(model, bundle, batch)
    last = [weights for name, weights in record.attention.items() if name.startswith("fuse.")][-1]
    weights = last[0].float().mean(0).cpu()  # (T, T)
    count = len(boxes)
    regions = slice(1, 1 + count)
    seen = [weights[places, regions].mean(0) for _, _, places in words]
    named = [weights[regions][:, places].sum(1) for _, _, places in words]
    empty = torch.zeros(0, count)
    return Grounding(
        boxes,
        [(text, kind) for text, kind, _ in words],
        torch.stack(seen) if seen else empty,
        torch.stack(named, 1) if named else empty.T,
    )


def _columns(model: SingleStream, bundle: Bundle, batch: Batch) -> tuple[Tensor, list[tuple[str, str, list[int]]]]:
    view = batch.clean
    assert view.images is not None
    assert view.text is not None
    row, block = int(view.image_rows[0, 0]), model.embed_image(view.images).layout
    assert view.images.regions is not None
    boxes = view.images.regions.boxes[row][view.images.regions.mask[row]].cpu()
    found: list[tuple[str, str, list[int]]] = []
    prefix = 1 + block.route.shape[1] * view.image_rows.shape[1]
    ids, owner = view.text.ids[0], view.text.words[0].tolist()
    for number in dict.fromkeys(word for word in owner if word >= 0):
        places = [place for place, word in enumerate(owner) if word == number]
        text = bundle.tokenizer.decode([int(ids[place]) for place in places]).strip(".,!?;:") or "."
        found.append((text, "sentence", [prefix + place - 1 for place in places]))
    concepts = view.images.concepts
    if model.concepts is not None and concepts is not None:
        columns = (block.route[row] == CONCEPT).nonzero()[:, 0].tolist()
        pieces, slot, _ = model.concepts(concepts)
        real = (pieces[row] >= 0).tolist()
        for number, concept in enumerate(concepts.ids[row, : model.concepts.most].tolist()):
            own = [
                1 + column
                for column, there, of in zip(columns, real, slot[row].tolist(), strict=True)
                if there and of == number
            ]
            if own:
                found.append((model.data_spec.concepts[concept], "concept", own))
    return boxes, found


def _speechless(batch: Batch) -> Batch:
    view = batch.clean
    assert view.text is not None
    text: Text = view.text
    ends = text.special[0] & text.mask[0]
    short = {name: getattr(text, name)[:1, ends] for name in ("ids", "mask", "special", "words")}
    return replace(batch, views={"clean": replace(view, text=replace(text, **short))})


def _regions_cell(picture: Image.Image, own: Grounding, word: int, regions: Sequence[int], sentence: str) -> Cell:
    weights = [float(own.seen[word, row]) for row in regions]
    drawn = draw_boxes(picture, _pixels(own.boxes[list(regions)], picture), [f"{w:.3f}" for w in weights], width=3)
    return Cell(drawn, [(f"(a) {own.words[word][0]!r} looks at", INK), (sentence, QUIET)])


def _words_cell(
    picture: Image.Image, shown: Grounding, region: int, best: Sequence[tuple[str, str, float]], title: str
) -> Cell:
    drawn = draw_boxes(picture, _pixels(shown.boxes[region : region + 1], picture), width=3)
    lines = [
        (f"{text}  {weight:.3f}" + ("  (concept)" if kind == "concept" else ""), COLOURS[0])
        for text, kind, weight in best
    ]
    return Cell(drawn, [(title, INK), *(lines or [("no word", QUIET)])])


def _pixels(boxes: Tensor, picture: Image.Image) -> Any:
    return (boxes * torch.tensor([picture.width, picture.height] * 2)).numpy()


def _enlarged(picture: Image.Image) -> Image.Image:
    scale = SHORT / min(picture.size)
    if scale <= 1:
        return picture
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)


class CaptionsSideBySide(Drawing):
    """What several models say of the same pictures, one line a model, beside a caption that people wrote.

    As in the paper's Figure 4: base, without concepts, without DiM, full. The models are the sources of ``from``, in
    their order.

    Args:
        count: examples drawn, the first of the data.
        columns: pictures in a row.
        width: of one picture, in pixels.
        names: what the models are called; else by their stages.
    """

    paper = "DiMBERT, Liu et al. 2021, Figure 4"
    reads_data = True

    def __init__(self, *, count: int = 6, columns: int = 3, width: int = 300, names: list[str] | None = None) -> None:
        self.count, self.columns, self.width, self.names = count, columns, width, names

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundles = _called(scene.bundles())
        if not bundles:
            scene.bundle()  # says what is lacking
        labels = self.names or list(bundles)
        if len(labels) != len(bundles):
            where, got = "drawing dimbert-captions, names", f"{len(labels)} names"
            raise UsageError(
                "Models and their names do not go together.", where=where, got=got, expected=str(len(bundles))
            )
        said: dict[str, dict[str, str]] = {}
        album: Album | None = None
        examples: list[Any] = []
        for label, bundle in zip(labels, bundles.values(), strict=True):
            runner, told = self._told(scene, bundle)
            album, examples = album or Album(runner.data), examples or runner.data.examples[: self.count]
            said[label] = told
        assert album is not None
        cells = [self._cell(example, said, album) for example in examples]
        sheet = contact_sheet(cells, columns=self.columns, width=self.width)
        numbers = [{"key": e.key, **{label: told.get(e.key, "") for label, told in said.items()}} for e in examples]
        return [
            save_picture(sheet, scene.folder / "captions.png"),
            save_numbers(numbers, scene.folder / "captions.json"),
        ]

    def _told(self, scene: DrawingContext, bundle: Bundle) -> tuple[TaskRunner, dict[str, str]]:
        task = scene.task(bundle)
        if task is None:
            hint = "name one: task=captioning"
            raise UsageError("The model was trained on no task.", where=str(bundle.folder), hint=hint)
        runner = scene.runner(bundle, limit=self.count)
        with evaluating(runner.module), torch.no_grad():
            rows = [
                row
                for batch in runner.batches()
                for row in task.predictions(runner.step(batch), runner.predict, bundle.tokenizer)
            ]
        return runner, {example.key: str(row["prediction"]) for example, row in paired(runner.data, rows)}

    def _cell(self, example: Example, said: dict[str, dict[str, str]], album: Album) -> Cell:
        lines = [(f"{label}: {told.get(example.key, '')}", INK) for label, told in said.items()]
        return Cell(
            side_by_side([album.open(name) for name in example.images]), [*lines, (f"people: {example.text}", QUIET)]
        )
