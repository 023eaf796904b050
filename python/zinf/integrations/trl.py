"""TRL's SFTTrainer, with this library's training.

``from zinf.integrations.trl import SFTTrainer`` in place of ``from trl import SFTTrainer``: TRL
tokenises the rows, and masks what has no loss. A field of SFTConfig that has no counterpart is
refused by its name: packing is ``options=dict(pack=True)``.
"""

from __future__ import annotations

import trl

from ._mixin import TrainsHere


class SFTTrainer(TrainsHere, trl.SFTTrainer):
    __doc__ = TrainsHere.__doc__


__all__ = ["SFTTrainer"]
