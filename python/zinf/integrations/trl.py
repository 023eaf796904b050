"""TRL's SFTTrainer, DPOTrainer and KTOTrainer, with this library's training.

``from zinf.integrations.trl import SFTTrainer`` in place of ``from trl import SFTTrainer``: TRL
tokenises the rows, and masks what has no loss. For DPO and KTO this library does so as TRL does,
and needs no second model: the reference is the model as it begins. A field of a configuration
that has no counterpart is refused by its name: packing is ``options=dict(pack=True)``.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

import transformers
import trl

from .._library import UnsupportedError
from ._mixin import TrainsHere, without_weights

_CUTS = {"keep_start": "end", "keep_end": "beginning"}


class SFTTrainer(TrainsHere, trl.SFTTrainer):
    __doc__ = TrainsHere.__doc__


def _rows(rows: Any) -> Any:
    """In place of a collator: the library reads rows as they are."""
    return rows


class _PreferenceTrainer(TrainsHere, transformers.Trainer):
    _losses: Dict[str, str]  # names of TRL's, and of zinf's
    _config: Any
    _taken = (
        "beta", "disable_dropout", "label_smoothing", "loss_type", "max_length",
        "precompute_ref_batch_size", "precompute_ref_log_probs", "truncation_mode",
    )  # fmt: skip

    def __init__(
        self, model: Any = None, ref_model: Any = None, args: Any = None, *, peft_config: Any = None,
        options: Optional[Dict] = None, **more: Any,
    ):  # fmt: skip
        args = args or self._config("zinf-output")
        if ref_model is not None:
            raise UnsupportedError("ref_model: the reference is the model as it begins; leave it out")
        losses = [args.loss_type] if isinstance(args.loss_type, str) else list(args.loss_type)
        if len(losses) != 1 or losses[0] not in self._losses:
            raise UnsupportedError(
                f"{type(args).__name__}: loss_type={losses} is none of {', '.join(self._losses)}"
            )
        own = {
            "task": "preference",
            "preference": self._losses[losses[0]],
            "beta": args.beta,
            "label_smoothing": getattr(args, "label_smoothing", 0) or None,
            "seq_len": args.max_length,
            "truncate": _CUTS[getattr(args, "truncation_mode", "keep_start")],
            "dropout": 0 if args.disable_dropout else None,
        }
        args.remove_unused_columns = False
        more.setdefault("data_collator", _rows)
        if peft_config is not None:
            from peft import get_peft_model

            transformers.set_seed(args.seed)
            if isinstance(model, (str, os.PathLike)):
                model = without_weights(os.fspath(model))
            model = get_peft_model(model, peft_config)
        super().__init__(model, args, options={**own, **(options or {})}, **more)


class DPOTrainer(_PreferenceTrainer):
    __doc__ = TrainsHere.__doc__
    _losses = {"sigmoid": "dpo", "ipo": "ipo"}
    _config = trl.DPOConfig


class KTOTrainer(_PreferenceTrainer):
    __doc__ = TrainsHere.__doc__
    _losses = {"kto": "kto"}
    _config = trl.KTOConfig


__all__ = ["DPOTrainer", "KTOTrainer", "SFTTrainer"]
