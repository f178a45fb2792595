"""Options of the generated world ``shapes``, checked when they are set."""

from dataclasses import asdict, dataclass

from vlcli.errors import UsageError

VERSION = 1
PARTS = ("coco", "vqa", "gqa", "nlvr2", "snli-ve", "refcoco", "vist", "imagenet", "ade20k", "karpathy")
STATEMENTS = ("both", "one", "has", "more", "count", "relation", "any", "attribute")
CAPTIONS = ("single", "absent", "list", "relation", "count", "groups", "place", "compare", "distance")
QUESTIONS = (
    *("existAttrC", "twoCount", "verifyAttr", "relVerify", "count", "attr"),
    *("categoryThat", "categoryRel", "relAttr", "relChooser", "positionChoose", "positionVerify"),
)
SPLITS = ("train", "val", "test")
SIZES = ("small", "large")

PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (214, 48, 49),
    "green": (39, 160, 84),
    "blue": (45, 99, 212),
    "yellow": (241, 190, 30),
    "purple": (137, 66, 180),
    "orange": (236, 118, 28),
    "black": (44, 46, 54),
    "pink": (236, 110, 170),
    "brown": (128, 84, 52),
}
# Fields that must be 1 or more
COUNTS = (
    *("captions", "questions", "entailments", "expressions", "albums", "imagenet", "ade20k"),
    *("nlvr2_train", "nlvr2_dev", "nlvr2_test"),
)
KINDS = ("circle", "square", "triangle", "star", "cross", "ring", "hexagon", "heart")


