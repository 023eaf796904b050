"""zinf: training of transformer language models that fit neither the GPU nor the RAM.

The package is a door to the library of the same name, by ctypes: nothing is compiled at run time,
and torch is not needed to train. Every option of the command ``zinf train`` is a keyword here, of
the same name with underscores, and gives the same bits:

>>> import zinf
>>> run = zinf.train(model, ["a row of text, " * 9] * 8, steps=2, micro_batch=2, seq_len=16,
...                  device="host", output=output, overwrite=True)
>>> [step.step for step in run.steps]
[1, 2]
>>> zinf.evaluate(run.model, ["a row of text, " * 9], seq_len=16, device="host").loss > 0
True

Errors are exceptions with the library's sentence (`zinf.Error`); what the library says beside them
goes to the logger "zinf" of `logging`.
"""

import sys

if sys.version_info < (3, 9):
    raise ImportError("zinf needs Python 3.9 or newer, and this is %d.%d" % sys.version_info[:2])

from . import aio
from ._calls import (
    Checkpoint,
    checkpoints,
    embed,
    evaluate,
    export,
    generate,
    join_adapters,
    plan,
    train,
)
from ._library import (
    Error,
    NotFoundError,
    OptionError,
    OutOfMemoryError,
    UnsupportedError,
    __version__,
)
from ._options import Option, options
from ._results import Answer, Measure, Plan, Run, Step
from ._trainer import Stop, Trainer

# They are torch's kind of optimizers, which alone needs torch: it is imported with the first.
_OPTIMIZERS = ("Adagrad", "Adam", "AdamW", "AdamW8bit", "Lion", "SGD")


def __getattr__(name: str):
    if name in _OPTIMIZERS:
        from . import _optim

        return getattr(_optim, name)
    raise AttributeError(f"module 'zinf' has no attribute {name!r}")


__all__ = [
    "Answer",
    "Checkpoint",
    "Error",
    "Measure",
    "NotFoundError",
    "Option",
    "OptionError",
    "OutOfMemoryError",
    "Plan",
    "Run",
    "Step",
    "Stop",
    "Trainer",
    "UnsupportedError",
    "__version__",
    "aio",
    "checkpoints",
    "embed",
    "evaluate",
    "export",
    "generate",
    "join_adapters",
    "options",
    "plan",
    "train",
]
