"""Data of Python's: any iterable of dicts, given row by row to the library. One row at a time is in
memory. The library keeps the rows in a file before the training begins, or takes them while the
training needs them (option streaming). A training that is resumed goes on behind the rows that the
earlier one has taken: data with `state_dict` and `load_state_dict` by that, a sequence by its
index, what has `skip` (of `datasets`) by that, and anything else by reading them again.
"""

from __future__ import annotations

import copy
import ctypes
import errno
import hashlib
import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from ._interrupt import NotedInterrupt
from ._library import DONE_ROWS, NEXT_ROW, SKIP_ROWS, Error, OptionError, RowSource, log

_FAILED = -errno.EIO  # the exception that was kept says more
_GONE = -errno.ESPIPE  # an iterator does not go back


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


def is_iterator(data: Any) -> bool:
    """Whether its rows can be read once alone."""
    return hasattr(type(data), "__next__")


def is_sized(data: Any) -> bool:
    """Whether all rows are at hand, so that they can be counted, shuffled and read again."""
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


class _States:
    """Where data of the kind of `datasets.IterableDataset` stood behind some of the rows, kept in a
    file beside the training's rows, so that a resumed training need not read all rows again. The
    sum of the row that comes next tells whether the data go on there as they did. The file begins
    with a checksum of its places, since a damaged row number would shift the data silently."""

    EVERY = 1000  # rows
    SECONDS = 1.0  # or so long, at least that many rows
    LEAST = 20
    MOST = 64  # places; then every second one is left out

    def __init__(self, data: Any, path: Optional[str]):
        self.data, self.path = data, path
        self.works = bool(path) and hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        self.places: List[Dict[str, Any]] = []
        self.open: Optional[Dict[str, Any]] = None  # the sum of its next row is not known yet
        self.last_row, self.last_time = 0, time.monotonic()
        self.begin: Any = copy.deepcopy(data.state_dict()) if self.works else None
        self.has_moved = False  # by load_state_dict

    def saw(self, row: int, text: bytes) -> None:
        """Row number `row`, from 1, was taken."""
        if not self.works:
            return
        if self.open is not None:
            self.open["sum"] = hashlib.sha256(text).hexdigest()
            self.places = [p for p in self.places if p["row"] < self.open["row"]] + [self.open]
            self.open = None
            if len(self.places) > self.MOST:
                self.places = self.places[1::2]
            self._write()
        late = time.monotonic() - self.last_time > self.SECONDS
        if row - self.last_row >= (self.LEAST if late else self.EVERY) or row < self.last_row:
            self.last_row, self.last_time = row, time.monotonic()
            self.open = {"row": row, "state": self.data.state_dict()}

    @staticmethod
    def sealed(places: str) -> str:
        """The file's text, of a list of places as JSON."""
        return f'{{"sum": "{hashlib.sha256(places.encode()).hexdigest()}", "places": {places}}}'

    def _write(self) -> None:
        assert self.path
        try:
            text = json.dumps(self.places)
        except TypeError:  # a state that is none of JSON's: rows are read again instead
            self.works = False
            return
        partial = f"{self.path}.{os.getpid()}.partial"  # processes of one training have one folder
        with open(partial, "w", encoding="utf-8") as file:
            file.write(self.sealed(text))
        os.replace(partial, self.path)

    def _damaged(self, what: str) -> Error:
        return OptionError(
            f"{self.path}: {what}: the file is damaged, or of other data. Remove it: the rows are then "
            "read again from the first one"
        )

    def _read(self) -> List[Dict[str, Any]]:
        try:
            with open(self.path or "", "rb") as file:
                text = file.read().decode("utf-8")
            places = json.loads(text)["places"]
            begin = text.index(":", text.index('"places"')) + 2
        except (ValueError, TypeError, KeyError) as failure:
            raise self._damaged(f"no JSON with places ({failure})") from failure
        if self.sealed(text[begin:-1]) != text:
            raise self._damaged("its checksum is another one")
        if not isinstance(places, list):
            raise self._damaged("no list of places")
        for i, place in enumerate(places):
            for key, kind in (("row", int), ("state", object), ("sum", str)):
                if not isinstance(place, dict) or key not in place or not isinstance(place[key], kind):
                    raise self._damaged(f"place {i} has no {key!r}")
        return places

    def rewind(self) -> None:
        """The data begin anew, wherever they were told to go on."""
        if self.has_moved:
            self.data.load_state_dict(copy.deepcopy(self.begin))

    def go_near(self, n: int) -> Optional[Tuple[Dict[str, Any], Iterator]]:
        """The last place at or before row n, and the data's rows behind it; None: there is none."""
        if not self.works or not os.path.exists(self.path or ""):
            return None
        self.places = [place for place in self._read() if place["row"] <= n]
        if not self.places:
            return None
        self.last_row = self.places[-1]["row"]
        self.has_moved = True
        try:
            self.data.load_state_dict(copy.deepcopy(self.places[-1]["state"]))
        except Exception as failure:
            raise self._damaged(f"the data do not take the state of row {self.last_row}") from failure
        return self.places[-1], iter(self.data)


