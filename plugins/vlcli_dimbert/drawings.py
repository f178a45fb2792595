"""Draws the figures of the DiMBERT paper: attention between regions and words (3), captions side by side (4)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image, ImageOps
from torch import Tensor

from vlcli.data import FUNCTION_WORDS, Pipeline
from vlcli.drawings import Album, Drawing, DrawingContext, paired, save_numbers, save_picture, scaled, side_by_side
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import DataError, UsageError
from vlcli.nn import CONCEPT, Batch, Recorder
from vlcli.report import COLOURS, INK, Cell, contact_sheet, draw_boxes
from vlcli_dimbert.stream import SingleStream

# Small pictures are enlarged to this many pixels before boxes are drawn on them
SHORT = 320
QUIET = "#707070"


@dataclass
class Grounding:
    """Attention of the last layer between the R regions of a picture and its W words."""

    boxes: Tensor  # (R, 4) in shares of the picture
    words: list[tuple[str, str]]  # of the sentence, then of the concepts, with their kind: ``sentence`` or ``concept``
    seen: Tensor  # (W, R) from every word to every region
    named: Tensor  # (R, W) from every region to every word


class GroundedWords(Drawing):
    """Which regions a word looks at, and which words a region looks at: attention of the last layer, heads averaged.

    Of each picture the panels of Figure 3: (a) a word with its top regions; (b) a region with its top words out of
    sentence and concepts; (c) the same region in each further model of ``from`` (published: one without concepts); (d)
    the same region without a sentence.

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
        models = {name: (scene.runner(bundle, limit=self.count), bundle) for name, bundle in _models(scene).items()}
        first = next(iter(models.values()))
        data = first[0].data
        album, files, numbers = Album(data), [], []
        for code in range(min(self.count, data.total)):
            shown = {name: grounding(*model, code, scene.device) for name, model in models.items()}
            alone = grounding(*first, code, scene.device, sentence=False)
            cells, facts = self._panels(data.examples[code], shown, alone, album)
            file = scene.folder / f"grounding-{code + 1}.png"
            files.append(save_picture(contact_sheet(cells, columns=len(cells), width=SHORT), file))
            numbers.append(facts)
        return [*files, save_numbers(numbers, scene.folder / "grounding.json")]

    def _panels(
        self, example: Any, by_model: dict[str, Grounding], alone: Grounding, album: Album
    ) -> tuple[list[Cell], dict[str, Any]]:
        name, first = next(iter(by_model.items()))
        picture, word = album.open(example.images[0]), self._word(first)
        if (scale := SHORT / min(picture.size)) > 1:
            picture = ImageOps.scale(picture, scale, Image.Resampling.LANCZOS)
        seen, spelling = first.seen[word], first.words[word][0]
        regions = seen.topk(min(self.top, len(first.boxes))).indices.tolist()
        weights = seen[regions].tolist()
        facts: dict[str, Any] = {"key": example.key, "sentence": example.text, "word": spelling}
        facts["regions"] = {str(row): round(weight, 4) for row, weight in zip(regions, weights, strict=True)}
        boxes = scaled(first.boxes[regions].numpy(), picture)
        boxed = draw_boxes(picture, boxes, [f"{weight:.3f}" for weight in weights], width=3)
        cells = [Cell(boxed, [(f"(a) {spelling!r} looks at", INK), (str(example.text), QUIET)])]
        panels = [*by_model.items(), (f"{name}, no sentence", alone)]
        for letter, (label, shown) in zip("bcdefgh", panels, strict=False):
            named = shown.named[min(regions[0], len(shown.named) - 1)]  # (W,)
            best = [(*shown.words[n], float(named[n])) for n in named.argsort(descending=True)[: self.top].tolist()]
            facts[label] = {f"{text} ({kind})": round(weight, 4) for text, kind, weight in best}
            lines = [
                (f"{text}  {weight:.3f}" + ("  (concept)" if kind == "concept" else ""), COLOURS[0])
                for text, kind, weight in best
            ]
            box = shown.boxes[regions[0] : regions[0] + 1]  # none where a model of another store has fewer regions
            boxed = draw_boxes(picture, scaled(box.numpy(), picture), width=3)
            cells.append(Cell(boxed, [(f"({letter}) {label}", INK), *(lines or [("no word", QUIET)])]))
        return cells, facts

    def _word(self, shown: Grounding) -> int:
        spoken = {index: text for index, (text, kind) in enumerate(shown.words) if kind == "sentence"}
        if self.word is not None:
            hits = [index for index, text in spoken.items() if text.lower() == self.word.lower()]
            if not hits:
                where, expected = "drawing dimbert-grounding, word", " ".join(spoken.values())
                raise UsageError("The sentence has no such word.", where=where, got=self.word, expected=expected)
            return hits[0]
        if not spoken:
            raise UsageError("The sentence has no word.", where="drawing dimbert-grounding")
        content = [index for index, text in spoken.items() if text.lower() not in FUNCTION_WORDS]
        return max(content or spoken, key=lambda index: float(shown.seen[index].sum()))


def _models(scene: DrawingContext) -> dict[str, Bundle]:
    # By the last part of their path, where that tells them apart; without any ``scene.bundle`` says what is lacking.
    bundles = scene.bundles() or {"": scene.bundle()}
    short = {Path(name).name: bundle for name, bundle in bundles.items()}
    return short if len(short) == len(bundles) else bundles


