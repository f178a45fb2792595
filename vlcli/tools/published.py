"""Lists official source, licence, size, layout and download commands of published data sets and checkpoints.

Addresses, licences and sizes are those of the official page, repository or file listing when they were looked up, else
:data:`NOT_VERIFIED`. The commands are printed and never run. 1 GB is 10^9 bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vlcli import registry
from vlcli.checkpoints.load import every
from vlcli.data.reader import Reader
from vlcli.errors import VlcliError
from vlcli.recipe import keys, wiring
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Extract

# Value of a licence or a size that was not found on an official page: look there before you rely on it
NOT_VERIFIED = "not verified"
_COCO = "http://images.cocodataset.org"
_PICTURES = "annotations CC BY 4.0; pictures under Flickr's terms of use, their copyright is not COCO's"


class Published(NamedTuple):
    """One published data set or checkpoint.

    Attributes:
        url: the official page.
        licence: as the source names it, or :data:`NOT_VERIFIED`.
        size: about how much is downloaded, or :data:`NOT_VERIFIED`.
        layout: paths of its files under the data root.
        commands: what a person runs, in the data root; empty where a form must be filled in first.
    """

    title: str
    url: str
    licence: str
    size: str
    layout: str
    commands: tuple[str, ...] = ()


def _unpacked(*urls: str, into: str = ".") -> tuple[str, ...]:
    commands: list[str] = []
    for url in urls:
        file = url.rsplit("/", 1)[-1]
        commands += [f"curl -LO {url}", f"unzip -q {file} -d {into}" if file.endswith(".zip") else f"tar xzf {file}"]
    return tuple(commands)


def _cloned(repository: str, data: str, into: str) -> tuple[str, str]:
    name = repository.rpartition("/")[2]
    return f"git clone --depth 1 https://github.com/{repository}", f"cp -r {name}/{data} {into}"


_COCO_CAPTIONS = Published(
    "COCO 2014",
    "https://cocodataset.org/#download",
    _PICTURES,
    "13 GB train2014, 6 GB val2014, 241 MB annotations",
    "annotations/captions_train2014.json, images/train2014/, images/val2014/",
    _unpacked(f"{_COCO}/zips/train2014.zip", f"{_COCO}/zips/val2014.zip", into="images")
    + _unpacked(f"{_COCO}/annotations/annotations_trainval2014.zip"),
)
_VQA = "https://s3.amazonaws.com/cvmlp/vqa/mscoco/vqa"
_VQA_PARTS = ("Questions_Train", "Questions_Val", "Annotations_Train", "Annotations_Val")
_GENOME = "https://homes.cs.washington.edu/~ranjay/visualgenome"
_REFER = "https://bvisionweb1.cs.unc.edu/licheng/referit/data"
_VG_FILES = ("region_descriptions", "question_answers", "image_data")
_VG = Published(
    "Visual Genome",
    f"{_GENOME}/api.html",
    "CC BY 4.0",
    "15.2 GB pictures, 127 MB region descriptions, 25 MB questions",
    "vg/region_descriptions.json, vg/question_answers.json, vg/image_data.json, images/",
    _unpacked(*(f"{_GENOME}/data/dataset/{name}.json.zip" for name in _VG_FILES), into="vg"),
)
SOURCES: dict[str, Published] = {
    "coco-captions": _COCO_CAPTIONS,
    "coco-instances": _COCO_CAPTIONS,
    "karpathy": Published(
        "Karpathy's splits of COCO, Flickr8k and Flickr30k",
        "https://cs.stanford.edu/people/karpathy/deepimagesent/",
        f"{NOT_VERIFIED} (the splits); pictures as in COCO, Flickr8k and Flickr30k",
        f"{NOT_VERIFIED} (annotations); pictures as in COCO and Flickr30k",
        "karpathy/dataset_coco.json, karpathy/dataset_flickr30k.json, images/",
        _unpacked("https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip", into="karpathy"),
    ),
    "vqa": Published(
        "VQA v2",
        "https://visualqa.org/download.html",
        "annotations CC BY 4.0; pictures as in COCO",
        "43 MB questions and annotations of train and val, and COCO's pictures",
        "vqa/v2_OpenEnded_mscoco_train2014_questions.json, vqa/v2_mscoco_train2014_annotations.json, images/",
        _unpacked(*(f"{_VQA}/v2_{part}_mscoco.zip" for part in _VQA_PARTS), into="vqa"),
    ),
    "daquar": Published(
        "DAQUAR",
        "https://www.mpi-inf.mpg.de/departments/computer-vision-and-multimodal-computing/research/"
        "vision-and-language/visual-turing-challenge/",
        f"{NOT_VERIFIED}; pictures are those of NYU Depth V2",
        NOT_VERIFIED,
        "qa.894.raw.train.txt, qa.894.raw.test.txt, qa.37.raw.train.txt, qa.37.raw.reduced.test.txt, images/",
        ("curl -LO http://datasets.d2.mpi-inf.mpg.de/mateusz14visual-turing/nyu_depth_images.tar",),
    ),
    "gqa": Published(
        "GQA",
        "https://cs.stanford.edu/people/dorarad/gqa/download.html",
        NOT_VERIFIED,
        "1.4 GB questions, 20.3 GB pictures",
        "gqa/train_balanced_questions.json, gqa/val_balanced_questions.json, images/",
        _unpacked("https://downloads.cs.stanford.edu/nlp/data/gqa/questions1.2.zip", into="gqa")
        + _unpacked("https://downloads.cs.stanford.edu/nlp/data/gqa/images.zip"),
    ),
    "vg-regions": _VG,
    "vg-qa": _VG,
    "nlvr2": Published(
        "NLVR2",
        "https://github.com/lil-lab/nlvr/tree/master/nlvr2",
        "annotations CC BY 4.0; pictures are not licensed: by address, or for research after a form on the page",
        f"the repository has about 300 MB; pictures {NOT_VERIFIED}",
        "nlvr2/train.json, nlvr2/dev.json, nlvr2/test1.json, nlvr2/images/",
        _cloned("lil-lab/nlvr", "nlvr2/data", "nlvr2"),
    ),
    "snli-ve": Published(
        "SNLI-VE",
        "https://github.com/necla-ml/SNLI-VE",
        "BSD-2 (the repository); pictures are Flickr30k's",
        NOT_VERIFIED,
        "snli_ve/train.jsonl, snli_ve/dev.jsonl, snli_ve/test.jsonl, images/",
    ),
    "refcoco": Published(
        "RefCOCO, RefCOCO+, RefCOCOg",
        "https://github.com/lichengunc/refer",
        "Apache 2.0 (the repository); pictures as in COCO",
        f"{NOT_VERIFIED} (expressions), and COCO's train2014",
        "refcoco/, refcoco+/, instances.json, images/",
        _unpacked(*(f"{_REFER}/{name}.zip" for name in ("refcoco", "refcoco+", "refcocog"))),
    ),
    "vist": Published(
        "VIST",
        "https://visionandlanguage.net/VIST/dataset.html",
        NOT_VERIFIED,
        NOT_VERIFIED,
        "vist/train.story-in-sequence.json, images/",
    ),
    "conceptual-captions": Published(
        "Conceptual Captions",
        "https://ai.google.com/research/ConceptualCaptions/",
        "captions and addresses may be freely used for any purpose; pictures stay with their owners",
        "580 MB captions and addresses; pictures are fetched one by one, e.g. with img2dataset",
        "Train_GCC-training.tsv, images/",
    ),
    "sbu": Published(
        "SBU Captioned Photos",
        "https://www.cs.rice.edu/~vo9/sbucaptions/",
        f"{NOT_VERIFIED}; pictures stay with their owners",
        "50 MB captions and addresses; pictures are fetched one by one",
        "sbu-captions-all.json, images/",
        _unpacked("https://www.cs.rice.edu/~vo9/sbucaptions/sbu-captions-all.tar.gz"),
    ),
    "imagenet": Published(
        "ImageNet (ILSVRC 2012)",
        "https://image-net.org/download.php",
        "non-commercial research and education, after registration",
        "148 GB train, 6.7 GB val",
        "imagenet/train/CLASS/, imagenet/val/CLASS/",
    ),
    "ade20k": Published(
        "ADE20K scene parsing",
        "http://sceneparsing.csail.mit.edu/",
        f"{NOT_VERIFIED} (the development kit on GitHub is BSD-3)",
        "about 1 GB",
        "ADEChallengeData2016/",
        _unpacked("http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip"),
    ),
    "cub-200": Published(
        "CUB-200-2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        NOT_VERIFIED,
        "about 1.2 GB",
        "CUB_200_2011/",
        _unpacked("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"),
    ),
    "sugarcrepe": Published(
        "SugarCrepe",
        "https://github.com/RAIVNLab/sugar-crepe",
        "MIT; pictures are COCO's val2017",
        f"1.7 MB annotations; pictures {NOT_VERIFIED}",
        "sugarcrepe/swap_obj.json and six more, val2017/",
        _cloned("RAIVNLab/sugar-crepe", "data", "sugarcrepe") + _unpacked(f"{_COCO}/zips/val2017.zip"),
    ),
    "pope": Published(
        "POPE",
        "https://github.com/RUCAIBox/POPE",
        "MIT; pictures are COCO's val2014",
        "1.1 MB questions, 6 GB pictures",
        "pope/coco_pope_random.json, coco_pope_popular.json, coco_pope_adversarial.json, images/",
        _cloned("RUCAIBox/POPE", "output/coco", "pope"),
    ),
    "vsr": Published(
        "Visual spatial reasoning (VSR)",
        "https://github.com/cambridgeltl/visual-spatial-reasoning",
        "Apache 2.0; pictures are COCO's train2017 and val2017",
        f"3.4 MB sentences; pictures {NOT_VERIFIED}",
        "vsr/train.jsonl, vsr/dev.jsonl, vsr/test.jsonl, images/",
        _cloned("cambridgeltl/visual-spatial-reasoning", "data/splits/random", "vsr"),
    ),
    "winoground": Published(
        "Winoground",
        "https://huggingface.co/datasets/facebook/winoground",
        "research only, after accepting the conditions on the page; the full text is among the files",
        NOT_VERIFIED,
        "winoground/data/examples.jsonl; images/ with the pictures of data/images.zip",
        ("hf download facebook/winoground --repo-type dataset --local-dir winoground",),
    ),
}
SOURCES["lxmert-pretrain"] = SOURCES["lxmert-sources"] = Published(
    "LXMERT's pre-training data",
    "https://github.com/airsplay/lxmert#pre-training",
    "MIT (the repository); data as in COCO, Visual Genome, VQA and GQA",
    f"700 MB annotations; features {NOT_VERIFIED}",
    "lxmert/mscoco_train.json, lxmert/mscoco_nominival.json, lxmert/vgnococo.json, lxmert/mscoco_minival.json",
    tuple(
        f"curl -L --create-dirs -o lxmert/{name}.json https://nlp.cs.unc.edu/data/lxmert_data/lxmert/{name}.json"
        for name in ("mscoco_train", "mscoco_nominival", "vgnococo", "mscoco_minival")
    ),
)
"""By the name of the reader; readers of tables of one's own have none."""
# Examples of published splits (of Karpathy's the pictures), by reader, split and file; ``refcoco`` is RefCOCO+
ANSWERS = {
    ("gqa", "testdev", ""): 12_578,
    ("nlvr2", "dev", ""): 6_982,
    ("nlvr2", "test1", ""): 6_967,
    ("refcoco", "val", ""): 10_758,
    ("refcoco", "testA", ""): 5_726,
    ("refcoco", "testB", ""): 4_889,
    ("imagenet", "val", ""): 50_000,
    ("cub-200", "test", ""): 5_794,
    ("stanford-cars", "test", ""): 8_041,
    ("karpathy", "test", "dataset_coco"): 5_000,
    ("karpathy", "test", "dataset_flickr30k"): 1_000,
}
# By a part of the name that a recipe uses
CHECKPOINTS: dict[str, Published] = {
    "resnet50": Published(
        "ResNet-50 of torchvision",
        "https://pytorch.org/vision/stable/models/resnet.html",
        f"BSD-3 (code); weights {NOT_VERIFIED}; trained on ImageNet",
        "98 MB",
        "the file that the recipe names",
        ("curl -LO https://download.pytorch.org/models/resnet50-11ad3fa6.pth",),
    ),
    "bert-base-uncased": Published(
        "BERT base, uncased",
        "https://huggingface.co/google-bert/bert-base-uncased",
        "Apache 2.0",
        "440 MB (the vocabulary alone: 232 kB)",
        "the local cache of the Hugging Face hub, or a folder",
        ("hf download google-bert/bert-base-uncased vocab.txt tokenizer.json",),
    ),
}


