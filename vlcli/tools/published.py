"""What is published about data sets and checkpoints: official source, licence, size, layout, how a person gets them.

The commands are printed and never run. Sizes are rounded; licences are those that the source names, and pictures mostly
stay with the people who took them.
"""

from __future__ import annotations

from dataclasses import dataclass

_COCO = "http://images.cocodataset.org"
_PICTURES = "annotations CC BY 4.0; pictures under Flickr's terms"


@dataclass(frozen=True)
class Published:
    """One published data set or checkpoint.

    Attributes:
        title: what it is called.
        url: the official page.
        licence: as the source names it.
        size: about how much is downloaded.
        layout: where its files are expected under the data root.
        commands: what a person runs, in the data root; empty where a form must be filled in first.
    """

    title: str
    url: str
    licence: str
    size: str
    layout: str
    commands: tuple[str, ...] = ()


def _unpacked(url: str, folder: str = ".") -> tuple[str, str]:
    file = url.rsplit("/", 1)[-1]
    return f"curl -LO {url}", f"unzip -q {file} -d {folder}"


_COCO_CAPTIONS = Published(
    "COCO 2014",
    "https://cocodataset.org/#download",
    _PICTURES,
    "13 GB train2014, 6 GB val2014, 241 MB annotations",
    "annotations/captions_train2014.json, images/train2014/, images/val2014/",
    (
        *_unpacked(f"{_COCO}/zips/train2014.zip", "images"),
        *_unpacked(f"{_COCO}/zips/val2014.zip", "images"),
        *_unpacked(f"{_COCO}/annotations/annotations_trainval2014.zip"),
    ),
)
_VQA = "https://s3.amazonaws.com/cvmlp/vqa/mscoco/vqa"
_VG = Published(
    "Visual Genome",
    "https://homes.cs.washington.edu/~ranjay/visualgenome/api.html",
    "CC BY 4.0",
    "15 GB pictures, 1 GB annotations",
    "vg/region_descriptions.json, vg/question_answers.json, vg/image_data.json, images/",
)
SOURCES: dict[str, Published] = {
    "coco-captions": _COCO_CAPTIONS,
    "coco-instances": _COCO_CAPTIONS,
    "karpathy": Published(
        "Karpathy's splits of COCO, Flickr8k and Flickr30k",
        "https://cs.stanford.edu/people/karpathy/deepimagesent/",
        "see the page; pictures as in COCO and Flickr30k",
        "36 MB annotations",
        "karpathy/dataset_coco.json, karpathy/dataset_flickr30k.json, images/",
        (*_unpacked("https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip", "karpathy"),),
    ),
    "vqa": Published(
        "VQA v2",
        "https://visualqa.org/download.html",
        "annotations CC BY 4.0; pictures as in COCO",
        "50 MB questions and annotations, and COCO's pictures",
        "vqa/v2_OpenEnded_mscoco_train2014_questions.json, vqa/v2_mscoco_train2014_annotations.json, images/",
        tuple(
            line
            for kind in ("Questions", "Annotations")
            for part in ("Train", "Val")
            for line in _unpacked(f"{_VQA}/v2_{kind}_{part}_mscoco.zip", "vqa")
        ),
    ),
    "gqa": Published(
        "GQA",
        "https://cs.stanford.edu/people/dorarad/gqa/download.html",
        "CC BY 4.0",
        "1.4 GB questions, 20 GB pictures",
        "gqa/train_balanced_questions.json, gqa/val_balanced_questions.json, images/",
        _unpacked("https://downloads.cs.stanford.edu/nlp/data/gqa/questions1.2.zip", "gqa"),
    ),
    "vg-regions": _VG,
    "vg-qa": _VG,
    "nlvr2": Published(
        "NLVR2",
        "https://lil.nlp.cornell.edu/nlvr/",
        "annotations CC BY 4.0; pictures after a form, for research",
        "60 MB annotations, 16 GB pictures",
        "nlvr2/train.json, nlvr2/dev.json, nlvr2/test1.json, nlvr2/images/",
        ("git clone --depth 1 https://github.com/lil-lab/nlvr", "cp -r nlvr/nlvr2/data nlvr2"),
    ),
    "snli-ve": Published(
        "SNLI-VE",
        "https://github.com/necla-ml/SNLI-VE",
        "see the repository; pictures are Flickr30k's, after a form",
        "100 MB annotations",
        "snli_ve/train.jsonl, snli_ve/dev.jsonl, snli_ve/test.jsonl, images/",
    ),
    "refcoco": Published(
        "RefCOCO, RefCOCO+, RefCOCOg",
        "https://github.com/lichengunc/refer",
        "Apache 2.0 (code); pictures as in COCO",
        "100 MB annotations, and COCO's train2014",
        "refcoco/, refcoco+/, instances.json, images/",
    ),
    "vist": Published(
        "VIST",
        "https://visionandlanguage.net/VIST/",
        "see the page; pictures under Flickr's terms",
        "20 MB annotations, 300 GB pictures in original size",
        "vist/train.story-in-sequence.json, images/",
    ),
    "conceptual-captions": Published(
        "Conceptual Captions",
        "https://ai.google.com/research/ConceptualCaptions/",
        "see the page; pictures stay with their owners",
        "500 MB of addresses; pictures are fetched one by one, e.g. with img2dataset",
        "Train_GCC-training.tsv, images/",
    ),
    "sbu": Published(
        "SBU Captioned Photos",
        "https://www.cs.rice.edu/~vo9/sbucaptions/",
        "see the page; pictures stay with their owners",
        "100 MB of addresses; pictures are fetched one by one",
        "sbu-captions-all.json, images/",
    ),
    "imagenet": Published(
        "ImageNet (ILSVRC 2012)",
        "https://image-net.org/download.php",
        "research only, after registration",
        "138 GB train, 6 GB val",
        "imagenet/train/CLASS/, imagenet/val/CLASS/",
    ),
    "ade20k": Published(
        "ADE20K scene parsing",
        "http://sceneparsing.csail.mit.edu/",
        "BSD-3 (annotations); pictures for research",
        "1 GB",
        "ADEChallengeData2016/",
        _unpacked("http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip"),
    ),
    "cub-200": Published(
        "CUB-200-2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        "research only",
        "1.1 GB",
        "CUB_200_2011/",
    ),
    "sugarcrepe": Published(
        "SugarCrepe",
        "https://github.com/RAIVNLab/sugar-crepe",
        "MIT; pictures are COCO's val2017",
        "2 MB annotations, 1 GB pictures",
        "sugarcrepe/swap_obj.json and six more, val2017/",
        (
            "git clone --depth 1 https://github.com/RAIVNLab/sugar-crepe",
            "cp -r sugar-crepe/data sugarcrepe",
            *_unpacked(f"{_COCO}/zips/val2017.zip"),
        ),
    ),
    "pope": Published(
        "POPE",
        "https://github.com/RUCAIBox/POPE",
        "MIT; pictures are COCO's val2014",
        "2 MB annotations, 6 GB pictures",
        "pope/coco_pope_random.json, coco_pope_popular.json, coco_pope_adversarial.json, images/",
        ("git clone --depth 1 https://github.com/RUCAIBox/POPE", "cp -r POPE/output/coco pope"),
    ),
    "vsr": Published(
        "Visual spatial reasoning (VSR)",
        "https://github.com/cambridgeltl/visual-spatial-reasoning",
        "Apache 2.0; pictures are COCO's",
        "5 MB annotations, and COCO's pictures",
        "vsr/train.jsonl, vsr/dev.jsonl, vsr/test.jsonl, images/",
        (
            "git clone --depth 1 https://github.com/cambridgeltl/visual-spatial-reasoning",
            "cp -r visual-spatial-reasoning/data/splits/random vsr",
        ),
    ),
    "winoground": Published(
        "Winoground",
        "https://huggingface.co/datasets/facebook/winoground",
        "META IMAGES RESEARCH LICENSE, after accepting it on the page",
        "400 MB",
        "winoground/examples.jsonl, images/",
        ("hf download facebook/winoground --repo-type dataset --local-dir winoground",),
    ),
}
SOURCES["lxmert-pretrain"] = SOURCES["lxmert-sources"] = Published(
    "LXMERT's pre-training data",
    "https://github.com/airsplay/lxmert#pre-training",
    "MIT (code); data as in COCO, Visual Genome, VQA and GQA",
    "600 MB annotations, 60 GB features",
    "lxmert/mscoco_train.json, lxmert/mscoco_nominival.json, lxmert/vgnococo.json, lxmert/mscoco_minival.json",
)
"""By the name of the reader; readers of tables of one's own have none."""
CHECKPOINTS: dict[str, Published] = {
    "resnet50": Published(
        "ResNet-50 of torchvision",
        "https://pytorch.org/vision/stable/models/resnet.html",
        "BSD-3 (code); trained on ImageNet",
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
"""By a part of the name that a recipe uses."""
