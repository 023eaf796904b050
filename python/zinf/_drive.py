"""State of optimizers in files on drives, in pieces that are read, updated and written at once.

A visit has all pieces in buffers of a fixed size: while one is updated, the next ones are read and
the last ones written. Which piece comes next is told by a feed, so that a visit may begin while it
is not known yet which pieces there will be, or when.
"""

from __future__ import annotations

import collections
import ctypes
import os
import queue
import weakref
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from . import _library as z
from .aio import QueueOptions, Request

_ALIGN = 4096  # of what is transferred
_LINE = 16  # elements at which a piece of a parameter begins: a cache line
_SLOTS = 6  # pieces at once: some are read, one is updated, some are written
_BLOCK = 2 << 20  # of one request to the drive: what a store has in one place
_MAX_DEPTH = 4096


class Plane(NamedTuple):
    """One array of a parameter's state: its name in a state_dict, the field of struct
    zinf_optim_array that it is, and how many elements have a value in common."""

    name: str
    field: str
    dtype: torch.dtype = torch.float32
    per: int = 1

    def count(self, n: int) -> int:
        return -(-n // self.per)


class _StoreOptions(ctypes.Structure):
    _fields_ = [
        ("paths", POINTER(c_char_p)),
        ("n_paths", c_int),
        ("label", c_char_p),
        ("stripe_bytes", c_uint64),
        ("path_rates", POINTER(c_double)),
        ("measure_path", c_void_p),
        ("checksums", c_bool),
        ("allow_memory_fs", c_bool),
        ("plan_only", c_bool),
        ("run", c_void_p),
        ("as_found", c_bool),
    ]


_READ, _WRITE = 0, 1
_lib = z.declare(
    {
        "zinf_store_create": (c_int, [POINTER(c_void_p), POINTER(_StoreOptions)]),
        "zinf_store_destroy": (None, [c_void_p]),
        "zinf_store_add_extent": (c_int, [c_void_p, c_uint64, POINTER(c_uint32)]),
        "zinf_store_allocate": (c_int, [c_void_p]),
    }
)


class Feed:
    """What is to be visited, in order, from whoever learns of it."""

    def __init__(self, items: Iterable[Any] = (), ends: bool = False):
        self._ready: queue.SimpleQueue = queue.SimpleQueue()
        self._has_ended = False
        for item in items:
            self.put(item)
        if ends:
            self.end()

    def put(self, item: Any) -> None:
        self._ready.put(item)

    def end(self) -> None:
        self._ready.put(None)

    def next(self, wait: bool) -> Any:
        """None: there is none yet, or, after a wait, none will come."""
        if self._has_ended:
            return None
        try:
            item = self._ready.get(block=wait)
        except queue.Empty:
            return None
        self._has_ended = item is None
        return item


    def some(self) -> List[Any]:
        """All that are there, but one at least; empty: none will come."""
        items, item = [], self.next(wait=True)
        while item is not None:
            items.append(item)
            item = self.next(wait=False)
        return items


class Piece:
    """Parts of parameters whose state is transferred as one: (parameter, its first element, how
    many, where in the piece)."""

    def __init__(self, extent: int):
        self.extent, self.elems, self.is_fresh = extent, 0, True
        self.parts: List[Tuple[Any, int, int, int]] = []


class _Visited:
    """A piece in its slot. The request is of its read, then of its write; None: it is at rest."""

    def __init__(self, piece: Piece, slot: int):
        self.piece, self.slot = piece, slot
        self.request: Optional[Request] = None
        self.was_updated = False


class _Transfers:
    """A queue of one visit, and so of one thread."""

    def __init__(self, store: int, size: int):
        depth = min(-(-size // _BLOCK) * _SLOTS, _MAX_DEPTH)
        options = QueueOptions(block_bytes=_BLOCK, queue_depth=max(depth, 32))
        self._queue, self._store, self._bytes = c_void_p(), store, size
        z.check(_lib.zinf_aio_queue_create(byref(self._queue), byref(options)))
        self.in_flight = {}

    def begin(self, op: int, visited: _Visited, memory: int) -> None:
        visited.request = Request(
            op=op, store=self._store, extent=visited.piece.extent, bytes=self._bytes, memory=memory
        )
        z.check(_lib.zinf_aio_submit(self._queue, byref(visited.request)))
        self.in_flight[ctypes.addressof(visited.request)] = visited

    def end_one(self, wait: bool) -> Optional[_Visited]:
        found = _lib.zinf_aio_reap(self._queue, 2**64 - 1 if wait else 0)
        if not found:
            if wait:
                raise z.Error("a transfer of optimizer state was lost")
            return None
        visited = self.in_flight.pop(found)
        result, visited.request = visited.request.result, None
        if result < 0:
            message = c_char_p()
            _lib.zinf_aio_queue_error(self._queue, byref(message))
            failure = z.Error((message.value or b"").decode("utf-8", "replace"))
            failure.errno = -result
            raise failure
        return visited

    def close(self) -> None:
        """Waits for what is in flight, whose requests must stay until then."""
        _lib.zinf_aio_queue_destroy(self._queue)
        self.in_flight.clear()


def _destroy(owner: int, store: c_void_p) -> None:
    if os.getpid() == owner:
        _lib.zinf_store_destroy(store)


class Drive:
    """State of all parameters in one store, in pieces of at most `elems` elements; of each element
    the planes, one behind the other."""

    def __init__(self, paths: Sequence[bytes], params, planes: Sequence[Plane], buffer_bytes: int):
        self.line = max(_LINE, *(plane.per for plane in planes))
        each = sum(plane.dtype.itemsize / plane.per for plane in planes)
        self.elems = max(int(buffer_bytes / (_SLOTS * each)) // _ALIGN * _ALIGN, _ALIGN)
        sizes = [plane.count(self.elems) * plane.dtype.itemsize for plane in planes]
        self.bytes = -(-sum(sizes) // _ALIGN) * _ALIGN
        self._room = torch.empty(_SLOTS * self.bytes + _ALIGN, dtype=torch.uint8)
        begin = -self._room.data_ptr() % _ALIGN
        self.slots = []
        for i in range(_SLOTS):
            parts = self._room[begin + i * self.bytes :][: sum(sizes)].split(sizes)
            self.slots.append([part.view(plane.dtype) for part, plane in zip(parts, planes)])
        self._open(paths)
        self.pieces: List[Piece] = []
        for p in params:
            self._add(p)
        z.check(_lib.zinf_store_allocate(self._store))

    def _open(self, paths: Sequence[bytes]) -> None:
        names = (c_char_p * len(paths))(*paths)
        store = c_void_p()
        options = _StoreOptions(paths=names, n_paths=len(paths), label=b"optim")
        weakref.finalize(self, _destroy, os.getpid(), store)  # before it is there: see Trainer
        z.check(_lib.zinf_store_create(byref(store), byref(options)))
        self._store = store.value

    def _add(self, p) -> None:
        at, n = 0, p.numel()
        while at < n:
            piece = self.pieces[-1] if self.pieces else None
            if piece is None or piece.elems + self.line > self.elems:
                extent = c_uint32()
                z.check(_lib.zinf_store_add_extent(self._store, self.bytes, byref(extent)))
                piece = Piece(extent.value)
                self.pieces.append(piece)
            take = min(n - at, self.elems - piece.elems)
            piece.parts.append((p, at, take, piece.elems))
            piece.elems += -(-take // self.line) * self.line
            at += take

    def visit(
        self, feed: Feed, update: Callable, begin: Callable, writes: bool = True
    ) -> None:
        """Calls update(piece, slot) for the pieces of feed, in order, each of which may come once.
        begin(piece, slot) fills what was never written. All is written when it returns."""
        transfers = _Transfers(self._store, self.bytes)
        free = list(range(_SLOTS))
        fetched: collections.deque = collections.deque()

        def fetch() -> None:
            """As many as there are slots for; waits for a piece where nothing else is to be done."""
            while free:
                piece = feed.next(wait=not fetched and not transfers.in_flight)
                if piece is None:
                    return
                visited = _Visited(piece, free.pop())
                fetched.append(visited)
                if not piece.is_fresh:
                    transfers.begin(_READ, visited, self.slots[visited.slot][0].data_ptr())

        def finish(visited: Optional[_Visited]) -> None:
            if visited is not None and visited.was_updated:
                free.append(visited.slot)

        try:
            fetch()
            while fetched or transfers.in_flight:
                if not fetched or fetched[0].request is not None:
                    finish(transfers.end_one(True))
                else:
                    self._update(fetched.popleft(), transfers, free, update, begin, writes)
                while transfers.in_flight and (visited := transfers.end_one(False)):
                    finish(visited)
                fetch()
        finally:
            transfers.close()

    def _update(self, visited, transfers, free, update, begin, writes) -> None:
        piece, slot = visited.piece, self.slots[visited.slot]
        if piece.is_fresh:
            begin(piece, slot)
        update(piece, slot)
        visited.was_updated = True
        if writes:
            transfers.begin(_WRITE, visited, slot[0].data_ptr())
            piece.is_fresh = False
        else:
            free.append(visited.slot)
