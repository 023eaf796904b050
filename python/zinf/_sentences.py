"""The library's sentences in Python's words. It names options as "option seq-len", and in the help of
others as `--seq-len`; here both are `seq_len`, and `option steps N` is `steps=N`. What is a line to
type, such as `zinf export --merge`, stays one, and so do values in quotes, and parts of paths.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Match, Sequence, Tuple

# Of each option by its name with dashes: the keyword, the kind of its row, and the words it takes.
# Parameters of calls that no row has stand here already; the rows are added when they are read.
_known: Dict[str, Tuple[str, str, Sequence[str]]] = {
    "merge": ("merge", "flag", ()),
    "checkpoint": ("checkpoint", "text", ()),
}
_TO_TYPE = r"\bzinf [a-z]+(?: --[a-z-]+)+"
_QUOTED = r'"[^"\n]*"'
_OPTION = r"(?:(?<![\w/.-])--|\b(?P<word>option ))(?P<name>[a-z0-9-]*[a-z0-9])"
_VALUE = r"(?:(?P<sign>[= ])(?P<value>[^\s,;:()']+))?"
_PHRASE = re.compile(f"{_TO_TYPE}|{_QUOTED}|{_OPTION}{_VALUE}")
_PLACE = re.compile(r"[A-Z]+(\.\.\.)?$")  # that a value goes to: N, DIR
_NUMBER = re.compile(r"[-+]?[0-9][0-9.]*(e[-+]?[0-9]+|[KMGT]i?B?)?$")


def know(keyword: str, kind: str, words: Sequence[str]) -> None:
    """An option, from its row."""
    _known[keyword.replace("_", "-")] = (keyword, kind, words)


def _spoken(found: Match) -> str:
    name = found["name"]
    if not name or name not in _known:
        return found[0]
    keyword, kind, words = _known[name]
    sign, value = found["sign"] or "", found["value"] or ""
    if sign and kind != "flag":
        if _PLACE.match(value) or (kind in ("integer", "number") and _NUMBER.match(value)):
            return f"{keyword}={value}"
        if sign == "=" or value in words:
            return f'{keyword}="{value}"'
    return f"{found['word'] or ''}{keyword}{sign}{value}"


def in_python(sentence: Any) -> str:
    """A sentence of the library's, bytes or text, for who writes Python.

    >>> in_python(b"option streaming: give option steps N, or leave option shuffle-buffer out")
    'option streaming: give steps=N, or leave option shuffle_buffer out'
    >>> in_python("zinf export --merge joins them; --resume=a/b goes on, as option seq-len 8 with --x 1")
    'zinf export --merge joins them; resume="a/b" goes on, as seq_len=8 with --x 1'
    >>> in_python('data/--steps 3/a.txt has no column "--steps 9": say --steps N')
    'data/--steps 3/a.txt has no column "--steps 9": say steps=N'
    """
    if isinstance(sentence, bytes):
        sentence = sentence.decode("utf-8", "replace")
    return _PHRASE.sub(_spoken, sentence)
