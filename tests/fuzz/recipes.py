"""Bad recipes: YAML that is none, numbers out of bounds, names that nobody registered, patterns, plugins."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fuzz.harness import Trial

HEAD = "root: .\nmodel: lxmert\nstages:\n  train: {kind: pretrain, data: jsonl, objectives: [mlm]%s}\n"

DOCUMENTS: dict[str, str | bytes] = {
    "empty": "",
    "null": "~",
    "list": "[1, 2]",
    "word": "hello",
    "number": "3",
    "binary": b"\x00\x01\x02\xff\xfe",
    "not-utf8": b"about: \xff\xfe\n",
    "nul": "about: a\x00b\n",
    "utf16": "stages: {}".encode("utf-16"),
    "bom": b"\xef\xbb\xbfstages: 3\n",
    "tab": "stages:\n\ttrain: {}\n",
    "unclosed": "stages: {train: [",
    "colon": "a: b: c\n",
    "twice": "stages: {}\nstages: {}\n",
    "integer-5000": "seed: " + "7" * 5000 + "\nstages: {}\n",
    "hex-5000": "seed: 0x" + "f" * 5000 + "\nstages: {}\n",
    "float-5000": "seed: 1." + "7" * 5000 + "\nstages: {}\n",
    "exponent": "seed: 1e999999\nstages: {}\n",
    "recursive-list": "stages: &a [*a]\n",
    "recursive-mapping": "stages: &a {train: *a}\n",
    "recursive-model": "model: &a {name: lxmert, x: *a}\nstages: {}\n",
    "bomb": "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10) if i else '1'}]\n" for i in range(9)),
    "deep-3000": "[" * 3000 + "]" * 3000,
    "deep-mapping": "{a: " * 3000 + "1" + "}" * 3000,
    "deep-block": "\n".join(" " * i + "a:" for i in range(600)),
    "deep-90": "about: " + "[" * 90 + "]" * 90 + "\nstages: {}\n",
    "huge": "# " + "x" * 3_000_000,
    "wide": "stages: {" + ", ".join(f"s{i}: {{kind: make}}" for i in range(1000)) + "}",
    "too-wide": "stages: {" + ", ".join(f"s{i}: {{kind: make}}" for i in range(40_000)) + "}",
    "python-tag": "stages: !!python/object/apply:os.system [id]\n",
    "own-tag": "stages: !mine {}\n",
    "key-mapping": "? {a: 1}\n: 2\n",
    "merge-key": "stages: {<<: 3}\n",
    "surrogate": 'about: "\\ud800"\nstages: {}\n',
    "surrogate-key": '"\\udfff": 1\nstages: {}\n',
    "alias-unknown": "stages: *nothing\n",
    "directive": "%YAML 99999999999999999999.1\n---\nstages: {}\n",
    "two-documents": "a: 1\n---\nb: 2\n",
    "control": "about: \x1b[31m\nstages: {}\n",
    "escape": 'about: "\\UFFFFFFFF"\nstages: {}\n',
    "binary-tag": "about: !!binary aGVsbG8=\nstages: {}\n",
    "timestamp": "about: !!timestamp 99999-99-99\nstages: {}\n",
    "integer-tag": "seed: !!int many\nstages: {}\n",
    "no-stages": "about: nothing\n",
    "stages-null": "stages: ~\n",
    "stages-list": "stages: [make]\n",
    "stage-null-name": "stages: {~: {kind: make}}\n",
    "stage-number": "stages: {3: 4}\n",
    "stage-path": "stages: {../../x: {kind: make}}\n",
    "stage-long-name": "stages: {" + "x" * 300 + ": {kind: make}}\n",
    "recipe-long-name": "name: " + "y" * 300 + "\nstages: {world: {kind: make}}\n",
    "recipe-odd-name": "name: '\U0001f600'\nstages: {world: {kind: evaluate}}\n",
    "kind-list": "stages: {a: {kind: [make]}}\n",
    "kind-null": "stages: {a: {kind: ~}}\n",
    "kind-number": "stages: {a: {kind: 3}}\n",
    "extends-self": "extends: ./r.yaml\nstages: {}\n",
    "extends-number": "extends: 3\nstages: {}\n",
    "extends-missing": "extends: nothing-of-this-name\nstages: {}\n",
    "extends-folder": "extends: .\nstages: {}\n",
    "extends-long": "extends: " + "z" * 5000 + "\nstages: {}\n",
    "extends-nul": 'extends: "a\\0b"\nstages: {}\n',
    "root-nul": 'root: "a\\0b"\nstages: {train: {kind: pretrain, model: lxmert, data: jsonl, objectives: [mlm]}}\n',
    "root-long": f"root: {'r' * 5000}\n"
    + "stages: {t: {kind: pretrain, model: lxmert, data: csv, objectives: [mlm]}}\n",
    "root-file": "root: r.yaml\nstages: {train: {kind: pretrain, model: lxmert, data: jsonl, objectives: [mlm]}}\n",
    "from-itself": "stages: {a: {kind: average, from: a}}\n",
    "from-list": "stages: {a: {kind: average, from: [[a]]}}\n",
    "from-nul": 'stages: {a: {kind: average, from: "a\\0b"}}\n',
    "from-long": "stages: {a: {kind: average, from: " + "f" * 5000 + "}}\n",
    "table-rows": "stages: {a: {kind: make}}\ntable: {rows: {x: nothing}}\n",
    "table-list": "stages: {a: {kind: make}}\ntable: {rows: [a]}\n",
    "model-list": "model: [lxmert]\nstages: {a: {kind: make}}\n",
    "model-number": "model: 3\nstages: {a: {kind: make}}\n",
    "model-nameless": "model: {hidden: 3}\nstages: {a: {kind: make}}\n",
    "model-name-list": "model: {name: [lxmert]}\nstages: {a: {kind: make}}\n",
    "world-name": "stages: {a: {kind: make, world: {name: mars}}}\n",
    "plugins-word": "plugins: 3\nstages: {a: {kind: make}}\n",
    "plugins-missing": "plugins: [nothing.py]\nstages: {a: {kind: make}}\n",
    "plugins-number": "plugins: [3]\nstages: {a: {kind: make}}\n",
}

NUMBERS = (
    ("schema: 99", ""),
    ("jobs: 0", ""),
    (f"seed: {2**70}", ""),
    ("seed: -1", ""),
    ("text: {length: 0}", ""),
    ("text: {length: .nan}", ""),
    ("", "threads: 100000"),
    ("", "workers: -1"),
    ("", "log_every: 0"),
    ("", "epochs: 0"),
    ("", "steps: -1"),
    ("", "accumulate: -1"),
    ("", "batch_size: 0"),
    ("", "batch_size: 1e999"),
    ("", "clip: -1"),
    ("", "keep: -2"),
    ("", "repeats: 0"),
    ("", "optimizer: {lr: .nan}"),
    ("", "optimizer: {lr: [1]}"),
    ("", "optimizer: {betas: [2, 2]}"),
    ("", "optimizer: {betas: 1}"),
    ("", "optimizer: {groups: [{match: '('}]}"),
    ("", "optimizer: {groups: [{match: a, lr: .inf}]}"),
    ("", "optimizer: {layer_decay: -1}"),
    ("", "schedule: {end: .nan}"),
    ("", "schedule: {warmup: -.inf}"),
    ("", "schedule: {drops: [.nan]}"),
    ("", "ema: {decay: .nan}"),
    ("", "ema: {decay: 2}"),
    ("", "trainable: ['(?R)']"),
    ("", "frozen: ['((a{9999}){9999}){9999}']"),
    ("", "allow_unmatched: ['*']"),
    ("", f"trainable: ['{'(' * 500}']"),
    ("", "seed: 1.5"),
    ("", "device: 3"),
)

COMPONENTS = {
    "layers": "model: {name: lxmert, text_layers: 1000000}",
    "hidden": "model: {name: lxmert, hidden: -4}",
    "heads": "model: {name: lxmert, heads: 0}",
    "dropout": "model: {name: lxmert, dropout: .nan}",
    "list": "model: {name: lxmert, hidden: [1]}",
    "unknown-key": "model: {name: lxmert, hiden: 4}",
    "unknown": "model: lxmrt",
    "colons": "model: 'a:b:c'",
    "empty-name": "model: ''",
    "long-name": f"model: {'m' * 3000}",
    "position": "model: {name: lxmert, image_position: {name: box, numbers: 1000000000000000}}",
    "position-deep": f"model: {{name: lxmert, image_position: {'[' * 60}box{']' * 60}}}",
    "position-number": "model: {name: lxmert, image_position: 7}",
    "weight": "objectives: [{name: mlm, weight: 1e12}]",
    "weight-word": "objectives: [{name: mlm, weight: much}]",
    "probability": "objectives: [{name: mlm, probability: 7}]",
    "objective-number": "objectives: [3]",
    "objective-null": "objectives: [~]",
    "objective-twice": "objectives: [mlm, mlm]",
    "task": "task: nothing",
    "task-list": "task: [vqa]",
    "data-weight": "data: {name: jsonl, weight: -1}",
    "data-key": "data: {name: jsonl, filee: x}",
    "data-limit": "data: {name: jsonl, limit: -1}",
    "data-split": "data: {name: jsonl, split: {a: 1}}",
    "data-file-nul": 'data: {name: jsonl, file: "a\\0b"}',
    "data-file-long": f"data: {{name: jsonl, file: {'f' * 300}}}",
    "data-file-out": "data: {name: jsonl, file: ../../../../etc/passwd}",
    "data-take": "data: {name: jsonl, take: 'first:x'}",
    "tracker": "trackers: [nothing]",
    "transform": "transform: {name: nothing}",
}

PLUGINS = {
    "exits": "import sys\nsys.exit(3)\n",
    "exits-0": "raise SystemExit\n",
    "raises": "raise RuntimeError('mine')\n",
    "syntax": "def (:\n",
    "imports": "import nothing_of_this_name\n",
    "deep": "def f(): f()\nf()\n",
    "binary": "\x00",
    "surrogate": "raise ValueError('\\ud800')\n",
}


def _replaced(line: str) -> str:
    """The recipe of :data:`HEAD` with one key of its stage replaced."""
    key = line.split(":", 1)[0]
    fields = {"kind": "kind: pretrain", "data": "data: jsonl", "objectives": "objectives: [mlm]", key: line}
    return f"root: .\nmodel: lxmert\nstages:\n  train: {{{', '.join(fields.values())}}}\n"


def trials() -> Iterator[Trial]:
    """Every bad recipe."""
    quick = {
        "integer-5000",
        "recursive-list",
        "recursive-model",
        "bomb",
        "surrogate",
        "extends-self",
        "stage-long-name",
        "nul",
    }
    says = {"too-wide": "at most 1,000"}
    for name, text in DOCUMENTS.items():
        valid = name in ("deep-90", "recipe-odd-name", "wide", "merge-key", "control", "timestamp")
        codes = (0, 2, 3, 4, 5) if valid else (2, 3, 4, 5)
        yield Trial(
            "recipe",
            name,
            ("validate", "r.yaml"),
            {"r.yaml": text},
            codes,
            says=says.get(name, ""),
            quick=name in quick,
        )
        if name in ("recipe-long-name", "stage-long-name"):
            words = ("run", "r.yaml", "--dry-run")
            yield Trial("recipe", f"{name}-run", words, {"r.yaml": text}, (2, 3, 5), quick=True)
    for number, (root, stage) in enumerate(NUMBERS):
        text = f"{root}\n" + HEAD % (f", {stage}" if stage else "")
        name = f"number-{number}-{(root or stage).split(':')[0]}"
        yield Trial("recipe", name, ("validate", "r.yaml"), {"r.yaml": text}, (3,), quick=number % 3 == 0)
    for name, line in COMPONENTS.items():
        files = {"r.yaml": _replaced(line), "train.jsonl": json.dumps({"text": "a red dog"})}
        words, codes = ("validate", "r.yaml", "--deep"), (0, 5) if name == "data-take" else (3, 4, 5)
        yield Trial("recipe", f"component-{name}", words, files, codes, quick=name == "layers")
    for name, code in PLUGINS.items():
        plain = {"r.yaml": HEAD % "", "train.jsonl": json.dumps({"text": "a dog"}), "p.py": code}
        words = ("validate", "r.yaml", "--deep", "--plugin", "p.py")
        yield Trial("recipe", f"plugin-{name}", words, plain, (4,), quick=name == "exits")
