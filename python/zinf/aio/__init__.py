"""Reads and writes of files by many requests at once, past the page cache, with the words of
deepspeed.ops.aio; io_uring beneath, or threads where that is refused. Tensors of torch on the CPU,
arrays of numpy and any writable buffer are read into and written from where they are; tensors on a
GPU go through RAM.

Scripts for DeepNVMe change one import: `from zinf.aio import AsyncIOBuilder`, and PinMemoryBuilder.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int64
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, List, Set, Tuple

from .. import _library as z

_ALIGN = 4096  # of memory, place and length of a direct transfer
_READ, _WRITE = 1, 2  # to open


class Around(ctypes.Structure):
    _fields_ = [("wrap", c_void_p), ("context", c_void_p)]


class QueueOptions(ctypes.Structure):
    _fields_ = [
        ("engine", c_int),
        ("block_bytes", c_uint32),
        ("queue_depth", c_uint32),
        ("n_threads", c_uint32),
        ("single_submit", c_bool),
        ("sqpoll", c_bool),
        ("max_requests", c_uint32),
        ("around", Around * 2),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("op", c_int),
        ("file", c_void_p),
        ("store", c_void_p),
        ("extent", c_uint32),
        ("generation", c_uint8),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("memory", c_void_p),
        ("priority", c_int),
        ("user", c_void_p),
        ("result", c_int64),
        ("begin_ns", c_uint64),
        ("end_ns", c_uint64),
        ("next", c_void_p),
        ("issued_bytes", c_uint64),
        ("done_bytes", c_uint64),
        ("blocks_in_flight", c_uint32),
        ("attempts", c_uint32),
        ("bad_offset", c_uint64),
    ]


_lib = z.declare(
    {
        "zinf_aio_open": (c_int, [POINTER(c_void_p), c_char_p, ctypes.c_uint]),
        "zinf_aio_close": (None, [c_void_p]),
        "zinf_aio_queue_create": (c_int, [POINTER(c_void_p), POINTER(QueueOptions)]),
        "zinf_aio_queue_destroy": (None, [c_void_p]),
        "zinf_aio_queue_error": (c_int, [c_void_p, POINTER(c_char_p)]),
        "zinf_aio_submit": (c_int, [c_void_p, POINTER(Request)]),
        "zinf_aio_reap": (c_void_p, [c_void_p, c_uint64]),
    }
)


def _span(buffer: Any) -> Tuple[int, int, Any]:
    """Address, bytes, and what must stay while both are used."""
    if hasattr(buffer, "data_ptr"):
        if not buffer.is_contiguous():
            raise z.OptionError("a tensor must lie in one piece")
        return buffer.data_ptr(), buffer.numel() * buffer.element_size(), buffer
    if hasattr(buffer, "__array_interface__"):
        if not buffer.flags["C_CONTIGUOUS"]:
            raise z.OptionError("an array must lie in one piece")
        return buffer.ctypes.data, buffer.nbytes, buffer
    view = (ctypes.c_char * memoryview(buffer).nbytes).from_buffer(buffer)
    return ctypes.addressof(view), ctypes.sizeof(view), view


def _destroy(owner: int, queue: c_void_p, transfers: List[_Transfer]) -> None:
    """Of a handle that is gone, also in the midst of its transfers: the queue waits for them."""
    if os.getpid() != owner:
        return
    _lib.zinf_aio_queue_destroy(queue)
    for transfer in transfers:
        transfer.close()
    transfers.clear()


class _Transfer:
    """One call: whole pages go through the queue, what is left of the last one does not."""

    def __init__(self, handle: Handle, op: int, buffer: Any, name: Any, offset: int):
        self.op, self.offset, self.device_tensor = op, offset, None
        if isinstance(name, int):  # an open file's number
            name = f"/proc/self/fd/{name}"
        if hasattr(buffer, "data_ptr") and not buffer.is_cpu:
            self.device_tensor, buffer = buffer, buffer.detach().to("cpu")
        self.address, self.bytes, self.held = _span(buffer)
        self.fd = os.open(name, os.O_RDONLY if not op else os.O_RDWR | os.O_CREAT, 0o666)
        self.file, self.request = c_void_p(), None
        try:
            there = os.fstat(self.fd).st_size
            if not op and there < offset + self.bytes:
                raise z.OptionError(
                    f"{os.fspath(name)} has {there} bytes: {self.bytes} at {offset} are asked for"
                )
            if op and there < offset + self.bytes:
                os.truncate(self.fd, offset + self.bytes)
            whole = self.bytes // _ALIGN * _ALIGN
            if whole and not offset % _ALIGN:
                self._submit(handle, name, whole)
        except BaseException:
            self.close()
            raise

    def _submit(self, handle: Handle, name: Any, whole: int) -> None:
        memory = self.address
        self.room = None
        if memory % _ALIGN:  # through pages of its own
            self.room = mmap.mmap(-1, whole)
            memory = ctypes.addressof(ctypes.c_char.from_buffer(self.room))
            if self.op:
                ctypes.memmove(memory, self.address, whole)
        self.memory = memory
        flags = _WRITE if self.op else _READ
        z.check(_lib.zinf_aio_open(byref(self.file), z.path_bytes(name), flags))
        self.request = Request(
            op=self.op, file=self.file.value, offset=self.offset, bytes=whole, memory=memory
        )
        code = _lib.zinf_aio_submit(handle._queue, byref(self.request))
        if code:
            self.request = None
            z.check(code)
        handle._in_flight.add(ctypes.addressof(self.request))

    def end(self) -> None:
        """After the request: the bytes that it has not moved."""
        done = self.request.bytes if self.request is not None else 0
        if done and self.room is not None and not self.op:
            ctypes.memmove(self.address, self.memory, done)
        view = memoryview((ctypes.c_char * self.bytes).from_address(self.address)).cast("B")
        while done < self.bytes:
            part, at = view[done:], self.offset + done
            n = os.pwrite(self.fd, part, at) if self.op else os.preadv(self.fd, [part], at)
            if not n:
                raise z.Error(f"the file ends at {at}")
            done += n
        if self.device_tensor is not None and not self.op:
            self.device_tensor.detach().copy_(self.held)

    def close(self) -> None:
        if self.file.value:
            _lib.zinf_aio_close(self.file)
            self.file = c_void_p()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class PinHandle:
    """Tensors in memory that begins at a page, which transfers use where it is."""

    def __init__(self) -> None:
        self._locked: List[Any] = []

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any):
        """A tensor of torch of so many elements of the example's type."""
        import torch

        room = mmap.mmap(-1, max(num_elem * example_tensor.element_size(), 1))
        tensor = torch.frombuffer(room, dtype=example_tensor.dtype, count=num_elem)
        self._locked.append((tensor, room))
        return tensor

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Gives such a tensor back; whether it was one."""
        kept = [pair for pair in self._locked if pair[0] is not tensor]
        was = len(kept) < len(self._locked)
        self._locked = kept
        return was

    def is_pinned(self, tensor: Any) -> bool:
        """Whether transfers use the tensor's memory without a copy."""
        if any(pair[0] is tensor for pair in self._locked):
            return True
        return bool(tensor.is_cpu and not tensor.data_ptr() % _ALIGN)


