"""Options as keywords, made of the library's own rows: nothing here names one but `lora`'s short
forms, so that an option that the library gets is a keyword at once.
"""

from __future__ import annotations

import inspect
import json
import os
import textwrap
from typing import Any, Dict, Iterable, List, Literal, NamedTuple, Optional, Sequence, Tuple, Union

from ._library import OptionError, OptionFacts, lib
from ._sentences import in_python, know


class Option(NamedTuple):
    """One option of the command: a keyword of `zinf.train`, `zinf.Trainer` and their like."""

    name: str  # the keyword: "seq_len"
    kind: str  # "flag", "text", "texts", "maybe", "word", "integer", "number" or "size"
    help: str
    value: Optional[str]  # what help calls the value; None for a flag
    usual: Optional[str]  # the default, as text
    otherwise: Optional[str]  # what decides without a value, in words
    words: Tuple[str, ...]  # what the value may be
    open: bool  # other words are good, too
    key: Optional[str]  # of the configuration
    aliases: Tuple[str, ...]  # other names that mean the same

    @property
    def annotation(self) -> Any:
        """The type of its values, for signatures."""
        words = Literal[self.words] if self.kind == "word" and not self.open else str
        path = Union[str, os.PathLike] if self.value in ("DIR", "FILE") else str
        return {
            "flag": bool,
            "text": path,
            "texts": Union[str, Sequence[str]],
            "maybe": Union[bool, str],
            "word": words,
            "integer": int,
            "number": float,
            "size": Union[int, str],
        }[self.kind]


def _text(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else value.decode()


def _words(i: int) -> Tuple[str, ...]:
    words: List[str] = []
    while True:
        word = lib.zinf_option_word(i, len(words))
        if word is None:
            return tuple(words)
        words.append(word.decode())


def _read_rows() -> List[Option]:
    rows: Dict[str, Option] = {}
    facts = OptionFacts()
    i = 0
    while lib.zinf_option_facts(i, facts) == 0:
        name = facts.name.decode().replace("-", "_")
        aliases = (_text(facts.aliases) or "").split()
        row = Option(
            name=name,
            kind=facts.kind.decode(),
            help=facts.help.decode(),
            value=_text(facts.value),
            usual=_text(facts.usual),
            otherwise=_text(facts.otherwise),
            words=_words(i),
            open=facts.open,
            key=_text(facts.key),
            aliases=tuple(a.split("=")[0] for a in aliases),
        )
        know(name, row.kind, row.words)
        # Two rows may have one name: of trainings, and of texts. The library takes both meanings.
        rows.setdefault(name, row)
        i += 1
    # Rows speak of each other, so all are known first.
    return [_in_python(row) for row in rows.values()]


def _in_python(row: Option) -> Option:
    return row._replace(
        help=in_python(row.help), otherwise=row.otherwise and in_python(row.otherwise)
    )


_rows = _read_rows()
_by_name = {name.replace("-", "_"): row for row in _rows for name in (row.name, *row.aliases)}


def options() -> List[Option]:
    """All options that calls take as keywords.

    >>> [option.otherwise for option in options() if option.name == "seq_len"]
    ['the context, or 1024']
    """
    return list(_rows)


# ---- values as texts ----


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset))


def text_of(row: Optional[Option], value: Any) -> str:
    """One value as the library reads it."""
    if value is True:
        return "" if row and row.kind == "maybe" else "true"
    if value is False:
        return "false"
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if _listed(value):
        return ",".join(text_of(row, v) for v in value)
    if isinstance(value, dict):
        return json.dumps(value)
    if row and row.kind == "size" and isinstance(value, int):
        return f"{value}B"
    text = str(value)
    return text[6:] if text.startswith("torch.") else text  # a dtype


def settings_of(keywords: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Names and texts of what was given; None is as if it were not."""
    settings = []
    for name, value in keywords.items():
        row = _by_name.get(name.replace("-", "_"))
        if value is None or (row and row.kind == "maybe" and value is False):
            continue
        several = row is not None and row.kind == "texts" and _listed(value)
        settings += [(name, text_of(row, v)) for v in (value if several else [value])]
    return settings


_LORA = {
    "r": "lora_rank",
    "rank": "lora_rank",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "targets": "lora_targets",
    "target_modules": "lora_targets",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
}


def lora_settings(lora: Union[int, Dict[str, Any]]) -> Dict[str, Any]:
    """Keywords of an adapter, from a rank or from a dict with PEFT's names."""
    if isinstance(lora, int):
        lora = {"r": lora}
    unknown = sorted(set(lora) - set(_LORA))
    if unknown:
        raise OptionError(
            f"lora: unknown key {unknown[0]!r}; use {', '.join(_LORA)}, "
            'or "adapter" of the configuration\'s "zinf"'
        )
    return {_LORA[key]: value for key, value in lora.items()}


# ---- signatures and docstrings ----


def signature(fixed: Iterable[inspect.Parameter], result: Any) -> inspect.Signature:
    """The parameters that a call has itself, and every option that none of them has the name of."""
    fixed = list(fixed)
    named = {p.name for p in fixed}
    keywords = [
        inspect.Parameter(
            row.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Optional[row.annotation],
        )
        for row in _rows
        if row.name not in named
    ]
    return inspect.Signature(fixed + keywords, return_annotation=result)


def _described(row: Option) -> str:
    default = row.usual if row.usual is not None else row.otherwise
    text = row.help + (f" (default: {default})" if default else "")
    return textwrap.fill(f"{row.name}: {text}", 96, initial_indent="    ", subsequent_indent="        ")


def takes_options(call):
    """A call with `**options` says in its signature and its docstring which there are."""
    own = inspect.signature(call)
    fixed = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    call.__signature__ = signature(fixed, own.return_annotation)
    named = {p.name for p in fixed}
    listed = [_described(row) for row in _rows if row.name not in named]
    call.__doc__ = "\n".join([inspect.cleandoc(call.__doc__ or ""), "", "Options:", *listed])
    return call
