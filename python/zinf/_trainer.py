"""A session of the library as an object."""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import shutil
import tempfile
import threading
import weakref
from ctypes import byref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from . import _library as z
from ._interrupt import NotedInterrupt, SavedOnInterrupt
from ._options import lora_settings, settings_of, takes_options
from ._results import Answer, Measure, Plan, Run, Step
from ._rows import Source, files_or_rows, is_sized

_ROWS_OF_TRAINING, _ROWS_OF_EVALUATION = 0, 1
_NO_LOSS = -1  # a target that does not count


class Stop(Exception):
    """Raised by a callback: the training ends after this step, saved, without an error."""


# Sources that a thread of the library's still waits for: it must find them when it comes back.
_left: List[Source] = []


def _close(handle: ctypes.c_void_p, owner: int, folder: Optional[str], sources: List[Source]) -> None:
    # A process that was forked has none of the session's threads, and must not wait for them.
    if os.getpid() != owner:
        return
    z.lib.zinf_session_close(handle)
    _left.extend(source for source in sources if not source.is_done)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _bar(progress: Optional[bool], steps: int):
    """tqdm's, where it is installed and somebody looks; None: there is none."""
    if progress is False:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=steps or None, unit="step", disable=None if progress is None else False)


class _Watch:
    """Events of one training, told to its callbacks. Nothing may be raised through the library's
    frames: a failure is kept, and ends the training after the step."""

    def __init__(self, run: Run, callbacks: Sequence, cancel: Callable, progress: Optional[bool]):
        self.run, self.callbacks, self.cancel, self.progress = run, callbacks, cancel, progress
        self.failure: Optional[BaseException] = None
        self.bar = None
        self.struct = z.Events(
            stepped=z.STEPPED(self._stepped),
            evaluated=z.EVALUATED(self._evaluated),
            saved=z.SAVED(self._saved),
        )

    @contextlib.contextmanager
    def _kept(self):
        try:
            yield
        except BaseException as failure:
            self.failure = self.failure or failure
            self.cancel()

    def _tell(self, name: str, *args) -> None:
        for callback in self.callbacks:
            call = getattr(callback, name, None)
            if call is None and name == "on_step" and callable(callback):
                call = callback
            if call is not None:
                call(*args)

    def _stepped(self, _arg, found) -> None:
        with self._kept():
            step = Step.of(found.contents)
            if self.bar is None:
                self.bar = _bar(self.progress, step.steps) or False
            self.run.steps.append(step)
            if self.bar:
                self.bar.update(step.step - self.bar.n)
                self.bar.set_postfix(loss=f"{step.loss:.4f}", refresh=False)
            self._tell("on_step", step)

    def _evaluated(self, _arg, step: int, found) -> None:
        with self._kept():
            measure = Measure.of(found.contents)
            if measure.set is None:
                self.run.evaluations[step] = measure
            else:
                self.run.evaluations.setdefault(step, {})[measure.set] = measure
            self._tell("on_evaluation", step, measure)

    def _saved(self, _arg, step: int, folder: bytes) -> None:
        with self._kept():
            self.run.checkpoints[step] = os.fsdecode(folder)
            self._tell("on_checkpoint", step, os.fsdecode(folder))

    def close(self) -> None:
        if self.bar:
            self.bar.close()


def _flat(values: Any) -> Iterable[int]:
    for value in values:
        if hasattr(value, "__iter__"):
            yield from _flat(value)
        else:
            yield int(value)


def _ids(values: Any, count: Optional[int] = None) -> Tuple[int, Any, int]:
    """int32 numbers of lists, numpy or torch: their address, what holds them, how many."""
    if hasattr(values, "data_ptr"):
        held = values.detach().cpu().int().contiguous()
        address, n = held.data_ptr(), held.numel()
    elif hasattr(values, "__array_interface__"):
        import numpy

        held = numpy.ascontiguousarray(values, dtype=numpy.int32)
        address, n = held.ctypes.data, held.size
    else:
        held = array.array("i", _flat(values))
        address, n = held.buffer_info()[0], len(held)
    if count is not None and n != count:
        raise z.OptionError(f"{n} ids, but a step takes {count} (see Trainer.batch)")
    return address, held, n


def _next_tokens(ids: Sequence[int], tokens: int, shown: Sequence[int]) -> array.array:
    """Targets of causal models: the next of `shown` at each place, none at the last of a row."""
    last = tokens - 1
    return array.array(
        "i", (_NO_LOSS if i % tokens == last else shown[i + 1] for i in range(len(ids)))
    )


