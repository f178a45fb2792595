"""Data: readers of annotation files, tokenisation, corruption, batches.

Readers, samples and the vocabulary import without torch; what makes tensors is imported on first use.
"""

from typing import TYPE_CHECKING

from vlcli.data.reader import Reader
from vlcli.data.sample import (
    PHASES,
    Corruption,
    Donor,
    Example,
    ImageSample,
    MaskLabels,
    Phase,
    Sample,
    TextSample,
    generator,
)
from vlcli.data.world import World
from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.data.answers import (
        ANSWER_TABLE_SIZE,
        AnswerList,
        answer_rows,
        best_answer,
        build_answer_table,
        read_answers,
    )
    from vlcli.data.collate import Item
    from vlcli.data.collate import collate as collate_samples
    from vlcli.data.concepts import read_vocabulary
    from vlcli.data.english import FUNCTION_WORDS
    from vlcli.data.files import inside, read_json
    from vlcli.data.files import value as json_value
    from vlcli.data.images import fitted, load_image
    from vlcli.data.leakage import Identity, held_out, is_coco, minival, refuse_held_out
    from vlcli.data.miniature import Miniature
    from vlcli.data.pipeline import Pipeline
    from vlcli.data.recognition.folder import Folder
    from vlcli.data.recognition.recognised import Recognised
    from vlcli.data.sample import copied
    from vlcli.data.truth import Truth
    from vlcli.data.vocabulary import Tokenizer


__getattr__ = lazily(__name__, __file__)
