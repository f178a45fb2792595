"""A reader of tab-separated lines and the task that scores them."""

from pathlib import Path

from vlcli.data import Example, Reader
from vlcli.errors import DataError
from vlcli.tasks import Task, logits_of, target

VERDICTS = ("no", "yes")


class Lines(Reader):
    """Lines of picture, sentence and verdict, separated by tabs."""

    def files(self) -> list[Path]:
        return self.first_file(None, ["lines_{split}.tsv"])

    def read(self) -> list[Example]:
        file = self.files()[0]
        lines = file.read_text(encoding="utf-8").splitlines()
        return [self.example(f"{file}:{number}", line) for number, line in enumerate(lines, 1)]

    def label_names(self) -> list[str]:
        return list(VERDICTS)

    def example(self, where: str, line: str) -> Example:
        try:
            picture, sentence, verdict = line.split("\t")
            return Example(where.rpartition("/")[2], sentence, [picture], targets={"label": VERDICTS.index(verdict)})
        except ValueError as error:
            expected = "picture, sentence and yes or no, separated by tabs"
            raise DataError("A line is malformed.", where=where, got=str(error), expected=expected) from None


class Verdict(Task):
    """Is the sentence true of the picture? Accuracy."""

    eval_split = "test"

    def objectives(self):
        return [{"name": "meadow-match"}]

    def dataset(self):
        return {"name": "meadow-lines"}

    def labels(self, readers) -> tuple[str, ...]:
        return tuple(readers[0].label_names())

    def decode(self, outputs, batch):
        chosen = logits_of(outputs, "meadow-match").argmax(-1).tolist()
        rows = zip(batch.keys, chosen, target(batch, "label"), strict=True)
        return [{"key": key, "prediction": VERDICTS[guess], "right": guess == label} for key, guess, label in rows]

    def score(self, predictions):
        return {"accuracy": sum(row["right"] for row in predictions) / len(predictions)}