def grounding(runner: TaskRunner, bundle: Bundle, code: int, device: str, *, sentence: bool = True) -> Grounding:
    """Reads the last layer's attention between an example's words and the regions of its first picture.

    Args:
        sentence: False: only the separators are given in its place.

    Raises:
        UsageError: the model is no single stream, or reads no text.
        DataError: the picture has no regions.
    """
    model = runner.model
    if not isinstance(model, SingleStream) or bundle.tokenizer is None:
        got, expected = type(model).__name__, "dimbert, uniter or vl-bert"
        raise UsageError("The drawing is of a single stream over regions and words.", got=got, expected=expected)
    batch = runner.data.batch([code]).to(device)
    if not sentence:  # its separators alone
        text: Any = batch.clean.text
        ends = text.special[0] & text.mask[0]
        short = {name: getattr(text, name)[:1, ends] for name in ("ids", "mask", "special", "words")}
        batch = replace(batch, views={"clean": replace(batch.clean, text=replace(text, **short))})
    record = Recorder()
    with evaluating(runner.module), torch.no_grad():
        runner.step(batch, record=record).fused()
        boxes, words = _columns(model, bundle, batch)
    last = [weights for name, weights in record.attention.items() if name.startswith("fuse.")][-1]
    weights = last[0].float().mean(0).cpu()  # (T, T)
    if not (count := len(boxes)):
        raise DataError("The picture has no regions.", where=f"example {runner.data.examples[code].key}")
    regions, empty = slice(1, 1 + count), torch.zeros(0, count)
    seen = [weights[columns, regions].mean(0, keepdim=True) for _, _, columns in words]  # (1, R) each
    named = [weights[regions][:, columns].sum(1)[None] for _, _, columns in words]
    spoken = [(text, kind) for text, kind, _ in words]
    return Grounding(boxes, spoken, torch.cat([empty, *seen]), torch.cat([empty, *named]).T)


def _columns(model: SingleStream, bundle: Bundle, batch: Batch) -> tuple[Tensor, list[tuple[str, str, list[int]]]]:
    # The regions' boxes (R, 4), and (word, kind, columns of the sequence) of every word and concept. The sequence is
    # [CLS] regions [SEP] concepts [SEP] words [SEP], padding included.
    view, images, sentence = batch.clean, cast("Any", batch.clean.images), cast("Any", batch.clean.text)
    row, block, regions = int(view.image_rows[0, 0]), model.embed_image(images).layout, images.regions
    boxes = regions.boxes[row][regions.mask[row]].cpu()
    words: list[tuple[str, str, list[int]]] = []
    prefix = 1 + block.route.shape[1] * view.image_rows.shape[1]
    ids, owner = sentence.ids[0].tolist(), sentence.words[0].tolist()
    for number in dict.fromkeys(word for word in owner if word >= 0):
        pieces = [index for index, word in enumerate(owner) if word == number]
        text = bundle.tokenizer.decode([ids[index] for index in pieces]).strip(".,!?;:") or "."
        words.append((text, "sentence", [prefix + index - 1 for index in pieces]))
    concepts = images.concepts
    if model.concepts is not None and concepts is not None:
        piece_ids, slot, _ = model.concepts(concepts)
        columns = (block.route[row] == CONCEPT).nonzero()[:, 0].tolist()
        pairs = list(zip(columns, (piece_ids[row] >= 0).tolist(), slot[row].tolist(), strict=True))
        for number, concept in enumerate(concepts.ids[row, : model.concepts.most].tolist()):
            if of_concept := [1 + column for column, real, of in pairs if real and of == number]:
                words.append((model.data_spec.concepts[concept], "concept", of_concept))
    return boxes, words


class CaptionsSideBySide(Drawing):
    """Captions of several models for the same pictures, one line a model, beside a caption that people wrote.

    The models are the sources of ``from``, in their order; of Figure 4: base, without concepts, without DiM, full.

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
        bundles = _models(scene)
        labels = self.names or list(bundles)
        if len(labels) != len(bundles):
            what, got = "Models and their names do not go together.", f"{len(labels)} names"
            raise UsageError(what, where="drawing dimbert-captions, names", got=got, expected=str(len(bundles)))
        written = {label: self._captions(scene, one) for label, one in zip(labels, bundles.values(), strict=True)}
        data = next(iter(written.values()))[0]
        album, numbers, cells = Album(data), [], []
        for example in data.examples[: self.count]:
            by_model = {label: captions.get(example.key, "") for label, (_, captions) in written.items()}
            numbers.append({"key": example.key, **by_model})
            lines = [(f"{label}: {caption}", INK) for label, caption in by_model.items()]
            picture = side_by_side([album.open(name) for name in example.images])
            cells.append(Cell(picture, [*lines, (f"people: {example.text}", QUIET)]))
        sheet = contact_sheet(cells, columns=self.columns, width=self.width)
        files = scene.folder / "captions.png", scene.folder / "captions.json"
        return [save_picture(sheet, files[0]), save_numbers(numbers, files[1])]

    def _captions(self, scene: DrawingContext, bundle: Bundle) -> tuple[Pipeline, dict[str, str]]:
        task = scene.task(bundle)
        if task is None:
            hint = "name one: task=captioning"
            raise UsageError("The model was trained on no task.", where=str(bundle.folder), hint=hint)
        runner = scene.runner(bundle, limit=self.count)
        with evaluating(runner.module), torch.no_grad():
            batches = map(runner.step, runner.batches())
            rows = [row for step in batches for row in task.predictions(step, runner.predict, bundle.tokenizer)]
        return runner.data, {example.key: str(row["prediction"]) for example, row in paired(runner.data, rows)}
