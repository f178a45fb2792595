"""The extractors ``transformers-detector`` and ``transformers-concepts`` beside the library called by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as T
from vlcli_hf import OpenVocabularyConcepts, TransformersDetector
from vlcli_hf.detectors import ClosedDetector

from tests.plugins.hf.models import CLASSES, build
from tests.plugins.hf.tiny import WORDS, opened, pictures, save, tower
from vlcli import registry
from vlcli.detection.extraction import extract_images
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features import ConceptStore, FeatureStore, verify
from vlcli.images.labels import Labels

SLOW = pytest.param("grounding_dino", marks=pytest.mark.slow)
CLOSED, OPEN = ("detr", "rt_detr"), ("owlv2", "grounding_dino")


class Folders(dict):
    """Folders of tiny models by name, each written when a test first asks for it."""

    def __init__(self, root):
        super().__init__()
        self.root = root

    def __missing__(self, name):
        self[name] = build(name, self.root / name)
        return self[name]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return Folders(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


def detected(folder, images, out, **options):
    extractor = TransformersDetector(weights=str(folder), **options)
    extract_images(images, extractor, out, dtype="float32")
    verify(out)
    return FeatureStore(out)


def by_hand(name, folder, image):
    """Outputs of the library, and its own post-processing with no threshold."""
    size = [(image.height, image.width)]
    kind = {"detr": T.DetrForObjectDetection, "rt_detr": T.RTDetrForObjectDetection,
            "owlv2": T.Owlv2ForObjectDetection, "grounding_dino": T.GroundingDinoForObjectDetection}[name]  # fmt: skip
    model = kind.from_pretrained(folder).eval()
    with torch.inference_mode():
        if name in CLOSED:
            processor = T.AutoImageProcessor.from_pretrained(folder)
            out = model(**processor(images=image, return_tensors="pt"))
            return out, processor.post_process_object_detection(out, threshold=-1.0, target_sizes=size)[0]
        processor = T.AutoProcessor.from_pretrained(folder)
        padded = {"padding": "max_length", "max_length": 16} if name == "owlv2" else {}
        fed = processor(images=image, text=[list(WORDS)], return_tensors="pt", **padded)
        out = model(**fed)
        if name == "owlv2":
            return out, processor.post_process_grounded_object_detection(out, threshold=-1.0, target_sizes=size)[0]
        found = processor.post_process_grounded_object_detection(out, fed["input_ids"], -1.0, 0.99, target_sizes=size)
        return out, found[0] | {"tokens": fed["input_ids"][0]}


@pytest.mark.parametrize(
    "name", ["owlv2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("detr", "rt_detr", "grounding_dino"))]
)
def test_regions_are_the_object_queries_of_the_library(name, folders, images, tmp_path):
    words = {} if name in CLOSED else {"words": WORDS}
    store = detected(folders[name], images, tmp_path / "f.h5", min_boxes=8, max_boxes=8, class_probs=True, **words)
    assert tuple(store.provenance["classes"]) == (tuple(CLASSES.values()) if name in CLOSED else WORDS)
    assert (store.provenance["boxes"], store.provenance["extractor"]) == ("detected", "transformers-detector")
    for (key, _), image in zip(images, opened(images), strict=True):
        record = store.read(key)
        out, found = by_hand(name, folders[name], image)
        features = out.image_embeds.flatten(1, 2)[0] if name == "owlv2" else out.last_hidden_state[0]
        rows = [int(torch.cdist(features, torch.from_numpy(row)[None]).argmin()) for row in record.features]
        np.testing.assert_allclose(record.features, features[rows].numpy(), atol=1e-5)
        assert len(set(rows)) == 8
        if name == "rt_detr":  # its post-processing ranks pairs of query and class
            np.testing.assert_allclose(record.scores[0], found["scores"][0], atol=1e-6)
            probs, boxes = out.logits[0].sigmoid(), None
        elif name == "grounding_dino":
            probs, boxes = words_of_prompt(folders[name], out, found), found["boxes"]
        else:
            closed = name == "detr"
            probs = out.logits[0].softmax(-1)[:, :-1] if closed else out.logits[0].sigmoid()
            np.testing.assert_allclose(record.scores, found["scores"][rows], atol=1e-6)
            np.testing.assert_array_equal(record.classes, found["labels"][rows])
            boxes = found["boxes"]
        np.testing.assert_allclose(record.class_probs, probs[rows].numpy(), atol=1e-6)
        np.testing.assert_allclose(
            record.class_scores, probs.max(-1).values.sort(descending=True).values[:8], atol=1e-6
        )
        if boxes is not None:
            limit = torch.tensor([image.width, image.height] * 2)
            np.testing.assert_allclose(record.boxes, boxes[rows].clamp(min=0).minimum(limit).numpy(), atol=1e-3)


def words_of_prompt(folder, out, found):
    """The best token of each word of "red circle. cat. dog. green bus."."""
    spelled = T.AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(found["tokens"])
    assert spelled == ["[CLS]", "red", "circle", ".", "cat", ".", "dog", ".", "green", "bus", ".", "[SEP]"]
    probs = out.logits[0].sigmoid()
    return torch.stack([probs[:, part].amax(-1) for part in ([1, 2], [4], [6], [8, 9])], -1)


def test_thresholds_and_suppression_choose_regions(folders, images, tmp_path):
    probs = detected(folders["owlv2"], images, tmp_path / "a.h5", words=WORDS, min_boxes=16).read("p0").scores
    middle = float(np.sort(probs)[8])
    few = detected(folders["owlv2"], images, tmp_path / "b.h5", words=WORDS, confidence=middle, min_boxes=1)
    assert (few.read("p0").scores >= middle).all()
    assert 1 <= len(few.read("p0")) <= 8
    apart = detected(folders["owlv2"], images, tmp_path / "c.h5", words=WORDS, confidence=0, min_boxes=1, nms=0.01)
    assert len(apart.read("p0")) < 16


@pytest.mark.parametrize("name", [pytest.param("owlv2", marks=pytest.mark.slow), SLOW, "siglip"])
def test_words_come_from_a_file_a_list_or_the_data(name, folders, images, tmp_path):
    kind = OpenVocabularyConcepts if name == "siglip" else TransformersDetector
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "words.json").write_text('["red circle", "cat", "dog", "green bus"]')
    told = [kind(weights=str(folders[name]), words=words) for words in
            (WORDS, str(tmp_path / "words.txt"), str(tmp_path / "words.json"), None)]  # fmt: skip
    told[-1].attach(Labels(WORDS))
    found = []
    for one in told:
        item = one.prepare(opened(images)[0], None)
        with torch.inference_mode():
            (record,) = one.extract([item])
        found.append(np.concatenate([record.class_scores, record.boxes.ravel()]))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2"])
def test_concepts_are_image_text_scores(name, folders, images, tmp_path):
    folder = folders[name]
    extractor = OpenVocabularyConcepts(weights=str(folder), words=WORDS, top=3)
    extract_images(images, extractor, tmp_path / "c.h5", dtype="float32", set=extractor.set)
    store = ConceptStore(tmp_path / "c.h5")
    assert store.words == WORDS
    model, tokenizer = T.AutoModel.from_pretrained(folder).eval(), T.AutoTokenizer.from_pretrained(folder)
    pad = {"padding": True} if name == "clip" else {"padding": "max_length", "max_length": 16}
    texts = tokenizer([f"a photo of a {word}" for word in WORDS], return_tensors="pt", **pad)
    texts = {key: texts[key] for key in ("input_ids", "attention_mask")}
    for (key, _), image in zip(images, opened(images), strict=True):
        pixels = T.AutoImageProcessor.from_pretrained(folder)(images=image, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**texts, **pixels).logits_per_image[0]
        wanted = logits.softmax(-1) if name == "clip" else logits.sigmoid()
        read = store.read(key)
        np.testing.assert_allclose(read["scores"], wanted.sort(descending=True).values[:3].numpy(), atol=1e-6)
        np.testing.assert_array_equal(read["ids"], wanted.argsort(descending=True)[:3].numpy())


@pytest.mark.parametrize("name", ["owlv2", SLOW])
def test_a_detectors_concepts_stand_at_their_best_boxes(name, folders, images, tmp_path):
    made = OpenVocabularyConcepts(weights=str(folders[name]), words=WORDS)
    extract_images(images, made, tmp_path / "c.h5", dtype="float32", set=made.set)
    all_of_them = detected(folders[name], images, tmp_path / "f.h5", words=WORDS, class_probs=True, min_boxes=16)
    for key, _ in images:
        concepts, regions = FeatureStore(tmp_path / "c.h5", "concepts").read(key), all_of_them.read(key)
        best = regions.class_probs.max(0)
        np.testing.assert_allclose(concepts.class_scores, np.sort(best)[::-1], atol=1e-6)
        rows = regions.class_probs.argmax(0)[concepts.classes]
        np.testing.assert_allclose(concepts.boxes, regions.boxes[rows], atol=1e-3)


def refusal(name, **options):
    with pytest.raises((UsageError, DataError, ComponentError)) as caught:
        registry.build("extractors", {"name": name, **options})
    assert len(str(caught.value).splitlines()) <= 6
    return caught.value


def test_prompts_without_words(folders, tmp_path):
    (tmp_path / "blank.json").write_text('[" ", ""]')
    folder = folders["owlv2"]
    assert "no words" in refusal("transformers-detector", weights=str(folder), words=[]).what
    assert "blank" in refusal("transformers-detector", weights=str(folder), words=[" "]).got
    with pytest.raises(UsageError, match="no words") as caught:
        TransformersDetector(weights=str(folder)).attach(Labels())
    assert "class names of the data" in caught.value.where
    assert "no words" in refusal("transformers-concepts", weights=str(folders["clip"]), words=[]).what
    gone = refusal("transformers-concepts", weights=str(folders["clip"]), words=str(tmp_path / "gone.txt"))
    assert "gone.txt" in gone.where


@pytest.mark.slow
def test_a_prompt_that_is_too_long(folders):
    long = refusal("transformers-detector", weights=str(folders["grounding_dino"]), words=["cat", "red " * 40])
    assert "32 tokens" in long.expected


def test_models_that_are_no_detectors(folders, tmp_path):
    error = refusal("transformers-detector", weights=str(folders["clip"]), words=["cat"])
    assert "'clip' is no detector" in error.what
    assert "extractor transformers" in error.hint
    assert "finds the classes" in refusal("transformers-detector", weights=str(folders["detr"]), words=["cat"]).what
    bare = save(tmp_path / "dinov2", *tower("dinov2"))
    assert "does not score words" in refusal("transformers-concepts", weights=str(bare), words=["cat"]).what
    assert "is neither" in refusal("transformers", weights=str(folders["detr"])).what


def test_the_largest_logit_names_the_class_where_probabilities_are_equal() -> None:
    """Sigmoids of 20 and 25 are both 1 in float32."""
    detector = ClosedDetector.__new__(ClosedDetector)
    torch.nn.Module.__init__(detector)
    logits = torch.tensor([[[20.0, 25.0], [25.0, 20.0]]])
    found = SimpleNamespace(last_hidden_state=torch.zeros(1, 2, 3), logits=logits, pred_boxes=torch.zeros(1, 2, 4))
    detector.names, detector.model = ("cat", "dog"), lambda pixel_values: found
    queries = detector(torch.zeros(1, 3, 8, 8))
    assert (queries.probs == 1).all()
    assert queries.classes.tolist() == [[1, 0]]


def test_other_braces_of_a_template_stay(monkeypatch):
    from vlcli_hf.concepts import ImageText

    asked: list[str] = []
    network = ImageText.__new__(ImageText)
    torch.nn.Module.__init__(network)
    network.template = "{} by {name}, {}"
    monkeypatch.setattr(network, "_texts", lambda said: asked.extend(said) or torch.ones(1, 2))
    network.ask(("a {cat}",))
    assert asked == ["a {cat} by {name}, a {cat}"]
