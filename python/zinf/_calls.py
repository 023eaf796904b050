"""Calls that do one thing with a model, and those on checkpoints and adapters."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library as z
from ._interrupt import NotedInterrupt
from ._options import takes_options
from ._results import Answer, Measure, Plan, Run
from ._sentences import in_python
from ._trainer import Reader, Trainer

Path = Union[str, os.PathLike]


@takes_options
def train(
    model: Optional[Path] = None,
    data: Any = None,
    *,
    eval_data: Any = None,
    config: Union[Path, Dict, None] = None,
    lora: Union[int, Dict, None] = None,
    callbacks: Union[Callable, Sequence] = (),
    progress: Optional[bool] = None,
    **options: Any,
) -> Run:
    """Trains a model as `zinf train` does, to the same bits for the same options; see `Trainer` for
    what data, config, lora and callbacks may be.

    >>> losses = []
    >>> run = train(model, ({"text": f"row {i} of them, "} for i in range(99)), steps=2, seq_len=16,
    ...             device="host", output=output, overwrite=True, lora=dict(r=2),
    ...             config={"train_micro_batch_size_per_gpu": 2},
    ...             callbacks=lambda step: losses.append(step.loss))
    >>> len(losses), run.model == f"{output}/model"
    (2, True)
    """
    with Trainer(
        model,
        data,
        eval_data=eval_data,
        config=config,
        lora=lora,
        callbacks=callbacks,
        progress=progress,
        **options,
    ) as trainer:
        return trainer.train()


@takes_options
def plan(
    model: Path,
    *,
    config: Union[Path, Dict, None] = None,
    lora: Union[int, Dict, None] = None,
    **options: Any,
) -> Plan:
    """What a training would take, before it begins; needs no weights and no data.

    >>> plan(model, device="host", seq_len=16).params > 0
    True
    """
    with Reader(model, config=config, lora=lora, **options) as reader:
        return reader.plan()


@takes_options
def evaluate(
    model: Path, data: Any, *, config: Union[Path, Dict, None] = None, **options: Any
) -> Measure:
    """The loss of a model over data, and the scores of option metric.

    >>> evaluate(model, [{"text": "so it goes, "}] * 9, device="host", seq_len=16).tokens > 0
    True
    """
    with Reader(model, data, config=config, **options) as reader:
        return reader.evaluate()


@takes_options
def generate(
    model: Path,
    prompts: Union[str, Sequence[str]],
    *,
    stream: Optional[Callable[[bytes], Any]] = None,
    config: Union[Path, Dict, None] = None,
    **options: Any,
) -> Union[Answer, List[Answer]]:
    """Continues a prompt, or several at once.

    >>> answer = generate(model, "Once", max_new_tokens=4, temperature=0, device="host")
    >>> isinstance(answer, str), len(answer.ids), answer.finish
    (True, 4, 'length')
    """
    with Reader(model, config=config, **options) as reader:
        return reader.generate(prompts, stream=stream)


@takes_options
def embed(
    model: Path,
    texts: Union[str, Iterable, None] = None,
    *,
    data: Union[Path, Sequence[Path], None] = None,
    config: Union[Path, Dict, None] = None,
    **options: Any,
) -> Any:
    """Embeddings [texts][columns] of texts, or of the rows of the files data, as `zinf embed` makes
    them: fp32, an array of numpy's where that is installed, else a memoryview with the same
    indices. Of a single text its row alone. A model folder of sentence-transformers says how
    embeddings are made; options pooling, normalize and prompt_name say it otherwise.

    >>> rows = embed(model, ["so it goes", "another"], device="host", pooling="mean", seq_len=16)
    >>> [len(row) for row in rows.tolist()]
    [32, 32]
    """
    if (texts is None) == (data is None):
        raise z.OptionError("embed takes texts, or files as data: give one of them")
    single = isinstance(texts, str)
    rows: Any = data
    if texts is not None:
        rows = ({"text": t} if isinstance(t, str) else t for t in ([texts] if single else texts))
    with Reader(model, rows, config=config, **options) as reader:
        found = reader.embed()
    if not single:
        return found
    return found.tolist()[0] if isinstance(found, memoryview) else found[0]


# ---- checkpoints and adapters ----


def _call(call: Callable[..., int], *args: Any) -> None:
    with NotedInterrupt():
        z.check(call(*args))


class Checkpoint(NamedTuple):
    """A checkpoint in an output folder, its checksums verified."""

    folder: str
    step: int
    bytes: int
    latest: bool
    problem: Optional[str]  # None: it is complete and undamaged


def checkpoints(output: Path) -> List[Checkpoint]:
    """All checkpoints of a training's output folder, the oldest first."""
    found: List[Checkpoint] = []

    def see(_arg, info) -> None:
        i = info.contents
        problem = in_python(i.problem) if i.problem else None
        found.append(Checkpoint(os.fsdecode(i.folder), i.step, i.bytes, i.latest, problem))

    _call(z.lib.zinf_checkpoint_list, z.path_bytes(output), z.SEE_CHECKPOINT(see), None)
    return found


def _dtype(name: Any) -> int:
    out = ctypes.c_int(0)
    if name is not None:
        z.check(z.lib.zinf_dtype_parse(str(name).replace("torch.", "").encode(), byref(out)))
    return out.value


def _size(size: Union[int, str, None]) -> int:
    out = ctypes.c_uint64(size if isinstance(size, int) else 0)
    if isinstance(size, str):
        z.check(z.lib.zinf_size_parse(size.encode(), byref(out)))
    return out.value


def export(
    checkpoint: Path,
    output: Path,
    *,
    dtype: Any = None,
    merge: bool = False,
    model: Optional[Path] = None,
    max_shard_size: Union[int, str, None] = None,
) -> str:
    """Writes a model folder of a checkpoint's fp32 weights, or, with merge, of adapters and their
    base (model; without, as adapter_config.json names it). dtype None: as the training has them.
    The folder written.

    >>> run = train(model, ["a row of text, " * 9] * 8, steps=1, micro_batch=1, seq_len=16,
    ...             device="host", output=output, overwrite=True)
    >>> folder = export(run.output, output + "-exported", dtype="bf16")
    >>> evaluate(folder, ["a row of text, " * 9], seq_len=16, device="host").loss > 0
    True
    """
    if model is not None and not merge:
        raise z.OptionError("model is the base of adapters, with merge=True alone")
    shard = _size(max_shard_size)
    if merge:
        base = z.path_bytes(model) if model is not None else None
        _call(
            z.lib.zinf_adapter_merge,
            byref(
                z.MergeOptions(
                    z.path_bytes(checkpoint), base, z.path_bytes(output), _dtype(dtype),
                    dtype is None, shard,
                )
            ),
        )
    else:
        folder = z.path_bytes(checkpoint)
        _call(
            z.lib.zinf_checkpoint_export,
            byref(
                z.ExportOptions(folder, z.path_bytes(output), _dtype(dtype), dtype is None, shard)
            ),
        )
    return os.fspath(output)


def join_adapters(
    adapters: Union[Sequence[Path], Dict[Path, float]], output: Path
) -> str:
    """Joins adapters of one base, a dict says by which weights, into one that computes their sum."""
    pairs: List[Tuple[Path, float]] = (
        list(adapters.items()) if isinstance(adapters, dict) else [(a, 1.0) for a in adapters]
    )
    joined = (z.JoinedAdapter * len(pairs))(
        *(z.JoinedAdapter(z.path_bytes(folder), weight) for folder, weight in pairs)
    )
    _call(z.lib.zinf_adapter_join, joined, len(pairs), z.path_bytes(output))
    return os.fspath(output)
