"""The library, found and loaded: its structs, its calls with their types, its errors.

Structs are written as in the installed headers; each begins with its size where the header's does,
so that a library with more fields than are known here works. ctypes lets the interpreter go in
every call.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import glob
import logging
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, List, Tuple

from ._sentences import in_python

# ---- errors ----


class Error(Exception):
    """What the library could not do, in its own sentence. ``errno`` is the code that it gave."""

    errno: int = 0


class OptionError(Error, ValueError):
    """An option, a key of the configuration or an argument is not what it must be."""


class NotFoundError(Error, LookupError):
    """A file, a folder or a checkpoint is not there."""


class UnsupportedError(Error, NotImplementedError):
    """The model, the file or the machine needs something that zinf does not have."""


class OutOfMemoryError(Error, MemoryError):
    """It does not fit; the sentence says what and which key to change."""


_KINDS = {
    errno.EINVAL: OptionError,
    errno.ENOENT: NotFoundError,
    errno.ENOTSUP: UnsupportedError,
    errno.ENOMEM: OutOfMemoryError,
}


def error(code: int) -> Error:
    """The exception of a negative code, with the sentence of this thread's last failure."""
    sentence = in_python(lib.zinf_error())
    found = _KINDS.get(-code, Error)(sentence or os.strerror(-code))
    found.errno = -code
    return found


def check(code: int) -> int:
    """The code of a call, if it is none of a failure."""
    if code < 0:
        raise error(code)
    return code


# ---- structs of api.h and checkpoints.h ----


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, *args, **fields):
        super().__init__(*args, **fields)
        self.size = ctypes.sizeof(self)


class OptionFacts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("kind", c_char_p),
        ("value", c_char_p),
        ("help", c_char_p),
        ("usual", c_char_p),
        ("otherwise", c_char_p),
        ("key", c_char_p),
        ("aliases", c_char_p),
        ("min", c_double),
        ("max", c_double),
        ("open", c_bool),
    ]


class Setting(Structure):
    _fields_ = [("name", c_char_p), ("text", c_char_p)]


NEXT_ROW = CFUNCTYPE(c_int, c_void_p, POINTER(c_char_p))
SKIP_ROWS = CFUNCTYPE(c_int, c_void_p, c_uint64)
DONE_ROWS = CFUNCTYPE(None, c_void_p)


class RowSource(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("next", NEXT_ROW),
        ("skip", SKIP_ROWS),
        ("arg", c_void_p),
        ("done", DONE_ROWS),
    ]


class StepStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_uint64),
        ("steps", c_uint64),
        ("loss", c_double),
        ("grad_norm", c_double),
        ("lr", c_double),
        ("seconds", c_double),
        ("tokens", c_uint64),
        ("skipped", c_bool),
    ]


class Figure(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class MeasureStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("loss", c_double),
        ("tokens", c_uint64),
        ("pairs", c_uint64),
        ("chosen", c_double),
        ("rejected", c_double),
        ("accuracy", c_double),
        ("kl", c_double),
        ("n_scores", c_uint32),
        ("scores", Figure * 8),
        ("set", c_char_p),
        ("next", c_void_p),
        ("cross_entropy", c_double),
    ]


STEPPED = CFUNCTYPE(None, c_void_p, POINTER(StepStruct))
EVALUATED = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(MeasureStruct))
SAVED = CFUNCTYPE(None, c_void_p, c_uint64, c_char_p)


class Events(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("stepped", STEPPED),
        ("evaluated", EVALUATED),
        ("saved", SAVED),
        ("arg", c_void_p),
    ]


class AnswerStruct(Sized):
    # Texts are addresses: they may have NULs, and their lengths stand beside them.
    _fields_ = [
        ("size", c_size_t),
        ("prompt", c_void_p),
        ("text", c_void_p),
        ("whole", c_void_p),
        ("finish", c_char_p),
        ("ids", POINTER(c_int32)),
        ("n_ids", c_int64),
        ("prompt_tokens", c_int64),
        ("prompt_bytes", c_size_t),
        ("text_bytes", c_size_t),
        ("whole_bytes", c_size_t),
    ]


GROWN = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
MADE = CFUNCTYPE(None, c_void_p, c_size_t, POINTER(AnswerStruct))


class TextEvents(Sized):
    _fields_ = [("size", c_size_t), ("grown", GROWN), ("made", MADE), ("arg", c_void_p)]


class PlanStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("params", c_uint64),
        ("tokens", c_uint64),
        ("device_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("drive_bytes", c_uint64),
        ("device_budget", c_uint64),
        ("host_budget", c_uint64),
        ("step_seconds", c_double),
        ("flops", c_double),
        ("bottleneck", c_char * 16),
        ("schedule", c_char * 32),
        ("device", c_char * 96),
    ]


class CheckpointInfo(Structure):
    _fields_ = [
        ("folder", c_char_p),
        ("step", c_uint64),
        ("bytes", c_uint64),
        ("latest", c_bool),
        ("problem", c_char_p),
    ]


SEE_CHECKPOINT = CFUNCTYPE(None, c_void_p, POINTER(CheckpointInfo))


class ExportOptions(Structure):
    _fields_ = [
        ("checkpoint", c_char_p),
        ("output", c_char_p),
        ("dtype", c_int),
        ("as_saved", c_bool),
        ("max_shard_bytes", c_uint64),
    ]


class MergeOptions(Structure):
    _fields_ = [
        ("adapter", c_char_p),
        ("base", c_char_p),
        ("output", c_char_p),
        ("dtype", c_int),
        ("as_base", c_bool),
        ("max_shard_bytes", c_uint64),
    ]


class JoinedAdapter(Structure):
    _fields_ = [("folder", c_char_p), ("weight", c_double)]


BEGIN_EMBEDDINGS = CFUNCTYPE(c_int, c_void_p, c_uint64, c_int64)
EMBEDDED = CFUNCTYPE(c_int, c_void_p, c_uint64, POINTER(c_float), c_int64)


class Embeddings(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("begin", BEGIN_EMBEDDINGS),
        ("row", EMBEDDED),
        ("arg", c_void_p),
    ]


SINK = CFUNCTYPE(None, c_int, c_char_p, c_void_p)

# Result and arguments of each call; no result is an int that may be -errno.
_CALLS = {
    "zinf_version": (c_char_p, []),
    "zinf_error": (c_char_p, []),
    "zinf_log_set_sink": (None, [SINK, c_void_p]),
    "zinf_dtype_parse": (c_int, [c_char_p, POINTER(c_int)]),
    "zinf_size_parse": (c_int, [c_char_p, POINTER(c_uint64)]),
    "zinf_option_facts": (c_int, [c_size_t, POINTER(OptionFacts)]),
    "zinf_option_word": (c_char_p, [c_size_t, c_size_t]),
    "zinf_session_open": (c_int, [POINTER(c_void_p), POINTER(Setting), c_size_t]),
    "zinf_session_close": (None, [c_void_p]),
    "zinf_session_rows": (c_int, [c_void_p, c_int, POINTER(RowSource)]),
    "zinf_session_train": (c_int, [c_void_p, POINTER(Events)]),
    "zinf_session_cancel": (None, [c_void_p]),
    "zinf_session_uncancel": (None, [c_void_p]),
    "zinf_session_batch": (c_int, [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "zinf_session_step": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(StepStruct)]),
    "zinf_session_evaluate": (c_int, [c_void_p, POINTER(MeasureStruct)]),
    "zinf_session_logits": (c_int, [c_void_p, c_void_p, c_int64, POINTER(c_float)]),
    "zinf_session_vocabulary": (c_int64, [c_void_p]),
    "zinf_session_gradients": (c_int, [c_void_p, c_char_p, POINTER(c_double), POINTER(c_double)]),
    "zinf_session_texts": (
        c_int,
        [c_void_p, POINTER(c_char_p), c_size_t, POINTER(TextEvents), c_void_p],
    ),
    "zinf_session_embed": (c_int, [c_void_p, POINTER(Embeddings)]),
    "zinf_session_save": (c_int, [c_void_p, c_char_p]),
    "zinf_session_plan": (c_int, [c_void_p, POINTER(PlanStruct)]),
    "zinf_checkpoint_list": (c_int, [c_char_p, SEE_CHECKPOINT, c_void_p]),
    "zinf_checkpoint_export": (c_int, [POINTER(ExportOptions)]),
    "zinf_adapter_merge": (c_int, [POINTER(MergeOptions)]),
    "zinf_adapter_join": (c_int, [POINTER(JoinedAdapter), c_int, c_char_p]),
}

# ---- loading ----