class Trainer:
    """A model with a configuration and data: trains as a whole or step by step, evaluates,
    continues texts, plans and saves. Nothing is opened before the first call that needs it.

    data and eval_data are files (as of the command, a pattern too), or any iterable of dicts, a
    row each; of a list of texts each is a row. Rows of a sequence are written to a file first and
    shuffled. Rows of anything without a length, such as a generator, are taken while `train` needs
    them, in their order or shuffled by shuffle_buffer: they may have no end, and steps says how
    long the training is (streaming=False: written to a file, too). A thread of the library's calls
    the iterable. data={"a.txt": 3, "b.txt": 1} mixes files by weight;
    eval_data={"a": "a.txt", "b": "b.txt"} are several sets, each evaluated by itself. config is the
    path of a configuration of DeepSpeed's kind, or a dict of one. lora=16 or lora={"r": 16, "lora_alpha": 32} trains adapters. Callbacks
    are called with each `Step`, or have any of on_step(step), on_evaluation(step, measure) and
    on_checkpoint(step, folder).

    >>> with Trainer(model, device="host", seq_len=16, micro_batch=1, lr=1e-3) as trainer:
    ...     samples, tokens = trainer.batch
    ...     first = trainer.step([[5, 6, 7, 8] * 4])
    ...     second = trainer.step([[5, 6, 7, 8] * 4])
    >>> (samples, tokens), second.loss < first.loss
    ((1, 16), True)
    """

    @takes_options
    def __init__(
        self,
        model: Union[str, os.PathLike, None] = None,
        data: Any = None,
        *,
        eval_data: Any = None,
        config: Union[str, os.PathLike, Dict, None] = None,
        lora: Union[int, Dict, None] = None,
        callbacks: Union[Callable, Sequence] = (),
        progress: Optional[bool] = None,
        **options: Any,
    ):
        files, self._data = files_or_rows(data)
        eval_files, self._eval_data = files_or_rows(eval_data)
        given = {"model": model, "data": files, "eval_data": eval_files, "config": config}
        if lora is not None:
            given.update(lora_settings(lora))
        given.update(options)
        self._source: Optional[Source] = None
        self._streams = self._decide_streaming(given)
        self._only_streams = self._streams and self._data is not None and eval_data is None
        rows = self._data is not None or self._eval_data is not None
        self._folder: Optional[str] = None  # rows of a caller who names none and does not train
        self._names_output = any(k.replace("-", "_") in ("output", "output_dir") for k in options)
        if rows and not self._names_output and not self._trains():
            self._folder = given["output"] = tempfile.mkdtemp(prefix="zinf-rows-")
        self.output = str(given.get("output") or given.get("output_dir") or "zinf-output")
        single = callable(callbacks) or not isinstance(callbacks, (list, tuple))
        self._callbacks: List = [callbacks] if single else list(callbacks)
        self._progress = progress
        self._lock = threading.Lock()
        self._open(settings_of(given))

    def _trains(self) -> bool:
        return True

    def _decide_streaming(self, given: Dict[str, Any]) -> bool:
        """Rows that cannot be counted are taken while the training needs them."""
        if given.get("streaming") is None and self._trains() and self._data is not None:
            given["streaming"] = not is_sized(self._data)
            names = {"steps", "max_steps", "max-steps"}
            if given["streaming"] and not any(given.get(name) is not None for name in names):
                raise z.OptionError(
                    f"data is {type(self._data).__name__}, whose rows cannot be counted: give "
                    "steps=N, or streaming=False, which writes all rows to a file first"
                )
        return bool(given.get("streaming"))

    def _open(self, settings: List[Tuple[str, str]]) -> None:
        pairs = (z.Setting * len(settings))(
            *(z.Setting(n.encode(), os.fsencode(t)) for n, t in settings)
        )
        handle = ctypes.c_void_p()
        self._sources: List[Source] = []  # that are streamed
        # Before the session is there: an interrupt behind its making would leave it to nobody.
        self._finalizer = weakref.finalize(
            self, _close, handle, os.getpid(), self._folder, self._sources
        )
        code = z.lib.zinf_session_open(byref(handle), pairs, len(settings))
        if code:
            failure = z.error(code)
            self._finalizer()
            raise failure
        self._handle: Optional[int] = handle.value

    # ---- lifetime ----

    def close(self) -> None:
        """Gives all memory and files back; a closed trainer takes no further calls."""
        with self._use():
            self._handle = None
            self._finalizer()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    @contextlib.contextmanager
    def _use(self):
        """The session, of which only one call may be at work."""
        with NotedInterrupt() as interrupt:
            if not self._lock.acquire(blocking=False):
                raise z.Error("this Trainer is at work: a call of it has not returned yet")
            try:
                if self._handle is None:
                    raise z.Error("this Trainer is closed")
                if self._finalizer.peek() and self._finalizer.peek()[2][1] != os.getpid():
                    raise z.Error("this Trainer belongs to the process that was forked: make another")
                self._interrupt = interrupt
                yield self._handle
            finally:
                self._lock.release()

    def _give_rows(self, handle: int, training: bool) -> None:
        if training and self._data is not None:
            rows, self._data = self._data, None
            self._source = Source(rows, os.path.join(self.output, "cache", "rows-state.json"))
            if self._streams:
                self._sources.append(self._source)
            z.check(self._source.give(z.lib.zinf_session_rows, handle, _ROWS_OF_TRAINING))
            if not self._streams:  # the library has them all
                self._source = None
        if self._eval_data is not None:
            rows, self._eval_data = self._eval_data, None
            z.check(Source(rows).give(z.lib.zinf_session_rows, handle, _ROWS_OF_EVALUATION))

    # ---- whole trainings ----

    def train(self) -> Run:
        """Trains as `zinf train` does, and writes to the folder of option output. Ctrl-C ends it
        after the step, saved, and raises KeyboardInterrupt; so does a callback's exception."""
        with self._use() as handle:
            run = Run(self.output)
            watch = _Watch(run, self._callbacks, self.cancel, self._progress)
            self._give_rows(handle, True)
            try:
                with SavedOnInterrupt(self.cancel) as interrupt:
                    self._interrupt.raise_heard()  # what came before there was somebody to save for
                    code = z.lib.zinf_session_train(handle, byref(watch.struct))
                    failure = z.error(code) if code else None
            finally:
                z.lib.zinf_session_uncancel(handle)  # what came behind the last step
            watch.close()
            if watch.failure is not None and not isinstance(watch.failure, Stop):
                raise watch.failure
            if interrupt.heard and (failure is None or failure.errno == errno.EINTR):
                raise KeyboardInterrupt
            if failure is not None and self._source and self._source.failure is not None:
                raise self._source.failure
            if failure is not None:
                raise failure
            if interrupt.heard:
                raise KeyboardInterrupt
            return run

    def cancel(self) -> None:
        """Makes `train` end after the current step, saved, also where its rows do not come. Any thread
        may call it; before `train` is called, that ends after its first step."""
        handle = self._handle
        if handle is not None:
            z.lib.zinf_session_cancel(handle)

    # ---- single steps ----

    @property
    def batch(self) -> Tuple[int, int]:
        """Samples and tokens of each that a step takes."""
        samples, tokens = ctypes.c_int64(), ctypes.c_int64()
        with self._use() as handle:
            z.check(z.lib.zinf_session_batch(handle, byref(samples), byref(tokens)))
        return samples.value, tokens.value

    def step(self, ids: Any, targets: Any = None) -> Step:
        """One optimizer step over ids [samples][tokens]: lists, numpy or torch. A target below 0 has
        no loss; without targets they are the next tokens. A dict with input_ids and labels has
        labels where the ids stand, as transformers does."""
        samples, tokens = self.batch
        labels = None
        if hasattr(ids, "keys"):
            ids, labels = ids["input_ids"], ids.get("labels")
        address, held, n = _ids(ids, samples * tokens)
        if targets is None:
            shown = list(_flat(labels if labels is not None else ids))
            if len(shown) != n:
                raise z.OptionError(f"{len(shown)} labels of {n} ids")
            targets = _next_tokens(shown, tokens, shown)
        target_address, target_held, _ = _ids(targets, samples * tokens)
        found = z.StepStruct()
        with self._use() as handle:
            z.check(z.lib.zinf_session_step(handle, address, target_address, byref(found)))
        del held, target_held
        return Step.of(found)

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        with self._use() as handle:
            return z.check(z.lib.zinf_session_vocabulary(handle))

    def logits(self, ids: Any):
        """The logits [vocabulary] of the token that follows ids: of numpy where that is installed,
        else of `array`."""
        out = array.array("f", bytes(4 * self.vocabulary))
        address, held, n = _ids(ids)
        to = (ctypes.c_float * len(out)).from_buffer(out)
        with self._use() as handle:
            z.check(z.lib.zinf_session_logits(handle, address, n, to))
        del held, to
        try:
            import numpy
        except ImportError:
            return out
        return numpy.frombuffer(out, dtype=numpy.float32)

    # ---- what a model can ----

    def evaluate(self) -> Union[Measure, Dict[str, Measure]]:
        """The loss, and option metric's scores, over eval_data, or else over data, of the weights
        after the steps made so far. Of named sets: each by its name."""
        found = z.MeasureStruct()
        if self._only_streams:
            raise z.OptionError(
                "evaluate has no eval_data, and the rows of data are taken while train needs them: "
                "give eval_data, or streaming=False, which writes all rows to a file first"
            )
        with self._use() as handle:
            self._give_rows(handle, True)
            z.check(z.lib.zinf_session_evaluate(handle, byref(found)))
            sets = [Measure.of(found)]
            while found.next:
                found = z.MeasureStruct.from_address(found.next)
                sets.append(Measure.of(found))
        return sets[0] if sets[0].set is None else {measure.set: measure for measure in sets}

    def generate(
        self,
        prompts: Union[str, Sequence[str]],
        *,
        stream: Optional[Callable[[bytes], Any]] = None,
    ) -> Union[Answer, List[Answer]]:
        """Continues one prompt, or several. An `Answer` is a string, the new text. stream is called
        with each piece of one prompt's text, as bytes, when it is there."""
        single = isinstance(prompts, str)
        texts = [p.encode("utf-8") for p in ([prompts] if single else prompts)]
        answers: List[Answer] = []
        failures: List[BaseException] = []

        def made(_arg, _number, found) -> None:
            try:
                answers.append(_answer(found.contents))
            except BaseException as failure:
                failures.append(failure)

        def grown(_arg, piece, n) -> None:
            try:
                stream(ctypes.string_at(piece, n))
            except BaseException as failure:
                failures.append(failure)

        events = z.TextEvents(made=z.MADE(made))
        if stream is not None:
            events.grown = z.GROWN(grown)
        with self._use() as handle:
            z.check(
                z.lib.zinf_session_texts(
                    handle, (ctypes.c_char_p * len(texts))(*texts), len(texts), byref(events), None
                )
            )
        if failures:
            raise failures[0]
        return answers[0] if single else answers

    def plan(self) -> Plan:
        """What a training would take: memory of each kind, the time of a step, what limits it."""
        found = z.PlanStruct()
        with self._use() as handle:
            z.check(z.lib.zinf_session_plan(handle, byref(found)))
        return Plan.of(found)

    def gradients(self, file: Union[str, os.PathLike]) -> Tuple[float, float]:
        """Writes the gradients of data's first batch, fp32 under Hugging Face's names, to a
        safetensors file. The loss, and the gradient's norm."""
        loss, norm = ctypes.c_double(), ctypes.c_double()
        with self._use() as handle:
            self._give_rows(handle, True)
            z.check(
                z.lib.zinf_session_gradients(handle, z.path_bytes(file), byref(loss), byref(norm))
            )
        return loss.value, norm.value

    def embed(self) -> Any:
        """Embeddings [rows][columns] of data's rows, fp32: an array of numpy's where that is
        installed, else a memoryview, which has the same indices."""
        found: Dict[str, Any] = {"room": ctypes.create_string_buffer(0), "columns": 0}

        def begin(_arg, n: int, columns: int) -> int:
            try:
                found.update(room=(ctypes.c_float * (n * columns))(), columns=columns)
                return 0
            except MemoryError:
                return -errno.ENOMEM

        def row(_arg, index: int, embedding, columns: int) -> int:
            at = ctypes.addressof(found["room"]) + index * columns * ctypes.sizeof(ctypes.c_float)
            ctypes.memmove(at, embedding, columns * ctypes.sizeof(ctypes.c_float))
            return -errno.EINTR if self._interrupt.heard else 0

        to = z.Embeddings(begin=z.BEGIN_EMBEDDINGS(begin), row=z.EMBEDDED(row))
        with self._use() as handle:
            self._give_rows(handle, True)
            z.check(z.lib.zinf_session_embed(handle, byref(to)))
        shape = [len(found["room"]) // found["columns"], found["columns"]]
        try:
            import numpy
        except ImportError:
            return memoryview(found["room"]).cast("B").cast("f", shape)
        return numpy.frombuffer(found["room"], dtype=numpy.float32).reshape(shape)

    def save(self, folder: Union[str, os.PathLike]) -> None:
        """Writes the weights after the steps made so far as a model folder of Hugging Face's
        format; adapters as PEFT's."""
        with self._use() as handle:
            z.check(z.lib.zinf_session_save(handle, z.path_bytes(folder)))


def _answer(found: z.AnswerStruct) -> Answer:
    def text(address, n: int) -> str:
        return ctypes.string_at(address, n).decode("utf-8", "replace") if n else ""

    answer = Answer(text(found.text, found.text_bytes))
    answer.prompt = text(found.prompt, found.prompt_bytes)
    answer.whole = text(found.whole, found.whole_bytes)
    answer.finish = found.finish.decode()
    answer.ids = tuple(found.ids[: found.n_ids])
    answer.prompt_tokens = found.prompt_tokens
    return answer


class Reader(Trainer):
    """A trainer that does not train: its rows lie in a folder that goes with it."""

    def _trains(self) -> bool:
        return False
