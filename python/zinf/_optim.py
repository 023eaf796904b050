"""torch.optim.Optimizer over the library's CPU optimizers: state in RAM, or on drives.

An update is one pass over memory, by all cores, in fp32; parameters in bf16 and fp16 have fp32
masters in the state. Parameters that lie on a GPU, or not in one piece, are brought to the CPU and
back. With state="nvme" the state lies in files below path, which go when the optimizer does: pieces
of it are read, updated and written at the same time, in buffers of a fixed size, and the bits are
those of state="ram".
"""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from . import _library as z
from .aio import QueueOptions, Request

_ALIGN = 4096  # of what is transferred
_LINE = 16  # elements at which a piece of a parameter begins: a cache line
_SLOTS = 3  # pieces at once: one is read, one updated, one written
_ALONE = 1 << 16  # elements that one thread updates faster than several
_BLOCK = 256  # elements of 8-bit moments that share a scale
_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_ADAMW, _ADAM, _LION, _ADAGRAD, _SGD = range(5)


# ---- structs of optim.h and aio.h ----


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


class _Plane(NamedTuple):
    """One array of a parameter's state: its name in a state_dict, the field of struct
    zinf_optim_array that it is, and how many elements have a value in common."""

    name: str
    field: str
    dtype: torch.dtype = torch.float32
    per: int = 1

    def count(self, n: int) -> int:
        return -(-n // self.per)


_MASTER = _Plane("master", "master")


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
        "zinf_cpu_count": (c_int, []),
        "zinf_optim_step": (c_int, [POINTER(_Hyper), POINTER(_Array), c_int]),
        "zinf_store_create": (c_int, [POINTER(c_void_p), POINTER(_StoreOptions)]),
        "zinf_store_destroy": (None, [c_void_p]),
        "zinf_store_add_extent": (c_int, [c_void_p, c_uint64, POINTER(c_uint32)]),
        "zinf_store_allocate": (c_int, [c_void_p]),
    }
)
_threads = _lib.zinf_cpu_count()


# ---- state on drives ----


class _Piece:
    """Parts of parameters whose state is transferred as one: (parameter, its first element, how
    many, where in the piece)."""

    def __init__(self, extent: int):
        self.extent, self.parts, self.elems, self.is_fresh = extent, [], 0, True


def _destroy(owner: int, queue: int, store: int) -> None:
    if os.getpid() == owner:
        _lib.zinf_aio_queue_destroy(queue)
        _lib.zinf_store_destroy(store)