@dataclass(frozen=True, kw_only=True)
class ShapesConfig:
    """Options of the world ``shapes``.

    Attributes:
        seed: the world is a pure function of it and of the other fields.
        images: pictures shared by the caption, question, region and entailment sets; 80/10/10 train/val/test.
        size: side of a picture in pixels.
        captions: COCO captions per picture.
        caption_forms: what they say, out of ``CAPTIONS`` (repeat one to weigh it); empty: everything, in usual shares.
        objects: fewest and most shapes in a picture.
        colours: names out of ``PALETTE``.
        kinds: names out of ``KINDS``.
        parts: the benchmarks to write, out of ``PARTS``.
        nlvr2_train: NLVR2 training examples; four (two statements, two picture pairs) belong together, so
            counts are rounded up to a multiple of four.
        nlvr2_dev: examples of NLVR2 dev.
        nlvr2_test: examples of NLVR2 test1.
        nlvr2_pool: pictures that the training statements share, composed at random; 0: every four statements have four
            pictures of their own. Held-out statements always have their own.
        statements: kinds of NLVR2 statement, in equal shares (repeat one to have more of it in training).
        more_gaps: differences in number that ``more`` statements show, drawn uniformly (repeat one to weigh it).
        questions: VQA and GQA questions per picture.
        question_types: what they ask, in equal shares, by GQA's names out of ``QUESTIONS`` (repeat one to weigh it);
            empty: everything but ``relChooser``, ``positionChoose`` and ``positionVerify``, in VQA's shares of yes/no,
            number and other.
        entailments: SNLI-VE hypotheses per picture.
        expressions: most referring expressions per object.
        place_words: whether expressions may say where a shape is (RefCOCO); RefCOCO+ forbids it.
        albums: VIST training albums; val and test hold an eighth each.
        imagenet: pictures of each of the two classification sets; 80/20 train/val.
        related: colours of the two shapes whose relation is a class; empty: any. Where they differ, a patch says
            which shape it shows, and the relation alone is left to learn.
        board: cells along a side of the shared pictures, each of which then has two shapes in the middle of cells side
            by side or farther apart (captions: ``distance``); 0: ``objects`` shapes, anywhere.
        marked: cells along a side of the pictures in ``imagenet_marked``, boards full of squares with one circle in a
            colour of its own (the first of ``related``, else of ``colours``); the class is the colour right of it.
            0: no such pictures.
        placed: cells along a side of the pictures in ``imagenet_placed``, boards with one square in the first colour;
            the class is its cell. 0: no such pictures.
        ade20k: segmentation pictures; 80/20 training/validation.
    """

    seed: int = 0
    images: int = 2000
    size: int = 112
    captions: int = 5
    caption_forms: tuple[str, ...] = ()
    objects: tuple[int, int] = (2, 5)
    colours: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple")
    kinds: tuple[str, ...] = ("circle", "square", "triangle", "star")
    parts: tuple[str, ...] = PARTS
    nlvr2_train: int = 4000
    nlvr2_dev: int = 800
    nlvr2_test: int = 800
    nlvr2_pool: int = 0
    statements: tuple[str, ...] = ("both", "one", "has", "more", "count", "relation")
    more_gaps: tuple[int, ...] = (1, 2)
    questions: int = 4
    question_types: tuple[str, ...] = ()
    entailments: int = 3
    expressions: int = 3
    place_words: bool = True
    albums: int = 160
    imagenet: int = 1000
    related: tuple[str, str] = ("", "")
    board: int = 0
    marked: int = 0
    placed: int = 0
    ade20k: int = 500

    def __post_init__(self) -> None:
        for field, value in list(vars(self).items()):
            if isinstance(value, list):
                object.__setattr__(self, field, tuple(value))
        self._check_names()
        self._check_numbers()

    def _check_names(self) -> None:
        if len(self.related) != 2 or not set(self.related) <= {"", *self.colours}:
            raise _bad("related", ", ".join(self.related), f"two of {', '.join(self.colours)}, or empty words")
        rows = [("caption_forms", CAPTIONS, 0), ("question_types", QUESTIONS, 0), ("parts", PARTS, 1)]
        rows += [("statements", STATEMENTS, 1), ("colours", tuple(PALETTE), 3), ("kinds", KINDS, 3)]
        for field, allowed, least in rows:
            names = getattr(self, field)
            unknown = sorted(set(names) - set(allowed))
            twice = field in ("parts", "colours", "kinds") and len(set(names)) != len(names)
            if unknown or len(names) < least or twice:
                expected = f"{least} or more different names" if least else "names"
                raise _bad(field, ", ".join(unknown or names) or "nothing", f"{expected} out of {', '.join(allowed)}")

    def _check_numbers(self) -> None:
        low, high = self.objects
        cells = self.size // 8
        rules = [
            ("objects", 2 <= low <= high <= 8 and high >= 4, "fewest at least 2, most between 4 and 8"),
            ("board", self.board == 0 or 4 <= self.board <= cells, f"0, or 4 to {cells} cells of 8 pixels or more"),
            ("caption_forms", self.board > 0 or "distance" not in self.caption_forms, "distance with a board alone"),
            ("marked", self.marked == 0 or 4 <= self.marked <= cells, f"0, or 4 to {cells} cells of 8 pixels or more"),
            ("placed", self.placed == 0 or 2 <= self.placed <= cells, f"0, or 2 to {cells} cells of 8 pixels or more"),
            ("size", self.size >= 64, "64 pixels or more"),
            ("nlvr2_pool", self.nlvr2_pool == 0 or self.nlvr2_pool >= 100, "0, or 100 or more"),
            ("images", self.images >= 20, "20 or more"),
            ("more_gaps", all(1 <= gap < high for gap in self.more_gaps or (0,)), f"numbers from 1 to {high - 1}"),
            *((field, getattr(self, field) >= 1, "1 or more") for field in COUNTS),
        ]
        for field, holds, expected in rules:
            if not holds:
                raise _bad(field, f"{low}-{high}" if field == "objects" else str(getattr(self, field)), expected)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def _bad(field: str, got: str, expected: str) -> UsageError:
    what, hint = f"shapes cannot be made with this {field}", "vlcli data make shapes --help"
    return UsageError(what, where=f"shapes.{field}", got=got, expected=expected, hint=hint)