PACKAGE = os.path.dirname(os.path.abspath(__file__))
PREFIX = os.path.join(PACKAGE, "_prefix")  # of a wheel: library, command, and what both need
OTHERS = os.path.join(PREFIX, "others")
_NAME = "libzinf.so.0"
_BLAS = "libopenblas.so.0"

brings_others = False  # the system lacks libraries, which the wheel's stand in for


def _places() -> List[str]:
    """Where the library may be, the most certain place first."""
    named = os.environ.get("ZINF_LIBRARY")
    within = os.path.join(PREFIX, "lib", _NAME)
    if named or os.path.exists(within):
        return [named or within]
    prefixes = [os.path.join(p, "lib", _NAME) for p in (sys.prefix, "/usr/local")]
    return [p for p in prefixes if os.path.exists(p)] + [_NAME]


def _has_blas() -> bool:
    """Whether the system has it; a look that loads it would start its threads."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += ["/lib", "/usr/lib", "/usr/lib64", "/usr/local/lib", *glob.glob("/usr/lib/*-linux-gnu")]
    return any(os.path.exists(os.path.join(f, _BLAS)) for f in folders if f)


def _loaded(path: str) -> ctypes.CDLL:
    """Loads a library. What it needs and the system lacks, or has too old, is the wheel's; the rest
    is the system's, since Python's own modules, such as hashlib, are made for that one."""
    global brings_others
    taken = set()
    while True:
        try:
            return ctypes.CDLL(path)
        except OSError as failure:  # "libicuuc.so.72: cannot open", "/lib/libz.so.1: version ..."
            other = os.path.join(OTHERS, os.path.basename(str(failure).split(":")[0]))
            if other in (*taken, path) or not os.path.exists(other):
                raise
            taken.add(other)
            _loaded(other)
            brings_others = True


def _load() -> ctypes.CDLL:
    tried = []
    for place in _places():
        try:
            return _loaded(place)
        except OSError as failure:
            tried.append(str(failure))
    raise ImportError(
        "zinf: the library does not load: "
        + "; ".join(dict.fromkeys(tried))
        + ". Install it (pip install ./python of a checkout, or make install), "
        "or name it by the environment variable ZINF_LIBRARY"
    )


def _name_modules() -> None:
    """The library looks for its modules where make install puts them; a wheel's are here."""
    modules = os.path.join(PREFIX, "lib", "zinf")
    for name, variable in (("zinf-cuda.so", "ZINF_CUDA_MODULE"), ("zinf-mpi.so", "ZINF_MPI_MODULE")):
        path = os.path.join(modules, name)
        if not os.path.exists(path):
            continue
        if name == "zinf-cuda.so":  # one that is named is taken without a look for a driver
            try:
                ctypes.CDLL("libcuda.so.1")
            except OSError:
                continue
        os.environ.setdefault(variable, path)


def declare(calls: Dict[str, Tuple[Any, List]]) -> ctypes.CDLL:
    """The library, which has these calls from now on with the types of results and arguments."""
    for name, (result, arguments) in calls.items():
        try:
            call = getattr(lib, name)
        except AttributeError:
            raise ImportError(
                f"zinf: {lib._name} has no {name}: it is of another version than this package"
            ) from None
        call.restype, call.argtypes = result, arguments
    return lib


lib = _load()
declare(_CALLS)
_name_modules()
if os.path.exists(os.path.join(OTHERS, _BLAS)) and not _has_blas():
    _loaded(os.path.join(OTHERS, _BLAS))
__version__: str = lib.zinf_version().decode()


def _check_version() -> None:
    path = os.path.join(PACKAGE, "_version.txt")
    if not os.path.exists(path):  # of a checkout, which has the version that configure.ac says
        return
    with open(path, encoding="ascii") as file:
        expected = file.read().strip()
    if expected != __version__:
        raise ImportError(
            f"zinf: the package is of version {expected}, but {lib._name} of {__version__}: "
            "install them together"
        )


_check_version()

# ---- what the library says ----

log = logging.getLogger("zinf")
_LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]


def _said(level: int, line: bytes, _arg) -> None:
    log.log(_LEVELS[level], "%s", in_python(line))


_sink = SINK(_said)
if not os.environ.get("ZINF_LOG"):  # by which the library itself writes to standard error
    lib.zinf_log_set_sink(_sink, None)
    # Threads of the library may outlive the interpreter: none may call into it then.
    atexit.register(lib.zinf_log_set_sink, SINK(), None)


def path_bytes(path) -> bytes:
    """A path as the system has it."""
    return os.fsencode(os.fspath(path))
