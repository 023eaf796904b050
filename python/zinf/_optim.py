"""torch.optim.Optimizer over the library's CPU optimizers: state in RAM, or on drives.

An update is one pass over memory, by all cores, in fp32; parameters in bf16 and fp16 have fp32
masters in the state. Parameters that lie on a GPU, or not in one piece, are brought to the CPU and
back. With state="nvme" the state lies in files below path, which go when the optimizer does: pieces
of it are read, updated and written at the same time, in buffers of a fixed size. With in_backward
a thread updates parameters while the backward pass makes the gradients of others. The bits are
always those of state="ram".
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import threading
import weakref
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from . import _library as z
from ._drive import Drive, Feed, Piece, Plane

_BLOCK = 256  # elements of 8-bit moments that share a scale
_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_ADAMW, _ADAM, _LION, _ADAGRAD, _SGD = range(5)


# ---- structs of optim.h ----


class _Hyper(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("lr", c_float),
        ("beta1", c_float),
        ("beta2", c_float),
        ("eps", c_float),
        ("weight_decay", c_float),
        ("bias_correction", c_bool),
        ("step", c_uint64),
    ]


class _Array(ctypes.Structure):
    _fields_ = [
        ("n", c_uint64),
        ("master", c_void_p),
        ("moment1", c_void_p),
        ("moment2", c_void_p),
        ("grad", c_void_p),
        ("grad_dtype", c_int),
        ("grad_scale", c_float),
        ("param", c_void_p),
        ("param_dtype", c_int),
        ("remainder", c_void_p),
        ("half_moment1", c_void_p),
        ("half_moment2", c_void_p),
        ("stochastic_rounding", c_bool),
        ("rounding_key", c_uint64),
        ("first_element", c_uint64),
        ("byte_moment1", c_void_p),
        ("byte_moment2", c_void_p),
        ("scale1", c_void_p),
        ("scale2", c_void_p),
        ("zero_grad", c_bool),
        ("nonfinite", c_void_p),
        ("sum_squares", c_void_p),
    ]


_MASTER = Plane("master", "master")


_lib = z.declare(
    {
        "zinf_cpu_count": (c_int, []),
        "zinf_optim_step_arrays": (c_int, [POINTER(_Hyper), POINTER(_Array), c_uint32, c_int]),
    }
)
_threads = _lib.zinf_cpu_count()
_HUGE_PAGE, _MADV_HUGEPAGE = 2 << 20, 14
_madvise = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [c_void_p, ctypes.c_size_t, c_int]


class _Due(NamedTuple):
    """What the update of one parameter needs. left: elements that are not updated yet; made: the
    event of a GPU's gradient, or None."""

    hyper: _Hyper
    grad: torch.Tensor
    left: List[int]
    made: Any = None


class _Part(NamedTuple):
    """Elements at .. at + n of p, and the addresses of their state, by planes."""

    p: Any
    due: _Due
    at: int
    n: int
    state: List[int]

    def fill(self, array: _Array, planes: Sequence[Plane]) -> Tuple[Any, Any]:
        """Writes into array what the library updates; of values and gradient the copies, where they
        are not here in one piece."""
        p, grad, out, given = self.p, self.due.grad, None, None
        if _is_here(p):
            values = p.data_ptr() + self.at * p.element_size()
        else:
            out = p.detach().reshape(-1)[self.at : self.at + self.n].to("cpu", copy=True)
            values = out.data_ptr()
        if _is_here(grad) and grad.dtype in _DTYPES:
            slope = grad.data_ptr() + self.at * grad.element_size()
        else:
            given = grad.reshape(-1)[self.at : self.at + self.n].to("cpu").contiguous()
            given = given if given.dtype in _DTYPES else given.float()
            slope = given.data_ptr()
        array.n, array.master, array.grad = self.n, values, slope
        array.grad_dtype = _DTYPES[(grad if given is None else given).dtype]
        array.param = values if planes[-1] is _MASTER else None
        array.param_dtype = _DTYPES[p.dtype]
        for plane, address in zip(planes, self.state):
            setattr(array, plane.field, address)
        return out, given

    def bring_back(self, out: torch.Tensor) -> None:
        p = self.p.detach()
        whole = p.reshape(-1)
        whole[self.at : self.at + self.n] = out.to(p.device)
        if whole.data_ptr() != p.data_ptr():
            p.copy_(whole.view(p.shape))
        if self.due.made is not None:
            torch.cuda.current_stream(p.device).synchronize()


