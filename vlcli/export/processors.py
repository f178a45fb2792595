"""Writes the tokenizer and image processor of a trained model for transformers."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, normalizers, processors
from tokenizers.models import WordPiece

from vlcli.data.preparation import Preparation
from vlcli.errors import DataError
from vlcli.export.base import Trained
from vlcli.export.preprocessing import pixels
from vlcli.files import write_json, write_text

BICUBIC, BILINEAR = 3, 2
"""Pillow's numbers of interpolations, as transformers writes them."""
PROBES = ("", "a", "Is THERE a  caf\u00e9-table, isn't it?", "two (2) <person> #~/ things\u2026 \u732b")
RESAMPLE = {"bicubic": BICUBIC, "bilinear": BILINEAR}


def write_tokenizer(trained: Trained, folder: Path) -> None:
    """Write the files of ``AutoTokenizer``; raise DataError if its ids differ from those of the model's data."""
    ours, length = trained.tokenizer.reading(trained.text_options), trained.data_spec.text_length
    ours.save(folder)
    engine = tokenizers.Tokenizer.from_str(ours.engine.to_str())
    steps = [*_steps(ours.prepare), *([] if engine.normalizer is None else [engine.normalizer])]
    engine.normalizer = None if not steps else steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    first, last = (str(engine.id_to_token(ours.ids[name])) for name in ("cls", "sep"))
    parts = [*([f"{first}:0"] if ours.begun else []), "$A:0", *([f"{last}:0"] if ours.ended else [])]
    pair = [*parts, "$B:1", *([f"{last}:1"] if ours.ended else [])]
    known = [(token, engine.token_to_id(token)) for token in dict.fromkeys((first, last))]
    engine.post_processor = processors.TemplateProcessing(" ".join(parts), " ".join(pair), known)
    write_text(folder / "tokenizer.json", engine.to_str(pretty=False))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length}
    pairs = ["token_type_ids"] * isinstance(engine.model, WordPiece)  # BERT's; towers of other kinds take none
    config["model_input_names"] = ["input_ids", *pairs, "attention_mask"]
    write_json(folder / "tokenizer_config.json", config)
    _check(ours, folder, length)


def _steps(rule: Preparation) -> Iterator[Any]:
    if rule.lower:
        yield normalizers.Lowercase()
        for signs, other in ((rule.gone, ""), (rule.blank, " ")):
            if signs:
                yield normalizers.Replace(Regex(f"[{re.escape(signs)}]"), other)
        for name, plain in (rule.names or {}).items():
            yield normalizers.Replace(name, plain)
        if rule.tidy:
            yield normalizers.Replace(Regex(r"\s{2,}"), " ")
        yield normalizers.Replace(Regex(r"^ +| +$" if rule.tidy else r" +$"), "")
    if rule.words is not None:  # what follows that many words, each ended by one space
        yield normalizers.Replace(Regex(rf"^(?:[^ ]* ){{{rule.words - 1}}}[^ ]*\K [\s\S]*$"), "")


def _check(ours: Any, folder: Path, length: int) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    words = [piece for piece in list(ours.engine.get_vocab())[:200] if piece.isalpha()]
    for probe in (*PROBES, " ".join(words)):
        wanted = ours.encode(probe, length=length).ids
        ids = theirs(probe, truncation=True, max_length=length)["input_ids"]
        if ids != wanted:
            what, where = "transformers' tokenizer gives other ids.", f"{folder}: {probe[:40]!r}"
            raise DataError(what, where=where, got=str(ids[:12]), expected=str(wanted[:12]))


def write_processor(trained: Trained, folder: Path, kind: str) -> list[str]:
    """Write ``preprocessor_config.json`` for ``AutoImageProcessor``, as pictures are transformed in evaluation.

    ``kind`` is the class, such as ``ViTImageProcessor``. If none does what the model's transform does, only a note on
    this is returned.
    """
    facts = pixels(trained, trained.model.input_spec())
    sizes = _sizes(facts)
    if isinstance(sizes, str):
        return [f"no image processor is written: {sizes}"]
    usual = {"do_resize": True, "do_center_crop": False, "do_rescale": True, "rescale_factor": 1 / 255}
    numbers = {"do_normalize": True, "image_mean": facts["mean"], "image_std": facts["std"]}
    config = {"image_processor_type": kind, "do_convert_rgb": True, **usual, **numbers, **sizes}
    write_json(folder / "preprocessor_config.json", config)
    return []


def _sizes(facts: Mapping[str, Any]) -> dict[str, Any] | str:
    steps, size = facts["steps"], facts["size"]
    names = [step["step"] for step in steps]
    if not steps and size is not None:
        return {"size": {"height": size[0], "width": size[1]}, "resample": BICUBIC}
    if names == ["shorter"] and size is None:
        edges = {"shortest_edge": steps[0]["pixels"], "longest_edge": steps[0]["longest"]}
        return {"size": edges, "resample": RESAMPLE[steps[0]["interpolation"]]}
    if names == ["cover", "crop"] and steps[0]["height"] == steps[0]["width"]:
        cover, crop = steps
        left = cover["height"] - crop["height"]
        if left % 4 == 3:  # half a pixel is rounded to even here, and down there
            return f"transformers has none for a centre crop that leaves {left} pixels"
        cut = {"do_center_crop": True, "crop_size": {"height": crop["height"], "width": crop["width"]}}
        return {"size": {"shortest_edge": cover["height"]}, "resample": RESAMPLE[cover["interpolation"]], **cut}
    named = ", ".join(str(step.get("name", step["step"])) for step in steps) or "pictures of any size"
    return f"transformers has none for {named}"