THERE, MISSING, MADE = "there", "missing", "made by a stage"


@dataclass
class Wanted:
    """One data set or checkpoint of a recipe.

    Attributes:
        what: ``data`` or ``weights``; ``name``: the reader, or the word of the recipe.
        state: ``there``, ``missing`` or ``made by a stage``.
        source: published facts about it; None where it is the user's own.
    """

    stages: list[str]
    what: str
    name: str
    state: str
    files: list[str]
    missing: list[str]
    source: Published | None

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "source": None if self.source is None else self.source._asdict()}


def wanted_by(resolved: Resolved) -> list[Wanted]:
    """Return every data set and checkpoint of a recipe, each once."""
    wanted: list[Wanted] = []
    order = list(resolved.stages)
    for name, stage in resolved.stages.items():
        is_made = bool(wiring.root_stage(resolved.recipe, stage, order[: order.index(name)]))
        root = wiring.root_folder(resolved.recipe, stage, {})
        wanted += [*_data(resolved, name, root, is_made), *_weights(resolved, name, root)]
    return joined(wanted)


def joined(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Return each data set and checkpoint once, merging stages and files; data that a stage makes stay separate."""
    known: dict[tuple[str, str, bool], Wanted] = {}
    for one in wanted:
        first = known.setdefault((one.what, one.name, one.state == MADE), one)
        first.stages = list(dict.fromkeys([*first.stages, *one.stages]))
        first.files = list(dict.fromkeys([*first.files, *one.files]))
        first.missing = list(dict.fromkeys([*first.missing, *one.missing]))
        first.state = MISSING if first.missing else first.state
    return list(known.values())


def _data(resolved: Resolved, name: str, root: Path, is_made: bool) -> list[Wanted]:
    stage, wanted = resolved.stages[name], []
    for spec in [spec for more in (False, True) for spec in keys.data_specs(resolved.recipe, stage, optional=more)]:
        try:
            reader = registry.of(Reader).build(spec, root)
            paths = [*reader.files(), *([reader.image_folder] if isinstance(stage, Extract) else [])]
            files = list(dict.fromkeys(map(str, paths)))
            missing = [path for path in files if not Path(path).exists()]
        except VlcliError as error:
            files = missing = [error.where or str(root)]
        state = MADE if is_made else MISSING if missing else THERE
        missing, what = [] if is_made else missing, str(spec["name"])
        wanted.append(Wanted([name], "data", what, state, files, missing, SOURCES.get(what)))
    return wanted


def _weights(resolved: Resolved, name: str, root: Path) -> list[Wanted]:
    """Return weights and stores that are no stages: ``from``, an extractor's weights, a named vocabulary."""
    stage = resolved.stages[name]
    words = [word for word in stage.source if word not in resolved.stages]
    if isinstance(stage, Extract) and isinstance(stage.extractor.get("weights"), str):
        words.append(stage.extractor["weights"])
    words += [word for word in getattr(stage, "features", []) if word not in resolved.stages]
    vocabulary = resolved.recipe.text.vocabulary
    if isinstance(vocabulary, str) and stage.kind in ("pretrain", "finetune"):
        words.append(vocabulary)
    wanted = []
    for word in dict.fromkeys(words):
        place = wiring.find_place(word, root)
        files = [str(place or root / word)]
        state, missing = (MISSING, files) if place is None else (THERE, [])
        wanted.append(Wanted([name], "weights", word, state, files, missing, _published(word)))
    return wanted


def _published(word: str) -> Published | None:
    """Return the facts of a registered checkpoint (``vlcli ls checkpoints``), of a known file, or of a hub name."""
    one = next((entry for entry in every() if entry.name in (word, Path(word).name)), None)
    if one is not None:
        size = f"about {sum(entry.count for entry in one.tensors.values()) * 4 / 1e6:,.0f} MB of weights, by its layout"
        hub = wiring.is_hub_name(one.name) and one.file.url.startswith("https://huggingface.co/")
        command = f"hf download {one.name}" if hub else f"curl -L -o {one.name} '{one.file.url}'"
        layout = f"{one.name}: {one.file.about}; vlcli checkpoint {one.name}"
        return Published(one.name, one.file.url, one.file.licence, size, layout, (command,))
    known = next((facts for part, facts in CHECKPOINTS.items() if part in word.lower()), None)
    if known is None and wiring.is_hub_name(word):
        card, commands = "see the model card", (f"hf download {word}",)
        return Published(word, f"https://huggingface.co/{word}", card, card, "", commands)
    return known
