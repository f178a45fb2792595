"""Counts what a group of evaluate stages got right, by kind and by answer, and which answers are taken for which."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from vlcli.metrics.rows import Row, kind_fields
from vlcli.pages.samples import MOST_LETTERS, Samples, right_of
from vlcli.pages.scores import Column

MOST_ROWS, MOST_CLASSES, MOST_COLUMNS = 20, 12, 3
"""Rows of a table; classes of a confusion table (of more, frequent confusions are listed); stages without baselines."""


def breakdowns_of(samples: Samples) -> list[dict[str, Any]]:
    """Return tables of a group: right answers by kind and by answer, with counts, and confusions."""
    judged = [one for one in samples.group.columns if any(right_of(row) is not None for row in one.rows.values())]
    trained = [one for one in judged if one.stage.record is None or not one.stage.record.config.get("fit")]
    columns = trained[:MOST_COLUMNS] or judged[:1]
    if not columns or len(columns[0].rows) < 2:
        return []
    rows = columns[0].rows
    fields = {
        field.replace("_", " "): {key: str(row.get(field) or "") for key, row in rows.items()}
        for field in kind_fields(list(rows.values()))
    }
    truths = {key: answer_of(row) for key, row in rows.items()}
    if len(set(truths.values())) < len(rows):
        fields["answer"] = truths
    tables = [_table(name, of, columns) for name, of in fields.items()]
    return [table for table in tables if len(table["rows"]) > 1] + _confusions(truths, rows)


def answer_of(row: Row) -> str:
    """Return the reference of a prediction as short text: of several answers the best; empty where there is none."""
    value = next((row[name] for name in ("label", "answer", "answers") if row.get(name) not in (None, "", [], {})), "")
    if isinstance(value, Mapping):
        value = max(value, key=lambda name: value[name])
    if isinstance(value, list):
        value = Counter(map(str, value)).most_common(1)[0][0]
    return str(value)[:MOST_LETTERS]


def _table(name: str, of: Mapping[str, str], columns: Sequence[Column]) -> dict[str, Any]:
    members: dict[str, list[str]] = defaultdict(list)
    for key, value in of.items():
        members[value].append(key)
    members.pop("", None)
    ranked = sorted(members.items(), key=lambda part: -len(part[1]))
    parts = ranked[:MOST_ROWS]
    if rest := [key for _, keys in ranked[MOST_ROWS:] for key in keys]:
        parts.append((f"{len(ranked) - MOST_ROWS:,} others", rest))
    rows = [(value, len(keys), [_share(keys, column.rows) for column in columns]) for value, keys in parts]
    return {"name": name, "rows": rows, "columns": columns}


def _share(keys: Sequence[str], side: Mapping[str, Row]) -> str:
    values = [right for key in keys if key in side and (right := right_of(side[key])) is not None]
    return f"{100 * sum(values) / len(values):.0f} %" if values else "–"


def _confusions(truths: Mapping[str, str], rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    said = [(truths[key], row.get("prediction")) for key, row in rows.items() if truths[key]]
    pairs = Counter((truth, str(word)[:MOST_LETTERS]) for truth, word in said if isinstance(word, str | bool))
    classes = sorted({name for pair in pairs for name in pair})
    if not 1 < len(classes) <= MOST_CLASSES:
        wrong = [(truth, taken, count) for (truth, taken), count in pairs.most_common() if truth != taken and count > 1]
        return [{"name": "confusions", "rows": [], "pairs": wrong[:MOST_ROWS]}] if wrong else []
    cells = [(name, [pairs[name, other] for other in classes]) for name in classes]
    return [{"name": "confusions", "rows": cells, "classes": classes, "most": max(pairs.values())}]
