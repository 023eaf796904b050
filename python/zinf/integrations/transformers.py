"""transformers' Trainer, with this library's training.

``from zinf.integrations.transformers import Trainer`` in place of ``from transformers import
Trainer``: data sets, collators, samplers, callbacks, logs and TrainingArguments are as before; rows
reach the step in the same order. A field of TrainingArguments that has no counterpart is refused by
its name. Checkpoints are this library's.
"""

from __future__ import annotations

import transformers

from ._mixin import TrainsHere


class Trainer(TrainsHere, transformers.Trainer):
    __doc__ = TrainsHere.__doc__


__all__ = ["Trainer"]
