"""Reads conversations about pictures, LLaVA's and those of chat templates, as questions with answers."""

import re
from collections.abc import Sequence
from typing import Any

from vlcli.plain import as_list

_NAMED = re.compile(r"(?:Picture \d+: *)?<img>(.+?)</img>")  # as Qwen-VL writes a picture
_PLACEHOLDER = re.compile(r"<(image|img|image_placeholder|ImageHere)>")  # where LLaVA and others put a picture
_WHO = {"human": "question", "user": "question", "gpt": "answer", "assistant": "answer", "system": ""}


def are_turns(objects: Sequence[Any]) -> bool:
    """Return whether objects are turns of a conversation, by LLaVA's fields or those of chat templates."""
    whose = [one.get("from", one.get("role")) for one in objects if {"value", "content"} & one.keys()]
    return bool(whose) and len(whose) == len(objects) and all(isinstance(who, str) and who in _WHO for who in whose)


def questions_of(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return question and answer of each turn that is answered, without the placeholders of pictures.

    Pictures that a turn names itself (``{"type": "image", "image": FILE}``, ``<img>FILE</img>``) are the ``image`` of
    its question and of those that follow.
    """
    rows, named = list[dict[str, Any]](), list[str]()
    for turn in turns:
        said, who = turn.get("value", turn.get("content")), _WHO[str(turn.get("from", turn.get("role")))]
        parts = [part if isinstance(part, dict) else {"text": part} for part in as_list(said) if part is not None]
        texts = [str(part["text"]) for part in parts if part.get("text") is not None]
        files = [part.get("image", part.get("image_url", part.get("path"))) for part in parts]
        files = [file.get("url") if isinstance(file, dict) else file for file in files]
        files += [file for text in texts for file in _NAMED.findall(text)]
        named += [file.removeprefix("file://") for file in files if isinstance(file, str)]
        text = " ".join(_PLACEHOLDER.sub(" ", _NAMED.sub(" ", text)).strip() for text in texts).strip()
        if who == "question":
            rows.append({who: text} | ({"image": named[0] if len(named) == 1 else list(named)} if named else {}))
        elif who and rows and who not in rows[-1]:
            rows[-1][who] = text
    return [row for row in rows if "answer" in row]
