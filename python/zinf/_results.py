"""What calls give back: objects that are read well at a prompt and in a notebook."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union


class Step(NamedTuple):
    """One optimizer step."""

    step: int  # from 1
    steps: int  # of the whole training; 0: not known
    loss: float
    grad_norm: float
    lr: float
    seconds: float
    tokens: int
    skipped: bool  # overflow: no update was made

    @classmethod
    def of(cls, s) -> Step:
        return cls(s.step, s.steps, s.loss, s.grad_norm, s.lr, s.seconds, s.tokens, s.skipped)


@dataclass
class Measure:
    """An evaluation: the loss, of pairs what their rewards say, and a score for each metric."""

    loss: float
    tokens: int
    scores: Dict[str, float] = field(default_factory=dict)
    pairs: int = 0
    chosen: Optional[float] = None
    rejected: Optional[float] = None
    accuracy: Optional[float] = None
    kl: Optional[float] = None
    set: Optional[str] = None  # the name of the evaluation set, where it has one
    # the loss without that which balances experts
    cross_entropy: float = math.nan

    @classmethod
    def of(cls, s) -> Measure:
        scores = {s.scores[i].name.decode(): s.scores[i].value for i in range(s.n_scores)}
        found = cls(s.loss, s.tokens, scores, set=s.set.decode() if s.set else None)
        found.cross_entropy = s.cross_entropy
        if s.pairs:
            found.pairs, found.chosen, found.rejected = s.pairs, s.chosen, s.rejected
            found.accuracy, found.kl = s.accuracy, None if math.isnan(s.kl) else s.kl
        return found

    @property
    def perplexity(self) -> float:
        return math.exp(self.cross_entropy) if not self.cross_entropy > 700 else math.inf


def size_text(n: int) -> str:
    """Bytes as people read them.

    >>> size_text(5 << 29)
    '2.50 GiB'
    """
    unit, value = 0, float(n)
    while value >= 1024 and unit < 4:
        unit, value = unit + 1, value / 1024
    return f"{n} B" if not unit else f"{value:.2f} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"


@dataclass(repr=False)
class Plan:
    """What a training would take, before it begins. A budget of None is no limit."""

    params: int
    tokens: int  # of a step
    device_bytes: int
    host_bytes: int
    drive_bytes: int
    device_budget: Optional[int]
    host_budget: Optional[int]
    step_seconds: float
    flops: float  # of a step's forward and backward
    bottleneck: str
    schedule: str
    device: str

    @classmethod
    def of(cls, p) -> Plan:
        def budget(n: int) -> Optional[int]:
            return None if n == 2**64 - 1 else n

        return cls(
            p.params,
            p.tokens,
            p.device_bytes,
            p.host_bytes,
            p.drive_bytes,
            budget(p.device_budget),
            budget(p.host_budget),
            p.step_seconds,
            p.flops,
            p.bottleneck.decode(),
            p.schedule.decode(),
            p.device.decode(),
        )

    def _rows(self) -> List[Tuple[str, str]]:
        def of(taken: int, budget: Optional[int]) -> str:
            return size_text(taken) + (f" of {size_text(budget)}" if budget is not None else "")

        return [
            ("parameters", f"{self.params:,}"),
            ("device", f"{of(self.device_bytes, self.device_budget)}, {self.device}"),
            ("RAM", of(self.host_bytes, self.host_budget)),
            ("drive", size_text(self.drive_bytes)),
            ("step", f"{self.step_seconds:.3g} s, {self.tokens:,} tokens"),
            ("bottleneck", self.bottleneck),
            ("schedule", self.schedule),
        ]

    def __repr__(self) -> str:
        return "Plan:\n" + "\n".join(f"  {name:<11}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        cells = (f"<tr><th>{n}</th><td>{html.escape(t)}</td></tr>" for n, t in self._rows())
        return f"<table>{''.join(cells)}</table>"


class Answer(str):
    """A new text; a string, with what is known of how it was made."""

    prompt: str  # as the model read it
    whole: str  # prompt and new text; of chats and encoder-decoders the new text
    finish: str  # why it ended: "length", "context", "end" or "stop"
    ids: Tuple[int, ...]  # the new tokens
    prompt_tokens: int


def curve(points: Sequence[Tuple[float, float]], width: int = 480, height: int = 160) -> str:
    """A line through points, as SVG; what is no number is left out."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if len(points) < 2:
        return ""
    xs, ys = zip(*points)
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    wide, tall = max(right - left, 1e-12), max(high - low, 1e-12)
    line = " ".join(
        f"{44 + (x - left) / wide * (width - 52):.1f},{8 + (high - y) / tall * (height - 28):.1f}"
        for x, y in points
    )
    return (
        f'<svg width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg" '
        'font-family="sans-serif" font-size="11" fill="currentColor">'
        f'<text x="2" y="14">{high:.3g}</text><text x="2" y="{height - 20}">{low:.3g}</text>'
        f'<text x="44" y="{height - 4}">{left:g}</text>'
        f'<text x="{width - 8}" y="{height - 4}" text-anchor="end">{right:g}</text>'
        f'<polyline points="{line}" fill="none" stroke="#3b7dd8" stroke-width="1.5"/></svg>'
    )


@dataclass(repr=False)
class Run:
    """A training that has ended: its steps, its evaluations by step, and what it has written."""

    output: str
    steps: List[Step] = field(default_factory=list)
    # By step; of named sets each step has a dict of them by name.
    evaluations: Dict[int, Union[Measure, Dict[str, Measure]]] = field(default_factory=dict)
    checkpoints: Dict[int, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The folder of the model that it leaves, in Hugging Face's format."""
        return f"{self.output}/model"

    @property
    def loss(self) -> float:
        """Of the last step; NaN if there was none."""
        return self.steps[-1].loss if self.steps else math.nan

    def __repr__(self) -> str:
        if not self.steps:
            return f"Run({self.output!r}: no step)"
        first, last = self.steps[0], self.steps[-1]
        seconds = sum(step.seconds for step in self.steps)
        tokens = sum(step.tokens for step in self.steps)
        text = f"Run({self.output!r}: steps {first.step} to {last.step}"
        if last.steps:
            text += f" of {last.steps}"
        text += f", loss {first.loss:.4f} to {last.loss:.4f}, {seconds:.3g} s"
        if seconds > 0:
            text += f", {tokens / seconds:.4g} tokens/s"
        if self.evaluations:
            last = list(self.evaluations.values())[-1]
            sets = last if isinstance(last, dict) else {"evaluation": last}
            text += "".join(f"; {name} {measure.loss:.4f}" for name, measure in sets.items())
        return text + ")"

    def _repr_html_(self) -> str:
        picture = curve([(step.step, step.loss) for step in self.steps])
        return f"<p>{html.escape(repr(self))}</p>{picture}"