class Source:
    """A struct zinf_row_source of an iterable; `failure` keeps what the iterable has raised."""

    def __init__(self, data: Iterable, states: Optional[str] = None):
        self.data = data
        self.rows: Optional[Iterator] = None
        self.taken = 0  # rows of this pass over the data
        self.waiting: List[Any] = []  # a row that was looked at
        self.current = b""
        self.failure: Optional[BaseException] = None
        self.states = _States(data, states)
        self.is_done = False  # the library calls no more
        self.is_asking = False  # the iterable, whose code may be interrupted
        self.interrupt = NotedInterrupt()
        self.struct = RowSource(
            next=NEXT_ROW(self._next), skip=SKIP_ROWS(self._skip), done=DONE_ROWS(self._done)
        )

    def _next(self, _arg, row) -> int:
        try:
            text = self._take()
            if text is None:
                return 0
            self.current = text
            row[0] = text
            return 1
        except BaseException as failure:  # nothing may be raised through the library's frames
            self.failure = failure
            return _FAILED

    def _take(self) -> Optional[bytes]:
        """The next row; None: there is none."""
        self.interrupt.raise_heard()
        try:
            self.is_asking = True
            if self.rows is None:
                self.rows = iter(self.data)
            found = self.waiting.pop() if self.waiting else next(self.rows, self)
        finally:
            self.is_asking = False
        if found is self:
            return None
        text = row_text(found)
        self.taken += 1
        self.states.saw(self.taken, text)
        return text

    def _done(self, _arg) -> None:
        self.is_done = True

    def _skip(self, _arg, n: int) -> int:
        try:
            if is_iterator(self.data) and n < self.taken:
                return _GONE
            try:
                self.is_asking = True
                self._go_to(n)
            finally:
                self.is_asking = False
            self.taken = n
            return 0
        except BaseException as failure:
            self.failure = failure
            return _FAILED

    def _go_to(self, n: int) -> None:
        data = self.data
        self.waiting.clear()
        if is_iterator(data):  # it cannot begin anew
            self.rows = data
            self._read_on(self.taken, n)
        elif not n:
            self.states.rewind()
            self.rows = iter(data)
        elif self._goes_on_near(n):
            pass
        elif hasattr(data, "skip"):
            self.rows = iter(data.skip(n))
        elif is_sized(data):
            self._check_length(n, len(data))
            self.rows = (data[i] for i in range(n, len(data)))
        else:
            self.rows = iter(data)
            self._read_on(0, n)

    def _goes_on_near(self, n: int) -> bool:
        found = self.states.go_near(n)
        if found is None:
            return False
        place, self.rows = found
        row = next(self.rows, self)
        if row is self or hashlib.sha256(row_text(row)).hexdigest() != place["sum"]:
            log.warning(
                "the data do not go on from their own state as they did (rows that a shuffle held "
                "are lost there): the rows are read again from the first one"
            )
            self.states.rewind()
            self.rows = iter(self.data)
            self._read_on(0, n)
            return True
        if place["row"] == n:
            self.waiting = [row]
        else:
            self._read_on(place["row"] + 1, n)
        return True

    def _read_on(self, i: int, n: int) -> None:
        assert self.rows is not None
        for k in range(i, n):
            if next(self.rows, self) is self:
                self._check_length(n, k)

    @staticmethod
    def _check_length(n: int, there: int) -> None:
        if there < n:
            raise OptionError(f"data has {there} rows, but the run that is resumed has taken {n}")

    def give(self, call, session: ctypes.c_void_p, which: int) -> int:
        """Calls zinf_session_rows, which copies the rows unless they are streamed; what the iterable
        has raised is raised here."""
        self.interrupt = NotedInterrupt(lambda: self.is_asking)
        with self.interrupt:
            code = call(session, which, ctypes.byref(self.struct))
        if self.failure is not None:
            raise self.failure
        return code
