"""Every command that README shows, and how a test runs it: as it is, or in small."""

from __future__ import annotations

from dataclasses import dataclass

from .pages import PROJECT, commands, pages

PAGES = pages()
UNTRIED = ("docs/tutorial.md", "docs/reproduction.md")
SHOWN = {command for name, text in PAGES.items() for command in commands(text) if name not in UNTRIED}
"""The commands of the tutorial build on one another: test_tutorial runs them in order. Those of the page of verdicts
differ in the identifier of a claim only; tests/claims runs one."""


@dataclass(frozen=True)
class Way:
    """How a shown command is run.

    Attributes:
        says: a word of its stdout.
        more: words added to those shown.
        instead: words in place of those shown; the recipe ``quickstart`` is always the reduced one.
        slow: only in the slow tests.
    """

    says: str = ""
    more: tuple[str, ...] = ()
    instead: tuple[str, ...] | None = None
    slow: bool = False


TINY = (
    "stages.regions.extractor.arch=tiny-conv",
    "~stages.regions.extractor.weights",
    "stages.pretrain.epochs=1",
    "stages.tune.epochs=1",
)
LITTLE = ("stages.world.world.images=30", *(f"stages.world.world.nlvr2_{n}=8" for n in ("train", "dev", "test")))
DRY = ("--dry-run",)
WALLS = (
    *(
        "run",
        "tiny/photo-concepts",
        "root=photos",
        "stages.grid.extractor={name: backbone, arch: tiny-conv, boxes: grid}",
    ),
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("grid", "learn", "concepts", "test")),
    *("stages.learn.task.min_count=1", "stages.learn.epochs=2", "stages.learn.model.width=8"),
)
FEW_SHAPES = ("stages.world.world.images=40", "stages.eyes.steps=1", "text.length=24")
FEW_EPOCHS = tuple(f"stages.{stage}.epochs=1" for stage in ("words", "pretrain", "caption"))
NUMBERS = str(PROJECT / "docs" / "reproduction.json")
NEAR = (("fit", "first"), ("data", "after"))
SAID_WALLS = (
    *("run", "tiny/dimbert-photos", "root=photos", "table=~"),
    "stages.grid.extractor={name: backbone, arch: tiny-conv, boxes: grid}",
    "text.vocabulary={train: {name: jsonl, split: train}, size: 100}",
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("grid", "learn", "concepts", "pretrain")),
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("test", "caption", "said", "sheet")),
    *(f"stages.nearest.{key}={{name: jsonl, split: train, take: {take}:8}}" for key, take in NEAR),
    *("stages.learn.task.min_count=1", "stages.learn.epochs=2", "stages.learn.model.width=8"),
    *(
        "stages.pretrain.epochs=1",
        "stages.caption.epochs=1",
        "model.hidden=32",
        "stages.said.task.metrics=[cider_d]",
    ),
)
WORLD = "runs/quickstart/world/world"
LITTLE_DIMBERT = (
    *("pretrain", "--recipe", "dimbert", "--only", "pretrain", f"root={WORLD}", "model.concepts=0"),
    *("model.hidden=16", "model.heads=2", "model.layers=1", "stages.pretrain.from=[]", "stages.pretrain.epochs=1"),
    *("stages.pretrain.features=runs/quickstart/regions", "stages.pretrain.batch_size=4", "stages.pretrain.workers=0"),
    "stages.pretrain.data={name: coco-captions, split: train, limit: 8}",
    "text.vocabulary={train: {name: coco-captions, split: train}, size: 200}",
)
SMALL_DETECTOR = (
    *("extractor.depth=50", "extractor.short=48", "extractor.long=64", "extractor.proposals=5"),
    "limit=2",
)
FEW_PICTURES = ("root=photographs",)
WALLS_SEEN = ("contrast/pairs", "--pictures", "photos/images")
CONCEPTS = ("data", "concepts", f"{WORLD}/coco/annotations/captions_train.json", "--out", "words.txt")
PAIR = tuple(f"{WORLD}/nlvr2/images/test1/test1-0-0-img{side}.png" for side in (0, 1))
SHORT = tuple(f"stages.{name}.steps=2" for name in ("eyes", "image", "text", "pairs", "nlvr2"))
SMALL_DEIT = (
    *("model.hidden=16", "model.layers=1", "model.heads=2", "model.image_size=32", "stages.train.epochs=1"),
    *("stages.train.batch_size=4", "stages.train.precision=float32"),
)
PICTURE = "runs/quickstart/world/world/images/train/000000000001.png"
WAYS: dict[str, Way] = {
    "vlcli --help": Way("Pre-train"),
    "vlcli run --help": Way("--seeds"),
    "vlcli --install-completion": Way("installed"),
    "vlcli run quickstart": Way("without"),
    "vlcli run quickstart --dry-run": Way("unchanged"),
    "vlcli run quickstart root=photographs": Way("pretrain", DRY),  # run in earnest by test_photographs
    "vlcli init photos -o first.yaml": Way("vlcli run first.yaml", more=("--force",)),
    "vlcli init photos --sheet sheet.html": Way("wrote", more=("-o", "sheet.yaml")),
    "vlcli validate first.yaml": Way("valid (shallow)", instead=("validate", "first.yaml")),
    "vlcli run first.yaml": Way("judge", DRY),
    "vlcli reproduce": Way("not in small", ("--list",)),
    "vlcli reproduce --list": Way("not in small"),
    "vlcli reproduce my_paper/claims.yaml --list": Way("not in small", instead=("reproduce", "lxmert", "--list")),
    "vlcli run RECIPE:ROW seed=N": Way("train", instead=("run", "tiny/irpe-claims:none", "seed=3", *DRY)),
    "vlcli reproduce irpe --list": Way("irpe-t1-product"),
    "vlcli reproduce irpe --hours 1": Way("irpe-t1-product", ("--list",)),
    "vlcli reproduce -o docs/reproduction.md": Way("not in small", ("--list",)),
    "vlcli data where lxmert": Way("missing"),
    "vlcli data unpack photos.parquet --out unpacked": Way("2 pictures"),
    "vlcli ls checkpoints": Way("model_LXRT.pth"),
    "vlcli checkpoint model_LXRT.pth": Way("excused by a rule"),
    "vlcli checkpoint weights/unknown.pth": Way("excused by a rule", instead=("checkpoint", "Epoch20_LXRT.pth")),
    "vlcli data where": Way("https://cocodataset.org"),
    "vlcli schema -o recipe.schema.json": Way("recipe.schema.json"),
    "vlcli validate quickstart": Way("valid (shallow)"),
    "vlcli validate quickstart --deep": Way("valid (deep)"),
    "vlcli run grid/attentions --seeds 5": Way("own-below/vlmo", instead=("ls", "grid/attentions")),
    "vlcli run grid/objectives --seeds 5": Way("momentum/lxmert", instead=("ls", "grid/objectives")),
    "vlcli run grid/positions --seeds 5": Way("log-cpb/vlmo", instead=("ls", "grid/positions")),
    "vlcli run real/daquar root=FOLDER": Way("stacked attention (VGG)", instead=("ls", "real/daquar")),
    "vlcli run real/daquar root=FOLDER --seeds 5": Way("stacked attention (VGG)", instead=("ls", "real/daquar")),
    "vlcli run real/easy-vqa root=FOLDER --seeds 3": Way("two convolutions", instead=("ls", "real/easy-vqa")),
    "vlcli run real/ucm-captions root=FOLDER --seeds 5": Way("nearest picture", instead=("ls", "real/ucm-captions")),
    "vlcli run real/ucm-classes root=FOLDER --seeds 3": Way("nearest thumbnail", instead=("ls", "real/ucm-classes")),
    "vlcli run real/daquar-37 root=FOLDER --seeds 5": Way("stacked attention (VGG)", instead=("ls", "real/daquar-37")),
    "vlcli data where real/daquar:pooled": Way("nyu_depth_images.tar"),
    "vlcli run grid/ideas root=FOLDER --seeds 5": Way("experts/shapes", instead=("ls", "grid/ideas")),
    "vlcli count quickstart": Way("multiply-accumulates"),
    "vlcli count quickstart --stage nlvr2 --answers 2 --json": Way('"macs"'),
    "vlcli cp quickstart mine.yaml": Way("mine.yaml", instead=("cp", "quickstart", "copied/mine.yaml")),
    "vlcli cp quickstart -": Way("# vlcli run quickstart", instead=("cp", "quickstart", "-")),
    "vlcli doctor": Way("torch and torchvision", slow=True),
    "vlcli runs": Way("stages done"),
    "vlcli follow quickstart": Way("metrics", instead=("follow", "runs/quickstart")),
    "vlcli demo runs/quickstart/nlvr2": Way("an answer takes", ("--check", "--port", "0"), slow=True),
    "vlcli demo": Way("small/questions", ("--check", "--port", "0")),
    "vlcli data make shapes shapes --images 20 'parts=[coco]' 'colours=[red, green, blue]' "
    "'kinds=[circle, square, triangle]'": Way("captions"),
    'vlcli ask "how many circles are there" shapes/images/train/000000000001.png': Way(
        "probability", instead=("ask", "how many circles are there", PICTURE)
    ),
    "vlcli demo contrast/pairs --pictures photos/images": Way("search in", ("--check", "--port", "0")),
    "vlcli runs --clean --yes": Way("stages done"),
    "vlcli runs --clean": Way("stages done", ("--yes",)),
    "vlcli report quickstart": Way("report.html", instead=("report", "runs/quickstart", "--no-model")),
    "vlcli report quickstart quickstart-1a2b3c4d -o page.html": Way(
        "page.html", instead=("report", "runs/quickstart", "quickstart/test", "-o", "page.html", "--no-model")
    ),
    "vlcli report tiny-irpe": Way("table.html", instead=("report", "runs/quickstart/table.json", "-o", "table.html")),
    "vlcli report reproduce": Way("verdicts.html", instead=("report", NUMBERS, "-o", "verdicts.html")),
    "vlcli report docs/reproduction.json -o verdicts.html": Way(
        "verdicts.html", instead=("report", NUMBERS, "-o", "verdicts.html")
    ),
    "vlcli run quickstart --seed 2": Way("run", DRY),
    "vlcli table quickstart --format model-index": Way(
        "model-index:", instead=("table", "runs/quickstart", "--format", "model-index")
    ),
    "vlcli run quickstart 'stages.pretrain.trackers=[jsonl, trackio]'": Way(
        instead=("run", "quickstart.yaml", "stages.pretrain.trackers=[jsonl, tensorboard]", "--dry-run")
    ),
    "vlcli plugin new my-paper --only model,objective": Way(
        "objective.py", instead=("plugin", "new", "other-paper", "--only", "model,objective")
    ),
    "vlcli table quickstart --reference without": Way(
        "95 % intervals over", instead=("table", "runs/quickstart", "--reference", "without")
    ),
    "vlcli diff quickstart mine.yaml": Way("seed", instead=("diff", "quickstart", "tiny/lxmert")),
    "vlcli diff quickstart/test quickstart/scratch-test": Way("settings"),
    "vlcli run own.yaml": Way("accuracy", TINY),
    "vlcli run irpe.yaml": Way("train/loss", ("--until", "pretrain")),
    "vlcli diff runs/quickstart runs/irpe": Way(
        "no difference", instead=("diff", "runs/quickstart", "runs/quickstart")
    ),
    "vlcli run table.yaml": Way("accuracy"),
    "vlcli data stats table.yaml": Way("csv"),
    "vlcli data stats quickstart": Way("coco-captions"),
    "vlcli run mine.yaml stages.pretrain.epochs=3 model.hidden=64": Way("train/loss", ("--until", "pretrain")),
    "vlcli pretrain --recipe mine.yaml --only pretrain objectives.mlm.probability=0.2 --dry-run": Way("pretrain"),
    "vlcli run quickstart --seeds 3 --table": Way("skip", DRY),
    "vlcli run quickstart --seeds 10 --table": Way("skip", DRY),
    "vlcli run quickstart mine.yaml --seeds 3 --table": Way("±", ("--until", "test"), slow=True),
    "vlcli extract --recipe quickstart": Way("skip"),
    "vlcli export --recipe quickstart": Way("skip"),
    "vlcli export quickstart/nlvr2 --format hub license=apache-2.0 -o nlvr2-shapes": Way("nlvr2-shapes"),
    "vlcli eval --recipe quickstart": Way("language-test"),
    "vlcli eval nlvr2": Way("accuracy"),
    "vlcli eval nlvr2 --split dev": Way("runs/eval/nlvr2-"),
    "vlcli eval nlvr2 --stage runs/quickstart/scratch --json": Way('"accuracy/both"'),
    "vlcli run quickstart --only test": Way("skip"),
    "vlcli run quickstart --only onnx": Way("skip"),
    "vlcli plugin new my-paper": Way("pyproject.toml"),
    "vlcli plugin check my-paper": Way("interface", instead=("plugin", "check", "--quick", "bag-contrast")),
    "vlcli plugin check --quick lxmert": Way("masks"),
    "vlcli plugin check vilt --against transformers:ViltModel": Way("pooled"),
    "vlcli run my-paper/small": Way("skip", instead=("run", "quickstart.yaml", *DRY)),  # run by test_new_package
    "vlcli run quickstart --from nlvr2 --until test": Way("skip"),
    "vlcli run quickstart --force --only nlvr2": Way("run"),
    "vlcli run quickstart stages.pretrain.objectives.mlm.probability=0.2 '~stages.onnx' --dry-run": Way("reuse"),
    "vlcli pretrain --recipe quickstart --only pretrain optimizer.lr=3e-4 --dry-run": Way("not made yet"),
    "vlcli extract --recipe regions root=PICTURES extractor.weights=resnet50.safetensors": Way(
        "regions", instead=("extract", "--recipe", "regions", "root=photographs", "extractor.arch=tiny-conv")
    ),
    "vlcli run dino.yaml root=PICTURES": Way("run", instead=("run", "dino.yaml", *FEW_PICTURES)),
    "vlcli run objects.yaml root=PICTURES": Way("run", instead=("run", "objects.yaml", *FEW_PICTURES), slow=True),
    "vlcli run seen.yaml root=PICTURES": Way("run", instead=("run", "seen.yaml", *FEW_PICTURES), slow=True),
    "vlcli extract --recipe bottom-up.yaml root=PICTURES": Way(
        "regions",
        instead=("extract", "--recipe", "bottom-up.yaml", "root=photographs", "~extractor.weights", *SMALL_DETECTOR),
    ),
    "vlcli features info runs/quickstart/regions": Way("provenance.extractor"),
    "vlcli features info runs/quickstart/regions --json": Way('"provenance"'),
    "vlcli features verify runs/quickstart/regions": Way("sound"),
    "vlcli features verify runs/quickstart/regions/features.h5": Way("sound"),
    "vlcli features merge runs/quickstart/regions/features.h5 --out all.h5": Way("all.h5", ("--force",)),
    "vlcli features merge detected=runs/quickstart/regions truth=all.h5 --out both.h5": Way(
        "both.h5",
        instead=("features", "merge", "a=runs/quickstart/regions", "b=runs/quickstart/regions", "--out", "both.h5"),
    ),
    "vlcli features join runs/quickstart/regions/features.h5 --out runs/index.h5": Way("index.h5", ("--force",)),
    f"vlcli features draw runs/quickstart/regions {PICTURE} --limit 10": Way("000000000001.png"),
    "vlcli features export obj36 runs/quickstart/regions features.tsv": Way("images", ("--force",)),
    "vlcli features import obj36 features.tsv imported.h5 --dtype float32": Way("0 errors"),
    "vlcli data make shapes DATA --images 200 'parts=[coco, nlvr2]' nlvr2_train=40": Way(
        "captions", ("--images", "20", "nlvr2_pool=100", "nlvr2_test=4")
    ),
    "vlcli data make shapes DATA --images 200 'parts=[coco, vqa]' questions=2": Way("questions", ("--images", "20")),
    "vlcli data stats --root DATA": Way("COCO-Cap", instead=("data", "stats", "--root", "asked")),
    "vlcli data aggregate DATA": Way("mscoco_train.json", instead=("data", "aggregate", "asked", "--out", "lists")),
    "vlcli data answers DATA --size 9500": Way(
        "2 answers", instead=("data", "answers", "asked", "--out", "lists/a.json")
    ),
    "vlcli data coverage DATA/vqa/trainval_label2ans.json DATA/lxmert/all_ans.json": Way(
        "2 of 3", instead=("data", "coverage", "asked/wanted.json", "asked/table.json")
    ),
    "vlcli run tiny/detector": Way(
        "AP50", ("stages.world.world.images=40", "stages.detector.steps=2", "stages.detector.batch_size=4", "--quiet")
    ),
    "vlcli validate detector.yaml": Way("valid (shallow)"),
    "vlcli run tiny/concepts": Way(
        "baseline/f1@own",
        ("stages.world.world.images=40", "stages.eyes.steps=2", "stages.learn.epochs=1", "--quiet"),
    ),
    "vlcli run tiny/photo-concepts root=photographs": Way("baseline/f1@20", instead=WALLS),
    "vlcli data concepts captions_train.json --out words.txt": Way("words.txt", instead=CONCEPTS),
    "vlcli data concepts captions_train.json --out words.json --size 500 --pos NN,JJ --min-count 5": Way(
        "words.json", instead=(*CONCEPTS[:-1], "words.json", "--size", "500", "--pos", "NN,JJ", "--min-count", "5")
    ),
    "vlcli draw attention --stage quickstart/nlvr2": Way("attention-1.png", ("count=1",)),
    "vlcli draw predictions --stage quickstart/nlvr2 split=test1 count=12 --out pictures": Way(
        "pictures/predictions.png"
    ),
    "vlcli draw --recipe pictures.yaml": Way("looks", DRY),
    "vlcli draw reds --plugin reds.py --root photos data=folder": Way("reds.png"),
    "vlcli run tiny/two-tower": Way(
        "r_mean", ("stages.world.world.images=40", "stages.pairs.epochs=1", "~table", "--quiet")
    ),
    "vlcli run tiny/two-tower-fused": Way("nlvr2-test", DRY),
    "vlcli run tiny/dimbert": Way("right/look", (*FEW_SHAPES, *FEW_EPOCHS, "--quiet"), slow=True),
    "vlcli run tiny/dimbert-scst": Way(
        "self-critical",
        (*FEW_SHAPES, *FEW_EPOCHS, "stages.scst.steps=1", "stages.scst.batch_size=4", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/dimbert-ablation --seeds 5": Way("runs/tiny-dimbert-ablation-neither", DRY),
    "vlcli run tiny/dimbert-photos root=photographs": Way("said", instead=SAID_WALLS),
    "vlcli count vlmo/parts:coco --stage coco": Way("177,413,857"),
    "vlcli count dimbert/vlp": Way("115,939,396"),
    "vlcli pretrain --recipe dimbert root=DATA": Way("train/loss", instead=LITTLE_DIMBERT),
    "vlcli run tiny/dimbert-story": Way(
        "in_order",
        ("stages.world.world.albums=8", "stages.eyes.steps=1", "stages.story.epochs=1", "text.length=80", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/dimbert-referring": Way(
        "accuracy/other",
        ("stages.world.world.images=120", "stages.eyes.steps=1", "stages.refer.epochs=1", "--quiet"),
        slow=True,
    ),
    "vlcli draw --recipe grounding.yaml": Way("looks", DRY),
    "vlcli draw dimbert-captions --stage dimbert-table4-base/coco --stage dimbert-table7-without/coco"
    " --stage dimbert-table4-blm-s2slm/coco --stage dimbert-table7-dimbert/coco"
    " 'names=[Base, w/o ViCo, w/o DiM, DiMBERT]' split=test": Way("names", instead=("show", "dimbert-captions")),
    "vlcli draw irpe-index ratio=2.0": Way("index.png"),
    "vlcli draw irpe-buckets method=cross 'grid=[10, 16]' 'at=[[0, 0], [5, 8]]'": Way("buckets-cross.json"),
    "vlcli draw irpe-macs": Way("macs.png", ("resolutions=[64]", "sides=[K]", "size=tiny")),
    "vlcli draw irpe-speed batch=4 rounds=3": Way(
        "speed.png", ("size=tiny", "resolution=32", "rounds=1", "encodings=[iRPE K]"), slow=True
    ),
    "vlcli run tiny/irpe-buckets": Way("b169-test", DRY),
    "vlcli count irpe/table6:6": Way("41,540,320"),
    "vlcli count irpe/table5:small-qkv": Way("22,165,864"),
    "vlcli run irpe root=DATA": Way(
        "top5", instead=("run", "irpe", "root=classes", *SMALL_DEIT, "stages.train.workers=0", "stages.test.workers=0")
    ),
    "vlcli run tiny/irpe --seeds 5": Way(
        "quantization", ("stages.world.world.imagenet=40", "stages.train.steps=2", "--quiet"), slow=True
    ),
    "vlcli count vlmo": Way("202,445,470"),
    "vlcli run vlmo root=DATA --dry-run": Way("second_path", instead=("show", "vlmo")),
    "vlcli run tiny/segmentation": Way(
        "UPerNet",
        ("stages.world.world.ade20k=5", "stages.light.steps=1", "stages.upernet.steps=1", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/vlmo --seeds 5": Way("staged", (*LITTLE, *SHORT, "--quiet"), slow=True),
    "vlcli run tiny/beit3": Way("cider_d", ("stages.world.world.images=30", "stages.pairs.steps=2", "--quiet")),
    "vlcli checkpoint beit3_base_itc_patch16_224.pth": Way("excused by a rule"),
    "vlcli run tiny/detr": Way(
        "AP50", ("stages.world.world.images=20", "stages.detr.steps=1", "stages.detr.batch_size=2", "--quiet")
    ),
    "vlcli eval --predictions runs/quickstart/test/predictions.jsonl --stage quickstart/test": Way(
        "consistency",
        instead=("eval", "--predictions", "runs/quickstart/test/predictions.jsonl", "--stage", "quickstart/test"),
    ),
    "vlcli eval nlvr2 --predictions answers.csv --root DATA --split dev": Way(
        "consistency",
        instead=(
            *("eval", "nlvr2", "--predictions", "runs/quickstart/test/nlvr2.csv"),
            *("--root", WORLD, "--split", "test1"),
        ),
    ),
    'vlcli predict quickstart/nlvr2 one.png two.png "each picture has a red circle"': Way(
        "probability", instead=("predict", "quickstart/nlvr2", *PAIR, "each picture has a red circle")
    ),
    "vlcli predict quickstart/detector PICTURES --draw boxes.png": Way(
        "", instead=("predict", "quickstart/detector", *PAIR, "--min-score", "0", "--draw", "boxes.png", "--quiet")
    ),
    "vlcli predict quickstart/nlvr2 - --json < requests.jsonl": Way(
        '"choices"', instead=("predict", "quickstart/nlvr2", *PAIR, "each picture has a red circle", "--json")
    ),
    'vlcli ask quickstart/nlvr2 "each picture has a red circle" test1-0-0-img0 test1-0-0-img1 '
    "--features runs/quickstart/regions": Way("prediction"),
    'vlcli search photos/pairs "a red circle" --pictures PICTURES --top 5 --draw found.png': Way(
        "rank", instead=("search", *WALLS_SEEN, "a red wall", "--top", "5", "--draw", "found.png")
    ),
    "vlcli search photos/pairs --picture PICTURES/one.png --pictures PICTURES --json": Way(
        '"embedded"', instead=("search", *WALLS_SEEN, "--picture", "photos/images/train0.png", "--json")
    ),
    "vlcli search photos/pairs --picture PICTURES/one.png --texts sentences.txt": Way(
        "sentence",
        instead=("search", WALLS_SEEN[0], "--picture", "photos/images/train0.png", "--texts", "sentences.txt"),
    ),
    "vlcli count lxmert": Way("228,051,752"),
    "vlcli count ace-rpe": Way("56,821,248"),
    "vlcli run ace-rpe root=DATA": Way("anchor-alignment", instead=("show", "ace-rpe")),
    "vlcli validate ace-rpe/table1:rpe root=DATA": Way("shaw", instead=("show", "ace-rpe/table1:rpe")),
    "vlcli run tiny/ace-rpe --seeds 5": Way(
        "anchor", (*LITTLE, *(f"stages.{name}.epochs=1" for name in ("pretrain", "tuned")), "--quiet"), slow=True
    ),
    "vlcli run tiny/ace-rpe-grounding": Way(
        "pointing",
        ("stages.world.world.images=30", "stages.eyes.steps=2", "stages.tune.epochs=1", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/lxmert": Way("NLVR2", LITTLE, slow=True),
    "vlcli run tiny/lxmert-table3 --seeds 5": Way("pretrain-scratch", LITTLE, slow=True),
    "vlcli trust FOLDER": Way("", instead=("trust", ".")),
    "vlcli trust papers": Way("", instead=("trust", ".")),
    "vlcli trust --list": Way(),  # nothing is trusted here, which is said on stderr
    "vlcli count tiny/lxmert tiny/vlmo": Way("tiny/vlmo"),
    "vlcli plan lxmert --gpus 4 --memory 80GB --examples 9180000 --disk 500MB": Way("activations", slow=True),
    "vlcli plan vlmo --stage pairs --gpus 64 --memory 80GB --examples 10000000 --disk 500MB": Way("casts", slow=True),
    "vlcli plan ace-rpe --gpus 8 --memory 80GB --examples 5000000 --disk 500MB": Way("activations", slow=True),
    "vlcli plan quickstart --gpus 4 --memory 80GB": Way("activations"),
    "vlcli rehearse lxmert --gpus 4 --memory 40GB": Way("rehearsed-export", slow=True),
    "vlcli rehearse irpe/table1 --rows original": Way("rehearsed-export", slow=True),
    "vlcli kit lxmert/table2 -o kit": Way(
        "results.json", instead=("kit", "irpe/table1", "--rows", "original", "-o", "kit"), slow=True
    ),
    "vlcli kit TABLE": Way("--rows", instead=("kit", "--help")),
    "vlcli table kit/results.json": Way("without", instead=("table", "runs/quickstart/table.json")),
    "vlcli eval sugarcrepe --stage clip-vit-base-patch32 --root DATA": Way(
        "SugarCrepe", instead=("show", "sugarcrepe")
    ),
    "vlcli rehearse vlmo --folder rehearsal": Way("rehearsed-export", slow=True),
    "vlcli run tiny_paper.yaml --trust": Way("lxmert", DRY),  # run in earnest by test_docs
    "vlcli run gated.yaml --trust": Way("gated", DRY),  # run in earnest by test_docs
    "vlcli run statements.yaml --trust": Way("tune", DRY),  # run in earnest by test_docs
    "vlcli run patches.yaml --trust": Way("patches", DRY),  # run in earnest by test_docs
    "vlcli run one_stream.yaml --trust": Way("joint", DRY),  # run in earnest by test_docs
    "vlcli plugin check one-stream --plugin one_stream.py --against transformers:ViltModel": Way("pooled"),
    "vlcli data make shapes world --images 60 'parts=[snli-ve]'": Way(
        "hypotheses", instead=("data", "make", "shapes", "statements-world", "--images", "20", "parts=[snli-ve]")
    ),
    "vlcli run roles.yaml": Way("train/loss", ("stages.pretrain.steps=4",)),
    "vlcli run quickstart --only pretrain --processes 2": Way("train/loss", ("--force",), slow=True),
    "torchrun --nproc-per-node 2 --max-restarts 3 -m vlcli run quickstart --only pretrain": Way(
        "train/loss", ("--force",), slow=True
    ),
    "vlcli extract --recipe quickstart --only regions --processes 2": Way("regions", ("--force",), slow=True),
    "vlcli extract --recipe quickstart --only regions stages.regions.workers=4": Way(
        "regions", ("--force",), slow=True
    ),
}
LOOKING = ("vlcli ls", "vlcli show")
"""Commands that begin so run as they are shown and need no way of their own."""