class Handle(PinHandle):
    """A queue of transfers: of one thread at a time.

    >>> import tempfile
    >>> handle, there = Handle(block_size=1 << 16, queue_depth=8), bytearray(10000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     handle.sync_pwrite(bytearray(b"so" * 5000), folder + "/file")
    ...     handle.async_pread(there, folder + "/file")
    ...     handle.wait()
    1
    0
    1
    >>> bytes(there) == b"so" * 5000
    True
    """

    def __init__(
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 32,
        single_submit: bool = False,
        overlap_events: bool = True,
        intra_op_parallelism: int = 1,
    ):
        super().__init__()
        # Events always overlap here, and one ring needs no further threads.
        self._options = (block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism)
        self._queue = c_void_p()
        options = QueueOptions(
            block_bytes=block_size, queue_depth=queue_depth, single_submit=single_submit
        )
        self._transfers: List[_Transfer] = []
        self._in_flight: Set[int] = set()  # the addresses of requests that are not reaped yet
        # Before the queue is there, which an interrupt would leave to nobody.
        weakref.finalize(self, _destroy, os.getpid(), self._queue, self._transfers)
        z.check(_lib.zinf_aio_queue_create(byref(self._queue), byref(options)))

    def get_block_size(self) -> int:
        return self._options[0]

    def get_queue_depth(self) -> int:
        return self._options[1]

    def get_single_submit(self) -> bool:
        return self._options[2]

    def get_overlap_events(self) -> bool:
        return self._options[3]

    def get_intra_op_parallelism(self) -> int:
        return self._options[4]

    def get_alignment(self) -> int:
        return _ALIGN

    def async_pread(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Begins to fill buffer from a file; `wait` ends it. 0."""
        self._transfers.append(_Transfer(self, 0, buffer, filename, file_offset))
        return 0

    def async_pwrite(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Begins to write buffer to a file, which is made where it is not there. 0."""
        self._transfers.append(_Transfer(self, 1, buffer, filename, file_offset))
        return 0

    def sync_pread(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Fills buffer from a file, and ends what was begun before. How many calls have ended."""
        self.async_pread(buffer, filename, file_offset)
        return self.wait()

    def sync_pwrite(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Writes buffer to a file, and ends what was begun before. How many calls have ended."""
        self.async_pwrite(buffer, filename, file_offset)
        return self.wait()

    def pread(self, buffer, filename, validate=False, asynchronous=False, file_offset=0) -> int:
        call = self.async_pread if asynchronous else self.sync_pread
        return call(buffer, filename, file_offset)

    def pwrite(self, buffer, filename, validate=False, asynchronous=False, file_offset=0) -> int:
        call = self.async_pwrite if asynchronous else self.sync_pwrite
        return call(buffer, filename, file_offset)

    def read(self, buffer: Any, filename: Any, validate: bool = False, file_offset: int = 0) -> int:
        return self.sync_pread(buffer, filename, file_offset)

    def write(self, buffer: Any, filename: Any, validate: bool = False, file_offset: int = 0) -> int:
        return self.sync_pwrite(buffer, filename, file_offset)

    def wait(self) -> int:
        """Waits for all calls that were begun; how many these are."""
        # An interrupt may come in between: memory in use must not go before the next wait.
        while self._in_flight:
            found = _lib.zinf_aio_reap(self._queue, 2**64 - 1)
            if not found:
                raise z.Error("a transfer was lost")
            self._in_flight.discard(found)
        transfers = list(self._transfers)
        try:
            for transfer in transfers:
                if transfer.request is not None and transfer.request.result < 0:
                    self._fail(transfer.request.result)
                transfer.end()
        finally:
            for transfer in transfers:
                transfer.close()
            self._transfers.clear()
        return len(transfers)

    def _fail(self, code: int) -> None:
        message = c_char_p()
        _lib.zinf_aio_queue_error(self._queue, byref(message))
        failure = z.Error((message.value or b"").decode("utf-8", "replace"))
        failure.errno = -code
        raise failure


# ---- the names by which DeepSpeed's handles are made ----


class _Operators:
    aio_handle = Handle
    pin_handle = PinHandle


class AsyncIOBuilder:
    """For deepspeed.ops.op_builder's: `AsyncIOBuilder().load().aio_handle()` is a `Handle`."""

    def load(self, verbose: bool = True) -> _Operators:
        return _Operators()

    def is_compatible(self, verbose: bool = False) -> bool:
        return True


class PinMemoryBuilder(AsyncIOBuilder):
    """For deepspeed.ops.op_builder's: `PinMemoryBuilder().load().pin_handle()`."""
