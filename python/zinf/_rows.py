"""Data of Python's: any iterable of dicts, given row by row to the library, which keeps them in a
file. One row at a time is in memory. A training that is resumed goes on behind the rows that the
earlier one has taken: a sequence by its index, what has `skip` (of `datasets`) by that, and
anything else by reading them again.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Iterable, Iterator, List, Optional, Tuple

from ._library import NEXT_ROW, SKIP_ROWS, OptionError, RowSource

_FAILED = -5  # -EIO; the exception that was kept says more


def _is_path(item: Any) -> bool:
    return isinstance(item, os.PathLike)


def _is_text_of_row(item: Any) -> bool:
    return isinstance(item, str) and not os.path.exists(item) and " " in item and "*" not in item


def _words_of(name: str, value: Any) -> List[str]:
    """What the command calls files with a weight, or of a named set."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [f"{name}:{value!r}"]
    paths = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise OptionError(f"data {name!r} is {type(value).__name__}: give a weight, or files")
    return [f"{name}={os.fspath(path)}" for path in paths]


def files_or_rows(data: Any) -> Tuple[Optional[List[str]], Optional[Iterable]]:
    """Paths and patterns, or else rows. A list of strings holds paths, unless one has a blank and
    is no file: then they are texts. A dict has weights by path, or paths by name.

    >>> files_or_rows({"a.txt": 3, "b.txt": 1}), files_or_rows({"one": "a.txt", "two": ["b", "c"]})
    ((['a.txt:3', 'b.txt:1'], None), (['one=a.txt', 'two=b', 'two=c'], None))
    """
    if data is None:
        return None, None
    if isinstance(data, dict) and data and all(isinstance(k, (str, os.PathLike)) for k in data):
        words = [word for name, value in data.items() for word in _words_of(os.fspath(name), value)]
        return words, None
    if isinstance(data, (str, os.PathLike)):
        return [os.fspath(data)], None
    if isinstance(data, (list, tuple)) and data and all(isinstance(d, (str, os.PathLike)) for d in data):
        if not any(_is_text_of_row(d) for d in data):
            return [os.fspath(d) for d in data], None
    if isinstance(data, dict) or not hasattr(data, "__iter__"):
        raise OptionError(
            f"data is {type(data).__name__}: give files, or an iterable of dicts, a row each"
        )
    return None, data


def _plain(value: Any) -> Any:
    """numpy's and torch's numbers and arrays, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise OptionError(f"a row has a {type(value).__name__}, which JSON does not know")


def row_text(row: Any) -> bytes:
    """A row as one line of JSON; a string is a text.

    >>> row_text({"text": "so"}), row_text("so")
    (b'{"text": "so"}', b'{"text": "so"}')
    """
    if isinstance(row, str):
        row = {"text": row}
    if not hasattr(row, "keys"):
        raise OptionError(f"a row is a {type(row).__name__}: give dicts, or texts")
    return json.dumps(dict(row), ensure_ascii=False, default=_plain).encode("utf-8")


class Source:
    """A struct zinf_row_source of an iterable; `failure` keeps what the iterable has raised."""

    def __init__(self, data: Iterable):
        self.data = data
        self.rows: Optional[Iterator] = None
        self.current = b""
        self.failure: Optional[BaseException] = None
        self.struct = RowSource(next=NEXT_ROW(self._next), skip=SKIP_ROWS(self._skip))

    def _next(self, _arg, row) -> int:
        try:
            if self.rows is None:
                self.rows = iter(self.data)
            try:
                found = next(self.rows)
            except StopIteration:
                return 0
            self.current = row_text(found)
            row[0] = self.current
            return 1
        except BaseException as failure:  # nothing may be raised through the library's frames
            self.failure = failure
            return _FAILED

    def _skip(self, _arg, n: int) -> int:
        try:
            data = self.data
            if hasattr(data, "skip"):
                self.rows = iter(data.skip(n))
            elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
                self._check_length(n, len(data))
                self.rows = (data[i] for i in range(n, len(data)))
            else:
                self.rows = iter(data)
                for i in range(n):
                    if next(self.rows, self) is self:
                        self._check_length(n, i)
            return 0
        except BaseException as failure:
            self.failure = failure
            return _FAILED

    @staticmethod
    def _check_length(n: int, there: int) -> None:
        if there < n:
            raise OptionError(f"data has {there} rows, but the run that is resumed has taken {n}")

    def give(self, call, session: ctypes.c_void_p, which: int) -> int:
        """Calls zinf_session_rows; what the iterable has raised is raised here."""
        code = call(session, which, ctypes.byref(self.struct))
        if self.failure is not None:
            raise self.failure
        return code
