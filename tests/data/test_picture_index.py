"""Names as annotations write them find their file, or are refused; never another file."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlcli.data import picture_index
from vlcli.data.picture_index import AmbiguousNameError, PictureIndex, near_misses, path_id, written_path
from vlcli.data.readers.generic import Csv, JsonLines
from vlcli.errors import DataError


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return root


def rows(root: Path, *names: object, file: str = "train.jsonl") -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / file).write_text("".join(json.dumps({"image": name, "text": "a"}) + "\n" for name in names))


FOUND = [
    ("Fotos\\Büro\\IMG.JPG", "Fotos/Büro/IMG.JPG", "separator"),
    ("Fotos/Büro/IMG.JPG", unicodedata.normalize("NFD", "Fotos/Büro/IMG.JPG"), "form"),
    ("img_1.jpg", "IMG_1.jpg", "case"),
    ("a.JPG", "a.jpg", "case"),
    ("cat/1.jpg", "Cat/1.jpg", "case"),
    ("1.tif", "1.jpg", "ending"),
    ("a 2.0", "a 2.0.jpg", "ending"),
    ("photo.final", "photo.final.png", "ending"),
    ("/home/bob/data/coco/images/1.jpg", "images/1.jpg", "path"),
    ("C:\\Users\\bob\\1.jpg", "1.jpg", "path"),
    ("1.jpg", "2021/may/1.jpg", "folder"),
    ("17", "2021/17.jpg", "folder"),
    ("back/slash.png", "back\\slash.png", "separator"),
    ("42", "val2014/COCO_val2014_000000000042.jpg", "number"),
    ("42.png", "frame-0042.png", "number"),
]


@pytest.mark.parametrize(("name", "file", "way"), FOUND)
def test_a_name_finds_the_one_file_that_fits(tmp_path: Path, name: str, file: str, way: str) -> None:
    tree(tmp_path, file, "other/no.jpg", "a 2.1.jpg", "11.jpg", "photo.png" if "final" not in file else "draft.png")
    match = PictureIndex(tmp_path).find(name)
    assert match is not None
    assert (match.file, match.way) == (file, way)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("1.tif", ["1.jpg", "1.png"]),
        ("0000.jpg", ["cat/0000.jpg", "dog/0000.jpg"]),
        ("Img.jpg", ["IMG.jpg", "img.jpg"]),
        ("1.TIF", ["1.jpg", "thumbs/1.jpg"]),
        ("42", ["COCO_train2014_000000000042.jpg", "COCO_val2014_000000000042.jpg"]),
        ("caf\u00e9", [unicodedata.normalize(form, "café.jpg") for form in ("NFC", "NFD")]),
    ],
)
def test_a_name_that_several_files_fit_is_refused_and_they_are_named(
    tmp_path: Path, name: str, files: list[str]
) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        PictureIndex(tree(tmp_path, *files)).find(name)
    assert sorted(caught.value.files) == sorted(files)


@pytest.mark.parametrize(
    ("name", "files", "taken"),
    [
        ("1.jpg", ["photos/1.jpg", "masks/1.png"], "photos/1.jpg"),
        ("1.JPG", ["1.jpg", "1.png"], "1.jpg"),
        ("/home/bob/images/1.jpg", ["images/1.jpg", "1.jpg"], "images/1.jpg"),
    ],
)
def test_the_closest_file_by_both_measures_is_taken(tmp_path: Path, name: str, files: list[str], taken: str) -> None:
    match = PictureIndex(tree(tmp_path, *files)).find(name)
    assert match is not None
    assert match.file == taken


def test_another_folder_is_no_relaxation(tmp_path: Path) -> None:
    index = PictureIndex(tree(tmp_path, "test/0.png", "train/1.png"))
    assert index.find("train/0.png") is None
    assert index.near("train/0.png")[0] == "test/0.png"


LETTERS = st.sampled_from(["a", "B", "ö", "é", "7", "0", " ", "_", ".5"])
STEMS = st.lists(LETTERS, min_size=1, max_size=4).map("".join).filter(lambda text: text.strip(" .") == text)
FILES = st.lists(
    st.tuples(st.lists(st.sampled_from(["train", "Test", "Büro", "2021"]), max_size=2), STEMS, st.sampled_from("jp")),
    min_size=1,
    max_size=8,
)
RELAXED: dict[str, Callable[[str], str]] = {
    "separator": lambda name: name.replace("/", "\\"),
    "form": lambda name: unicodedata.normalize("NFC", name),
    "case": str.swapcase,
    "ending": lambda name: name[:-4] + ".tif" if name[-4:].lower() in (".jpg", ".png") else name,
    "no ending": lambda name: name[:-4] if name[-4:].lower() in (".jpg", ".png") else name,
    "absolute": lambda name: f"/home/bob/data/{name}",
    "bare": lambda name: name.rpartition("/")[2],
}


def bare_last(kinds: list[str]) -> list[str]:
    """A name whose folders are dropped first and replaced then names another folder, which is no relaxation."""
    return sorted(kinds, key="bare".__eq__)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, st.lists(st.sampled_from(list(RELAXED)), max_size=3, unique=True).map(bare_last))
def test_a_relaxed_table_finds_its_own_files_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[list[str], str, str]], kinds: Sequence[str]
) -> None:
    """Every name of a table is written the same other way; none may find the file of another name."""
    root = tmp_path_factory.mktemp("tree")
    endings = {"j": ".jpg", "p": ".png"}
    paths = ["/".join([*folders, stem + endings[ending]]) for folders, stem, ending in parts]
    tree(root, *(unicodedata.normalize("NFD", path) for path in paths))
    index = PictureIndex(root)
    for file in index.files:
        name = unicodedata.normalize("NFD", file)
        for kind in kinds:
            name = RELAXED[kind](name)
        same = unicodedata.normalize("NFC", name.replace("\\", "/"))
        named = [one for one in index.files if unicodedata.normalize("NFC", one) == same]
        try:
            match = index.find(name)
        except AmbiguousNameError:
            continue
        if named and file not in named:  # the name, as it is written, is another file's
            assert match is not None
            assert match.file in named
        else:
            assert match is not None
            assert match.file == file


def test_readers_count_the_names_that_differ_and_say_how(tmp_path: Path) -> None:
    tree(tmp_path, *(f"images/{n}.jpg" for n in range(30)))
    rows(tmp_path, *(f"{n}.tif" for n in range(30)))
    reader = JsonLines(tmp_path)
    assert {name: path.name for name, path in reader.image_files().items()} == {str(n): f"{n}.jpg" for n in range(30)}
    assert reader.notes() == ["JsonLines (train): 30 picture names found by another ending: 0.tif -> 0.jpg"]


def test_names_that_look_alike_are_escaped(tmp_path: Path) -> None:
    tree(tmp_path, "images/cafe\u0301.jpg")
    rows(tmp_path, "caf\u00e9.jpg")
    reader = JsonLines(tmp_path)
    reader.image_files()
    assert reader.notes()[0].endswith(r"in another Unicode form: 'caf\xe9.jpg' -> 'cafe\u0301.jpg'")
    tree(tmp_path, "images/\u0430bc.jpg")
    assert near_misses(tmp_path / "images/abc.jpg") == r"'abc.jpg'; close to it: '\u0430bc.jpg'"
    rows(tmp_path, "img\u00a01.jpg")
    tree(tmp_path, "images/img 1.jpg")
    assert JsonLines(tmp_path).near("img\u00a01") == r"close to 'img\xa01': 'img 1.jpg'"


def test_exact_names_cost_no_look_at_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, *(f"images/{n % 7}/{n}.jpg" for n in range(700)))
    rows(tmp_path, *(f"{n % 7}/{n}.jpg" for n in range(700)))
    monkeypatch.setattr(picture_index, "picture_index", lambda folder: pytest.fail(f"{folder} was walked"))
    reader = JsonLines(tmp_path)
    assert len(reader.image_files()) == 700
    assert reader.notes() == []


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_exact_names_take_little_time(tmp_path: Path, count: int) -> None:
    (tmp_path / "images").mkdir()
    names = [f"{n:06d}.jpg" for n in range(count)]
    rows(tmp_path, *names)
    for name in names[:1000]:
        (tmp_path / "images" / name).touch()
    reader = JsonLines(tmp_path, limit=1000)
    started = time.process_time()
    reader.examples()
    read = time.process_time() - started
    started = time.process_time()
    reader.image_files()
    assert time.process_time() - started < max(0.1, read)


def test_equal_names_in_two_folders_of_a_table_are_two_pictures(tmp_path: Path) -> None:
    tree(tmp_path, "images/train/0.png", "images/test/0.png", "images/test/1.png")
    rows(tmp_path, "train/0.png", "test/0.png", "test/1.png")
    reader = JsonLines(tmp_path)
    assert [example.images for example in reader.examples()] == [
        ["images/train/0"],
        ["images/test/0"],
        ["images/test/1"],
    ]
    assert reader.locate("images/test/0") == tmp_path / "images/test/0.png"
    one = JsonLines(tmp_path)
    one.limit = 1
    assert [example.images for example in one.examples()] == [["images/train/0"]]  # the same id, whatever is chosen


def test_ids_of_unique_names_are_the_names_and_may_be_paths(tmp_path: Path) -> None:
    rows(tmp_path, "train/5.png", "6.png")
    assert [example.images for example in JsonLines(tmp_path).examples()] == [["5"], ["6"]]
    reader = JsonLines(tmp_path)
    reader.ids = "path"
    assert [example.images for example in reader.examples()] == [["images/train/5"], ["images/6"]]


def test_two_names_that_find_one_file_are_refused(tmp_path: Path) -> None:
    tree(tmp_path, "images/0.png")
    rows(tmp_path, "train/0.png", "test/0.png")
    with pytest.raises(DataError, match="Two picture names find the same file") as caught:
        JsonLines(tmp_path).image_files()
    assert "train/0.png" in caught.value.got
    tree(tmp_path, "images/1.jpg")
    rows(tmp_path, "1.jpg", "x/1.tif")
    with pytest.raises(DataError, match="Two picture names find the same file"):
        JsonLines(tmp_path).image_files()


def test_absolute_names_open_nothing_outside(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", "images/a.jpg", "images/sub/b.jpg")
    secret = tree(tmp_path, "outside/secret.jpg") / "outside/secret.jpg"
    assert written_path(root, root / "images", str(root / "images/a.jpg")) == str(root / "images/a.jpg")
    rows(root, str(root / "images/a.jpg"), "/home/bob/x/sub/b.jpg", str(secret))
    reader = JsonLines(root)
    located = list(reader.image_files().values())
    assert located[:2] == [root / "images/a.jpg", root / "images/sub/b.jpg"]
    assert located[2] != secret
    assert not located[2].exists()
    elsewhere = JsonLines(root, images=str(tmp_path / "outside"))
    assert list(elsewhere.image_files().values())[2] == secret
    rows(root, f"{root}/images/../../outside/secret.jpg", "../../outside/secret.jpg")
    with pytest.raises(DataError, match="leaves the data root"):
        JsonLines(root).image_files()


@pytest.mark.parametrize("file", ["image42.png", "142.png", "a-0420.png", "0042b.png", "x042.png"])
def test_a_number_is_no_other_number_nor_part_of_one(tmp_path: Path, file: str) -> None:
    assert PictureIndex(tree(tmp_path, file)).find("42") is None


def test_plain_numbers_name_pictures(tmp_path: Path) -> None:
    tree(tmp_path, "images/1.png", "images/sub/2.jpg")
    (tmp_path / "train.csv").write_text("image,text\n1,a\n2,b\n")
    assert [path.name for path in Csv(tmp_path).image_files().values()] == ["1.png", "2.jpg"]


def test_a_path_is_an_id_below_the_root_or_the_image_folder(tmp_path: Path) -> None:
    root, folder = Path("data"), tmp_path / "pictures"
    assert path_id(root, folder, "data/a/1.jpg") == "a/1"
    assert path_id(root, folder, f"{Path.cwd()}/data/a/1.jpg") == "a/1"
    assert path_id(root, folder, f"{folder}/b/2.0") == "b/2.0"
    assert path_id(root, folder, "data/a/1.jpg", ending=True) == "a/1.jpg"


def test_pictures_of_a_folder_that_was_not_there_are_found_and_each_working_folder_has_its_own(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert picture_index.picture_index(Path("images")).find("x") is None
        (tmp_path / name / "images").mkdir()
        (tmp_path / name / "images" / f"{name}.jpg").touch()
        assert picture_index.picture_index(Path("images")).files == [f"{name}.jpg"]
