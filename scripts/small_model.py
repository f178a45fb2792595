"""Makes the small model that ``vlcli demo``, ``ask`` and ``predict`` use without a model.

vlcli run quickstart --until questions
python scripts/small_model.py runs/quickstart
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import vlcli
from vlcli.builders.readers import open_readers
from vlcli.demo.samples import small_world
from vlcli.engine.bundle import CONFIG, WEIGHTS, load_bundle, record_weights
from vlcli.export.weights import Safetensors
from vlcli.files import follow_mask
from vlcli.prediction.records import Failure, Request
from vlcli.prediction.sources import SMALL_FOLDER
from vlcli.progress import Silent

COMMAND = "vlcli run quickstart --until questions && python scripts/small_model.py runs/quickstart"
PARTS = ("detector", "questions")
SEED = 11
"""Of the pictures on which it is tried; the recipe's world has another."""


def main(run: Path) -> None:
    """Writes both parts, their digests, and how many questions about new pictures they answer."""
    for part in PARTS:
        Safetensors(dtype="int8").export(load_bundle(run / part), SMALL_FOLDER / part, Silent())
        record_weights(SMALL_FOLDER / part / "model")
        follow_mask([SMALL_FOLDER / part / "model" / WEIGHTS])
    file = SMALL_FOLDER / "questions" / "model" / CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    (eyes,) = config["extraction"]
    digest = sha256(SMALL_FOLDER / "detector" / "model" / WEIGHTS)
    eyes |= {"weights": "", "beside": f"../../detector/model/{WEIGHTS}"}
    eyes["provenance"]["weights_sha256"] = digest
    file.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    digests = {f"{part}/model/{WEIGHTS}": sha256(SMALL_FOLDER / part / "model" / WEIGHTS) for part in PARTS}
    seed = json.loads((run / "questions" / "stage.json").read_text(encoding="utf-8"))["seed"]
    facts = {"command": COMMAND, "seed": seed, "sha256": digests, "accuracy": round(accuracy(), 3)}
    (SMALL_FOLDER / "made.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(facts, indent=1))


def sha256(file: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def accuracy(images: int = 100) -> float:
    """The share of right answers about pictures that it has never seen."""
    model = vlcli.load(SMALL_FOLDER / "questions")
    with tempfile.TemporaryDirectory() as folder:
        small_world(Path(folder), images, SEED)
        (reader,) = open_readers([{"name": "vqa", "split": "train"}], Path(folder))
        examples = reader.examples()
        asked = [Request([reader.locate(one.images[0])], one.text) for one in examples]
        said = list(model.predict_many(asked))
    right = [
        not isinstance(one, Failure) and ex.targets["answers"].get(str(one.prediction), 0) > 0.5
        for one, ex in zip(said, examples, strict=True)
    ]
    return sum(right) / len(right)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