class _Room:
    """Structs of so many parts, used again by later updates: every part has the same fields."""

    def __init__(self, n: int):
        self.n = n
        self.hypers, self.arrays = (_Hyper * n)(), (_Array * n)()
        self.each = list(self.arrays)  # one struct each, in the memory of the array
        for array in self.each:
            array.grad_scale = 1.0


def _is_here(p) -> bool:
    return p.is_cpu and p.is_contiguous()


def _large_pages(array: torch.Tensor) -> torch.Tensor:
    """Asks for pages of 2 MiB where array fills them, before anything is written to it: an update
    reads and writes state from one end to the other. A hint, which a system may not take."""
    begin = -(-array.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
    end = (array.data_ptr() + array.numel() * array.element_size()) // _HUGE_PAGE * _HUGE_PAGE
    if end > begin and _madvise is not None:
        _madvise(begin, end - begin, _MADV_HUGEPAGE)
    return array


# ---- updates while the backward pass goes on ----


class _Worker:
    """A thread of one step, which updates what its feed has. It holds the optimizer only while it
    updates, so that one that is given up in the middle of a step goes."""

    def __init__(self, optimizer: _Optimizer):
        self.feed, self.failure = Feed(), None
        self.is_beginning, self.has_begun, self.is_ending = False, False, False
        self.done = threading.Event()
        self._owner, self._ident = os.getpid(), 0
        self._drive: Optional[Drive] = optimizer._drive
        self._optimizer = weakref.ref(optimizer)
        self._finalizer = weakref.finalize(optimizer, self.end)

    def begin(self) -> None:
        """Not by threading.Thread, whose start an interrupt may leave half done. If one comes here,
        the thread may run, but is never fed."""
        self.is_beginning = True
        _thread.start_new_thread(self._run, ())
        self.has_begun = True

    def _tell(self, name: str, *args) -> None:
        optimizer = self._optimizer()
        if optimizer is not None:
            getattr(optimizer, name)(*args)

    def _update(self) -> None:
        if self._drive is None:
            while params := self.feed.some():
                self._tell("_update_in_ram", params)
        else:
            update = lambda *args: self._tell("_update_piece", *args)  # noqa: E731
            self._drive.visit(self.feed, update, lambda *args: self._tell("_begin_piece", *args))

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            with torch.no_grad():
                self._update()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._drive = None
            self.done.set()

    def end(self) -> None:
        """Waits until all that was fed is updated."""
        self.is_ending = True
        self._finalizer.detach()
        self.feed.end()
        # A process that was forked does not have the thread.
        if os.getpid() != self._owner or self._ident == threading.get_ident():
            return
        if self.is_beginning:  # an interrupt may hide whether it runs
            self.done.wait(None if self.has_begun else 0.2)


class _Arrivals:
    """Of the step that goes on: how often each parameter's gradient was made, and of how many
    gradients each piece still waits."""

    def __init__(self, drive: Optional[Drive]):
        self.times: Dict[Any, int] = {}
        self.pieces: Dict[Any, List[Piece]] = {}
        self.missing: Dict[int, int] = {}
        self.fed: set = set()
        for piece in drive.pieces if drive else ():
            params = {p for p, *_ in piece.parts}
            self.missing[piece.extent] = sum(p.requires_grad for p in params)
            for p in params:
                self.pieces.setdefault(p, []).append(piece)

    def complete(self, p) -> List[Piece]:
        """The pieces that wait for nothing more, now that p's gradient is there."""
        found = []
        for piece in self.pieces.get(p, ()):  # a parameter without elements has none
            self.missing[piece.extent] -= 1
            if not self.missing[piece.extent]:
                found.append(piece)
        self.fed.update(piece.extent for piece in found)
        return found


# ---- gradients that are not the sum of all processes yet ----


def _refuse_reduced(seen: bool) -> None:
    """Updates in the backward pass take a gradient as soon as it is made, which is before wrappers
    such as DistributedDataParallel have reduced it. seen: a model has been through a backward pass,
    so that its wrapper is there."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return
    wrapped = distributed.get_world_size() > 1
    if seen and not wrapped:
        parallel = torch.nn.parallel.DistributedDataParallel
        wrapped = any(type(found) is parallel for found in gc.get_objects())
    if wrapped:
        raise z.UnsupportedError(
            "in_backward with torch.distributed (DistributedDataParallel, FSDP and others): a "
            "gradient would be used before it is reduced over the processes: leave in_backward out"
        )


# ---- groups of parameters ----

# What torch's optimizers can do besides, and the value with which they do not.
_ONLY_TORCH = {
    "amsgrad": False, "maximize": False, "nesterov": False, "dampening": 0, "lr_decay": 0,
}  # fmt: skip
_LEAST = ("lr", "eps", "weight_decay", "momentum", "initial_accumulator_value")


def _check_group(group: Dict[str, Any], name: str) -> None:
    """Of a group as a caller or a state_dict gives it, which may not have every key."""
    for key, without in _ONLY_TORCH.items():
        if group.get(key, without) != without:
            raise z.UnsupportedError(
                f"a group has {key}={group[key]!r}, which {name} does not do: leave {key} out, or "
                f"set it to {without!r}"
            )
    for key in _LEAST:
        if key in group and not float(group[key]) >= 0:
            raise z.OptionError(f"{key} is {group[key]!r}: it must be a number from 0 on")
    for beta in group.get("betas", ()):
        if not 0 <= float(beta) < 1:
            raise z.OptionError(f"betas are {group['betas']!r}: each must be from 0 to below 1")


# ---- the optimizers ----


class _Optimizer(torch.optim.Optimizer):
    _kind: int
    _planes: Tuple[Plane, ...]  # of the moments, by the names that torch has for them

    def __init__(
        self, params, defaults, *, state: str = "ram", path: Paths = None,
        buffer_bytes: int = 192 << 20, in_backward: int = 0,
    ):  # fmt: skip
        if state not in ("ram", "nvme"):
            raise z.OptionError(f'state is {state!r}: use "ram", or "nvme" with path')
        if state == "nvme" and not path:
            raise z.OptionError('state="nvme" needs path: a folder on the drive, or a list of them')
        if in_backward < 0:
            raise z.OptionError(f"in_backward is {in_backward}: the backward passes of a step, or 0")
        if in_backward:
            _refuse_reduced(seen=False)
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path or ())
        self._paths = [z.path_bytes(p) for p in paths] if state == "nvme" else []
        self._buffer_bytes, self._passes = buffer_bytes, int(in_backward)
        self._drive: Optional[Drive] = None
        self._sizes: Dict[Any, int] = {}  # that parameters have on the drive, in elements
        self._looked = False  # for what would reduce gradients
        self._worker: Optional[_Worker] = None
        self._arrivals: Optional[_Arrivals] = None
        self._due: Dict[Any, _Due] = {}
        self._last: Tuple[Any, ...] = None, 0, None  # values, step, and the struct of both
        self._rooms: List[_Room] = []  # that no update uses
        super().__init__(params, defaults)

    def _check(self, p) -> None:
        if p.is_meta:
            raise z.UnsupportedError(
                "a parameter is on the device meta, where it has no values: load the weights before the "
                "optimizer is made"
            )
        if self._passes and not p.is_cpu and not p.is_cuda:
            raise z.UnsupportedError(
                f"in_backward: a parameter is on {p.device}, and gradients are waited for on the CPU and "
                "on CUDA alone: leave in_backward out"
            )
        if p.dtype not in _DTYPES:
            raise z.UnsupportedError(f"a parameter is of {p.dtype}: fp32, bf16 and fp16 are updated")

    def _check_given(self, group: Dict[str, Any]) -> None:
        """Adam and AdamW of torch are one class with a switch, which may be set the other way."""
        name = type(self).__name__
        _check_group(group, name)
        decoupled = self._kind == _ADAMW
        found = group.get("decoupled_weight_decay", decoupled)
        if self._kind in (_ADAMW, _ADAM) and found != decoupled and group.get("weight_decay"):
            raise z.OptionError(
                f"a group has decoupled_weight_decay={found!r}, and {name} does it the other way: "
                f"use {'Adam' if decoupled else 'AdamW'}"
            )

    def _values(self, group: Dict[str, Any]) -> Tuple:
        """The numbers of a group, in the order of struct zinf_optim_hyper."""
        beta1, beta2 = group.get("betas", (group.get("momentum", 0.0), 0.0))
        return (
            self._kind, float(group["lr"]), beta1, beta2, group.get("eps", 1e-8),
            group["weight_decay"], group.get("bias_correction", True),
        )  # fmt: skip

    def _hyper(self, values: Tuple, step: int) -> _Hyper:
        """That of a group's parameters, which mostly are at the same step, is made once."""
        last = self._last  # hooks of several GPUs' gradients have threads of their own
        if last[1] != step or last[0] != values:
            last = self._last = values, step, _Hyper(*values, step)
        return last[2]

    def _held(self, p) -> Tuple[Plane, ...]:
        """The state of a parameter; its master is itself where it is in fp32."""
        return self._planes if p.dtype == torch.float32 else (*self._planes, _MASTER)

    # ---- a step ----

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all parameters that have a gradient. With in_backward most of them were
        updated in the backward pass: the rest is, and the end of all is waited for."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._worker is not None:
            if not self._worker.is_ending:
                self._feed_rest(self._worker)
            self._end_worker()
        self._due = {}
        self._step_here(self._take_gradients())
        return loss

    def _end_worker(self) -> None:
        """An interrupt may come in between: then whoever comes next waits for the thread."""
        worker = self._worker
        worker.end()
        self._worker = None
        if worker.failure is not None:
            self._due = {}
            raise worker.failure

    def _take(self, params: List[Any], group: Dict[str, Any]) -> List[Any]:
        """Notes that params, of one group, are updated by the gradients that they have now."""
        steps = []
        for p in params:
            self._check(p)
            if p.grad.is_sparse:
                raise z.UnsupportedError("a gradient is sparse: dense ones are updated")
            if p.grad.numel() != p.numel():
                raise z.OptionError(
                    f"a gradient has {p.grad.numel()} elements, and its parameter {p.numel()}"
                )
            if self._drive is not None:
                self._check_size(p, self._sizes.get(p, p.numel()))
            state = self.state[p]
            if "step" not in state:
                state["step"] = torch.tensor(0.0)
            steps.append(state["step"])
        if params:
            torch._foreach_add_(steps, 1)
        values = self._values(group)
        for p, step in zip(params, steps):
            made = torch.cuda.current_stream(p.device).record_event() if p.is_cuda else None
            self._due[p] = _Due(self._hyper(values, int(step)), p.grad, [p.numel()], made)
        return params

    def _take_gradients(self) -> List[Any]:
        """Takes all gradients there are, of the parameters that are returned."""
        taken: List[Any] = []
        for group in self.param_groups:
            taken += self._take([p for p in group["params"] if p.grad is not None], group)
        return taken

    def _step_here(self, params: List[Any]) -> None:
        if not params:
            return
        if not self._paths:
            self._update_in_ram(params)
            return
        drive = self._opened_drive()
        pieces = [piece for piece in drive.pieces if any(p in self._due for p, *_ in piece.parts)]
        drive.visit(Feed(pieces, ends=True), self._update_piece, self._begin_piece)

    # ---- in the backward pass ----

    def _watch(self, p) -> None:
        """Calls _arrived when p's gradient has been made."""
        owner = weakref.ref(self)

        def arrived(p) -> None:
            optimizer = owner()
            if optimizer is not None:
                optimizer._arrived(p)

        handle = p.register_post_accumulate_grad_hook(arrived)
        weakref.finalize(self, handle.remove)

    @torch.no_grad()
    def _arrived(self, p) -> None:
        if self._worker is not None and (self._worker.is_ending or not self._worker.has_begun):
            self._end_worker()
        if self._worker is None:
            if not self._looked:
                _refuse_reduced(seen=True)
                self._looked = True
            if self._paths:
                self._opened_drive()
            self._arrivals = _Arrivals(self._drive)
            self._groups = {p: group for group in self.param_groups for p in group["params"]}
            self._worker = _Worker(self)
            self._worker.begin()
        arrivals = self._arrivals
        arrivals.times[p] = times = arrivals.times.get(p, 0) + 1
        if times < self._passes:
            return
        if times > self._passes:
            raise z.Error(
                f"a gradient was made {times} times before optimizer.step(), and in_backward is "
                f"{self._passes}: a parameter is updated after so many backward passes"
            )
        self._take([p], self._groups[p])
        p.grad = None  # the update has it, and frees it
        for item in arrivals.complete(p) if self._drive else [p]:
            self._worker.feed.put(item)

    def _feed_rest(self, worker: _Worker) -> None:
        """What the backward passes left: parameters that not all of them reach, and pieces with
        others than are updated."""
        rest = self._take_gradients()
        for p in rest:
            p.grad = None
        if self._drive is None:
            items = rest
        else:
            fed = self._arrivals.fed
            items = [
                piece
                for piece in self._drive.pieces
                if piece.extent not in fed and any(p in self._due for p, *_ in piece.parts)
            ]
        for item in items:
            worker.feed.put(item)

    def _check_between_steps(self) -> None:
        if self._worker is not None and self._worker.is_ending:
            self._end_worker()
        if self._worker is not None:
            raise z.Error("a backward pass has begun to update parameters: call step() before this")

    # ---- state ----

    def _in_ram(self, p) -> List[int]:
        """The addresses of state in RAM, by planes."""
        state, addresses, n = self.state[p], [], p.numel()
        if p.dtype == torch.float32:
            state.pop("master", None)  # of when it was not in fp32: it is older than the values
        for plane in self._held(p):
            value = state.get(plane.name)
            if value is None:
                value = state[plane.name] = self._begun(plane, p)
            elif not value.is_cpu:  # frames move what they load to the parameters' device
                value = state[plane.name] = value.to("cpu")
            if value.numel() != plane.count(n):
                self._check_size(p, value.numel() * plane.per)
            addresses.append(value.data_ptr())
        return addresses

    def _check_size(self, p, n: int) -> None:
        """The library would read and write beyond the end of the smaller one."""
        if p.numel() != n:
            raise z.OptionError(
                f"a parameter has {p.numel()} elements, and its state is for {n}: make the optimizer "
                "after the parameter gets its size"
            )

    def _begun(self, plane: Plane, p) -> torch.Tensor:
        if plane is _MASTER:
            self._wait_for(p)
            return _large_pages(torch.empty(p.shape, dtype=torch.float32)).copy_(p)
        shape = p.shape if plane.per == 1 else (plane.count(p.numel()),)
        return _large_pages(torch.empty(shape, dtype=plane.dtype)).fill_(self._first(plane.name, p))

    def _parts(self, p, slot, at: int, n: int) -> List[torch.Tensor]:
        """Of each plane's array what elements at .. at + n have."""
        return [
            part[at // plane.per : at // plane.per + plane.count(n)]
            for part, plane in zip(slot, self._held(p))
        ]

    def _first(self, name: str, p) -> float:
        return 0.0

    def _update_in_ram(self, params: List[Any]) -> None:
        """All at once, but of those that must be copied one after the other: copies take room."""
        together, apart = [], []
        for p in params:
            (together if _is_here(p) else apart).append(p)
        for some in (together, *([p] for p in apart)):
            state = [self._in_ram(p) for p in some]
            self._update(
                [_Part(p, self._due.pop(p), 0, p.numel(), there) for p, there in zip(some, state)]
            )

    def _update_piece(self, piece: Piece, slot) -> None:
        parts = [
            _Part(p, self._due[p], at, n, [part.data_ptr() for part in self._parts(p, slot, to, n)])
            for p, at, n, to in piece.parts
            if p in self._due
        ]
        self._update(parts)
        for part in parts:
            part.due.left[0] -= part.n
            if not part.due.left[0]:
                del self._due[part.p]

    def _begin_piece(self, piece: Piece, slot) -> None:
        for part in slot:
            part.zero_()
        for p, at, n, to in piece.parts:
            for part, plane in zip(self._parts(p, slot, to, n), self._held(p)):
                if plane is _MASTER:
                    self._wait_for(p)
                    part.copy_(p.detach().reshape(-1)[at : at + n])
                else:
                    part.fill_(self._first(plane.name, p))

    def _wait_for(self, p) -> None:
        """On a GPU what makes its gradient, and so what made its values before."""
        due = self._due.get(p)
        if due is not None and due.made is not None:
            due.made.synchronize()

    def _opened_drive(self) -> Drive:
        if self._drive is None:
            params = [p for group in self.param_groups for p in group["params"]]
            # The master is the last plane, also beside parameters that have none.
            planes = max((self._held(p) for p in params), key=len)
            self._drive = Drive(self._paths, params, planes, self._buffer_bytes)
            self._sizes = {p: p.numel() for p in params}
        return self._drive

    def _update(self, parts: List[_Part]) -> None:
        room = self._rooms.pop() if self._rooms else None
        if room is None or room.n < len(parts):
            room = _Room(len(parts))
        copies = []
        for i, part in enumerate(parts):
            if part.due.made is not None:
                part.due.made.synchronize()
            room.hypers[i] = part.due.hyper
            copies.append(part.fill(room.each[i], self._held(part.p)))
        z.check(_lib.zinf_optim_step_arrays(room.hypers, room.arrays, len(parts), _threads))
        self._rooms = [room]
        for part, (out, _) in zip(parts, copies):
            if out is not None:
                part.bring_back(out)

    # ---- saving and loading ----

    def state_dict(self) -> Dict[str, Any]:
        """As torch's: state on drives is read into RAM for it."""
        self._check_between_steps()
        if self._drive is None:
            return super().state_dict()
        kept = {p: dict(state) for p, state in self.state.items()}
        try:
            for p in kept:
                if "step" in self.state[p]:  # the next one counts on, and the moments are copies
                    self.state[p]["step"] = self.state[p]["step"].clone()
                for plane in self._held(p):
                    shape = p.shape if plane.per == 1 else (plane.count(p.numel()),)
                    self.state[p][plane.name] = torch.empty(shape, dtype=plane.dtype)
            moves = lambda piece, slot: self._move(piece, slot, False)  # noqa: E731
            pieces = Feed(self._drive.pieces, ends=True)
            self._drive.visit(pieces, moves, self._begin_piece, writes=False)
            return super().state_dict()
        finally:
            for p, state in kept.items():
                self.state[p] = state

    def _move(self, piece: Piece, slot, to_drive: bool) -> None:
        for p, at, n, to in piece.parts:
            held = self._held(p)
            values = [self.state[p].get(plane.name) if p in self.state else None for plane in held]
            for value, plane, there in zip(values, held, self._parts(p, slot, to, n)):
                if value is None:
                    continue
                part = value.view(-1)[at // plane.per :][: plane.count(n)]
                there.copy_(part) if to_drive else part.copy_(there)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """A state of this class, with its state anywhere, or of torch's of the same name. State
        stays in fp32 on the CPU, whatever the parameters are of."""
        self._check_between_steps()
        for group in state_dict["param_groups"]:
            self._check_given(group)
        bare = {"state": {}, "param_groups": state_dict["param_groups"]}
        super().load_state_dict(bare)
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [i for group in state_dict["param_groups"] for i in group["params"]]
        for number, p in zip(numbers, params):
            found = state_dict["state"].get(number)
            if found is None:
                continue
            state = self.state[p]
            step = found.get("step", 1)  # torch's SGD counts none, and its formula needs none
            state["step"] = torch.tensor(float(step))
            for plane in (*self._planes, _MASTER):
                value = found.get(plane.name)
                if value is None:
                    continue
                if value.is_floating_point() != plane.dtype.is_floating_point:
                    raise z.OptionError(
                        f"the state_dict has {plane.name} in {value.dtype}, and "
                        f"{type(self).__name__} in {plane.dtype}: load that of the same optimizer"
                    )
                wanted = plane.count(p.numel())
                if value.numel() != wanted:
                    raise z.OptionError(
                        f"the state_dict has {value.numel()} elements of {plane.name} for "
                        f"parameter {number}, which needs {wanted}: load that of the same model"
                    )
                # What goes to drives may stay where it is until then, as in a mapped file.
                value = value.detach().to("cpu", plane.dtype, copy=not self._paths)
                state[plane.name] = value.contiguous()
        self._drive = None
        if self._paths and self.state:
            moves = lambda piece, slot: self._move(piece, slot, True)  # noqa: E731
            drive = self._opened_drive()
            drive.visit(Feed(drive.pieces, ends=True), moves, self._begin_piece)
            for p in params:
                step = self.state[p].get("step") if p in self.state else None
                if step is not None:
                    self.state[p] = {"step": step}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Allowed before the first step, where state is on drives."""
        if self._drive is not None:
            raise z.OptionError("parameters were added after the drives were filled: make the "
                                "optimizer anew, and load its state_dict")
        self._check_between_steps()
        if isinstance(param_group, dict):
            self._check_given({**self.defaults, **param_group})
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            self._check(p)
            if self._passes and p.requires_grad:
                self._watch(p)

    def __getstate__(self) -> Dict[str, Any]:
        raise z.UnsupportedError("an optimizer is not pickled or copied: save its state_dict")


Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]], None]


class AdamW(_Optimizer):
    """AdamW by Loshchilov and Hutter, as torch.optim.AdamW.

    All optimizers here take state="ram", or "nvme" for state in files below path, one folder or
    several, with buffer_bytes of RAM. in_backward is how many backward passes a step has: then a
    parameter is updated, and its gradient freed, as soon as the last of them made its gradient;
    there is nothing left for clipping, nor for a gradient scaler. 0: step() updates all.

    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> optimizer = AdamW([weight], lr=0.5, weight_decay=0)
    >>> weight.sum().backward(); optimizer.step()
    >>> weight
    Parameter containing:
    tensor([0.5000, 0.5000, 0.5000], requires_grad=True)
    """

    _kind = _ADAMW
    _planes = (Plane("exp_avg", "moment1"), Plane("exp_avg_sq", "moment2"))

    def __init__(
        self, params, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, *, bias_correction: bool = True, **more,
    ):  # fmt: skip
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction
        )
        super().__init__(params, defaults, **more)


class Adam(AdamW):
    """Adam by Kingma and Ba, with decay in the gradient, as torch.optim.Adam."""

    _kind = _ADAM

    def __init__(
        self, params, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, **more,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, **more)


class AdamW8bit(AdamW):
    """AdamW with moments of 8 bits and a scale for each 256 of them (Dettmers et al.,
    arXiv 2110.02861): 2 bytes of state a parameter."""

    _planes = (
        Plane("exp_avg", "byte_moment1", torch.int8),
        Plane("exp_avg_sq", "byte_moment2", torch.uint8),
        Plane("exp_avg_scale", "scale1", per=_BLOCK),
        Plane("exp_avg_sq_scale", "scale2", per=_BLOCK),
    )


class Lion(_Optimizer):
    """Lion by Chen et al., arXiv 2302.06675."""

    _kind, _planes = _LION, (Plane("exp_avg", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-4, betas: Tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0, **more,
    ):  # fmt: skip
        defaults = dict(lr=lr, betas=betas, weight_decay=weight_decay)
        super().__init__(params, defaults, **more)


class Adagrad(_Optimizer):
    """Adagrad by Duchi et al., as torch.optim.Adagrad without a decay of lr."""

    _kind, _planes = _ADAGRAD, (Plane("sum", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-2, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, **more,
    ):  # fmt: skip
        defaults = dict(
            lr=lr, weight_decay=weight_decay, eps=eps,
            initial_accumulator_value=initial_accumulator_value,
        )
        super().__init__(params, defaults, **more)

    def _first(self, name: str, p) -> float:
        return next(
            group["initial_accumulator_value"]
            for group in self.param_groups
            if any(p is other for other in group["params"])
        )


class SGD(_Optimizer):
    """Descent with momentum, as torch.optim.SGD without dampening."""

    _kind, _planes = _SGD, (Plane("momentum_buffer", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, **more,
    ):  # fmt: skip
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(params, defaults, **more)