class _Drive:
    """State of all parameters in one store, in pieces of at most `elems` elements; of each element
    the planes, one behind the other."""

    def __init__(self, paths: Sequence[bytes], params, planes: Sequence[_Plane], buffer_bytes: int):
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
        self.pieces: List[_Piece] = []
        for p in params:
            self._add(p)
        z.check(_lib.zinf_store_allocate(self._store))

    def _open(self, paths: Sequence[bytes]) -> None:
        names = (c_char_p * len(paths))(*paths)
        store, queue = c_void_p(), c_void_p()
        options = _StoreOptions(paths=names, n_paths=len(paths), label=b"optim")
        z.check(_lib.zinf_store_create(byref(store), byref(options)))
        code = _lib.zinf_aio_queue_create(byref(queue), byref(QueueOptions()))
        if code:
            failure = z.error(code)
            _lib.zinf_store_destroy(store)
            raise failure
        self._store, self._queue = store, queue
        weakref.finalize(self, _destroy, os.getpid(), queue.value, store.value)

    def _add(self, p) -> None:
        at, n = 0, p.numel()
        while at < n:
            piece = self.pieces[-1] if self.pieces else None
            if piece is None or piece.elems + self.line > self.elems:
                extent = c_uint32()
                z.check(_lib.zinf_store_add_extent(self._store, self.bytes, byref(extent)))
                piece = _Piece(extent.value)
                self.pieces.append(piece)
            take = min(n - at, self.elems - piece.elems)
            piece.parts.append((p, at, take, piece.elems))
            piece.elems += -(-take // self.line) * self.line
            at += take

    def _begin(self, op: int, piece: _Piece, slot) -> Any:
        request = Request(
            op=op, store=self._store.value, extent=piece.extent, bytes=self.bytes, memory=slot[0].data_ptr()
        )
        z.check(_lib.zinf_aio_submit(self._queue, byref(request)))
        return request

    def _end(self, request, done: set) -> None:
        """Waits for one request; others that end meanwhile are noted in done."""
        address = ctypes.addressof(request)
        while address not in done:
            found = _lib.zinf_aio_reap(self._queue, 2**64 - 1)
            if not found:
                raise z.Error("a transfer of optimizer state was lost")
            done.add(found)
        done.discard(address)
        if request.result < 0:
            message = c_char_p()
            _lib.zinf_aio_queue_error(self._queue, byref(message))
            failure = z.Error((message.value or b"").decode("utf-8", "replace"))
            failure.errno = -request.result
            raise failure

    def visit(self, update, begin, writes: bool = True) -> None:
        """Calls update(piece, slot) for all pieces in order, with the next one being read and the
        last one being written. begin(piece, slot) fills what was never written."""
        reads: Dict[int, Any] = {}
        pending: Dict[int, Any] = {}
        done: set = set()

        def fetch(i: int) -> None:
            if i >= len(self.pieces):
                return
            if i - _SLOTS in pending:
                self._end(pending.pop(i - _SLOTS), done)
            if not self.pieces[i].is_fresh:
                reads[i] = self._begin(_READ, self.pieces[i], self.slots[i % _SLOTS])

        try:
            fetch(0)
            for i, piece in enumerate(self.pieces):
                fetch(i + 1)
                slot = self.slots[i % _SLOTS]
                if i in reads:
                    self._end(reads.pop(i), done)
                else:
                    begin(piece, slot)
                update(piece, slot)
                if writes:
                    pending[i] = self._begin(_WRITE, piece, slot)
                    piece.is_fresh = False
        finally:
            for request in [*reads.values(), *pending.values()]:
                self._end(request, done)


# ---- the optimizers ----


class _Optimizer(torch.optim.Optimizer):
    _kind: int
    _planes: Tuple[_Plane, ...]  # of the moments, by the names that torch has for them

    def __init__(self, params, defaults, state: str, path, buffer_bytes: int):
        if state not in ("ram", "nvme"):
            raise z.OptionError(f'state is {state!r}: use "ram", or "nvme" with path')
        if state == "nvme" and not path:
            raise z.OptionError('state="nvme" needs path: a folder on the drive, or a list of them')
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path or ())
        self._paths = [z.path_bytes(p) for p in paths] if state == "nvme" else []
        self._buffer_bytes = buffer_bytes
        self._drive: Optional[_Drive] = None
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self._check(p)

    @staticmethod
    def _check(p) -> None:
        if p.dtype not in _DTYPES:
            raise z.UnsupportedError(f"a parameter is of {p.dtype}: fp32, bf16 and fp16 are updated")

    def _hyper(self, group: Dict[str, Any], step: int) -> _Hyper:
        beta1, beta2 = group.get("betas", (group.get("momentum", 0.0), 0.0))
        return _Hyper(
            self._kind, float(group["lr"]), beta1, beta2, group.get("eps", 1e-8),
            group["weight_decay"], group.get("bias_correction", True), step,
        )

    def _held(self, p) -> Tuple[_Plane, ...]:
        """The state of a parameter; its master is itself where it is in fp32."""
        return self._planes if p.dtype == torch.float32 else (*self._planes, _MASTER)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._check(p)
                    if p.grad.is_sparse:
                        raise z.UnsupportedError("a gradient is sparse: dense ones are updated")
                    state = self.state[p]
                    state["step"] = state.get("step", torch.tensor(0.0)) + 1
                    work[p] = self._hyper(group, int(state["step"]))
        if self._paths:
            self._step_on_drive(work)
        else:
            for p, hyper in work.items():
                self._update(p, hyper, 0, p.numel(), self._arrays(p))
        return loss

    def _arrays(self, p) -> List[torch.Tensor]:
        """State in RAM, by planes."""
        state = self.state[p]
        for plane in self._held(p):
            if plane.name in state:
                continue
            if plane is _MASTER:
                state["master"] = p.detach().to("cpu", torch.float32, copy=True).contiguous()
            else:
                shape = p.shape if plane.per == 1 else (plane.count(p.numel()),)
                state[plane.name] = torch.full(shape, self._first(plane.name, p), dtype=plane.dtype)
        return [state[plane.name].view(-1) for plane in self._held(p)]

    def _parts(self, p, slot, at: int, n: int) -> List[torch.Tensor]:
        """Of each plane's array what elements at .. at + n have."""
        return [
            part[at // plane.per : at // plane.per + plane.count(n)]
            for part, plane in zip(slot, self._held(p))
        ]

    def _first(self, name: str, p) -> float:
        return 0.0

    def _step_on_drive(self, work: Dict[Any, _Hyper]) -> None:
        def update(piece, slot) -> None:
            for p, at, count, to in piece.parts:
                if p in work:
                    self._update(p, work[p], at, count, self._parts(p, slot, to, count))

        self._opened_drive().visit(update, self._begin_piece)

    def _begin_piece(self, piece: _Piece, slot) -> None:
        for part in slot:
            part.zero_()
        for p, at, n, to in piece.parts:
            for part, plane in zip(self._parts(p, slot, to, n), self._held(p)):
                if plane is _MASTER:
                    part.copy_(p.detach().reshape(-1)[at : at + n])
                else:
                    part.fill_(self._first(plane.name, p))

    def _opened_drive(self) -> _Drive:
        if self._drive is None:
            params = [p for group in self.param_groups for p in group["params"]]
            # The master is the last plane, also beside parameters that have none.
            planes = max((self._held(p) for p in params), key=len)
            self._drive = _Drive(self._paths, params, planes, self._buffer_bytes)
        return self._drive

    def _update(self, p, hyper: _Hyper, at: int, n: int, arrays: List[torch.Tensor]) -> None:
        """Elements at .. at + n of p, whose state the arrays are."""
        grad = p.grad.detach()
        here = p.is_cpu and p.is_contiguous()
        flat = p.detach().view(-1)[at : at + n] if here else None
        out = flat if here else p.detach().reshape(-1)[at : at + n].to("cpu", copy=True)
        given = grad.reshape(-1)[at : at + n].to("cpu").contiguous()
        if given.dtype not in _DTYPES:
            given = given.float()
        array = _Array(
            n=n,
            master=out.data_ptr(),
            grad=given.data_ptr(),
            grad_dtype=_DTYPES[given.dtype],
            grad_scale=1.0,
            param=out.data_ptr() if _MASTER in self._held(p) else None,
            param_dtype=_DTYPES[p.dtype],
        )
        for part, plane in zip(arrays, self._held(p)):
            setattr(array, plane.field, part.data_ptr())
        z.check(_lib.zinf_optim_step(byref(hyper), byref(array), 1 if n < _ALONE else _threads))
        if not here:
            whole = p.detach().reshape(-1)
            whole[at : at + n] = out.to(p.device)
            if whole.data_ptr() != p.data_ptr():
                p.detach().copy_(whole.view(p.shape))

    # ---- saving and loading ----

    def state_dict(self) -> Dict[str, Any]:
        """As torch's: state on drives is read into RAM for it."""
        if self._drive is None:
            return super().state_dict()
        kept = {p: dict(state) for p, state in self.state.items()}
        try:
            for p in kept:
                for plane in self._held(p):
                    shape = p.shape if plane.per == 1 else (plane.count(p.numel()),)
                    self.state[p][plane.name] = torch.empty(shape, dtype=plane.dtype)
            moves = lambda piece, slot: self._move(piece, slot, False)  # noqa: E731
            self._drive.visit(moves, self._begin_piece, writes=False)
            return super().state_dict()
        finally:
            for p, state in kept.items():
                self.state[p] = state

    def _move(self, piece: _Piece, slot, to_drive: bool) -> None:
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
                state[plane.name] = value.detach().to("cpu", plane.dtype, copy=True).contiguous()
        if self._paths:
            self._drive = None
            moves = lambda piece, slot: self._move(piece, slot, True)  # noqa: E731
            self._opened_drive().visit(moves, self._begin_piece)
            for p in params:
                step = self.state[p].get("step") if p in self.state else None
                if step is not None:
                    self.state[p] = {"step": step}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Allowed before the first step, where state is on drives."""
        if getattr(self, "_drive", None) is not None:
            raise z.OptionError("parameters were added after the drives were filled: make the "
                                "optimizer anew, and load its state_dict")
        super().add_param_group(param_group)


Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]], None]


class AdamW(_Optimizer):
    """AdamW by Loshchilov and Hutter, as torch.optim.AdamW. state: "ram", or "nvme", in files below
    path, one folder or several; buffer_bytes: RAM for it then.

    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> optimizer = AdamW([weight], lr=0.5, weight_decay=0)
    >>> weight.sum().backward(); optimizer.step()
    >>> weight
    Parameter containing:
    tensor([0.5000, 0.5000, 0.5000], requires_grad=True)
    """

    _kind = _ADAMW
    _planes = (_Plane("exp_avg", "moment1"), _Plane("exp_avg_sq", "moment2"))

    def __init__(
        self, params, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, *, bias_correction: bool = True,
        state: str = "ram", path: Paths = None, buffer_bytes: int = 192 << 20,
    ):
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction
        )
        super().__init__(params, defaults, state, path, buffer_bytes)


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
        _Plane("exp_avg", "byte_moment1", torch.int8),
        _Plane("exp_avg_sq", "byte_moment2", torch.uint8),
        _Plane("exp_avg_scale", "scale1", per=_BLOCK),
        _Plane("exp_avg_sq_scale", "scale2", per=_BLOCK),
    )


class Lion(_Optimizer):
    """Lion by Chen et al., arXiv 2302.06675."""

    _kind, _planes = _LION, (_Plane("exp_avg", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-4, betas: Tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0, *, state: str = "ram", path: Paths = None,
        buffer_bytes: int = 192 << 20,
    ):
        defaults = dict(lr=lr, betas=betas, weight_decay=weight_decay)
        super().__init__(params, defaults, state, path, buffer_bytes)


class Adagrad(_Optimizer):
    """Adagrad by Duchi et al., as torch.optim.Adagrad without a decay of lr."""

    _kind, _planes = _ADAGRAD, (_Plane("sum", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-2, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, state: str = "ram",
        path: Paths = None, buffer_bytes: int = 192 << 20,
    ):
        defaults = dict(
            lr=lr, weight_decay=weight_decay, eps=eps,
            initial_accumulator_value=initial_accumulator_value,
        )
        super().__init__(params, defaults, state, path, buffer_bytes)

    def _first(self, name: str, p) -> float:
        return next(
            group["initial_accumulator_value"]
            for group in self.param_groups
            if any(p is other for other in group["params"])
        )


class SGD(_Optimizer):
    """Descent with momentum, as torch.optim.SGD without dampening."""

    _kind, _planes = _SGD, (_Plane("momentum_buffer", "moment1"),)

    def __init__(
        self, params, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, *,
        state: str = "ram", path: Paths = None, buffer_bytes: int = 192 << 20,
    ):
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(params, defaults, state, path, buffer_bytes)
