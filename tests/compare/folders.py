"""What the tools of this folder share: loading a Hugging Face folder without forgiving anything,
and reading the data files that `zinf` reads."""
import json
import logging
import pathlib
import warnings

import numpy as np
import torch
import transformers


class Collector(logging.Handler):
    """Keeps every message of WARNING and above."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage().strip())


def load_model(folder, dtype=torch.float32, attention="eager"):
    """The model of a folder, in evaluation mode, and a list of all that loading complained of.
    Falcon's ALiBi is added twice by eager attention: once to the scores, once with the mask."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    attention = "sdpa" if config.get("alibi") else attention
    collector = Collector()
    logger = logging.getLogger("transformers")
    logger.addHandler(collector)
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention, local_files_only=True,
            output_loading_info=True)
    logger.removeHandler(collector)
    problems = collector.messages + [str(w.message) for w in caught]
    problems += [f"{kind}: {sorted(map(str, names))}" for kind, names in info.items() if names]
    return model.eval(), problems


def read_tokens(path, folder):
    """Token ids of .npy, .bin (llm.c or raw uint16), or of text by the folder's tokenizer."""
    path = pathlib.Path(path)
    if path.suffix == ".npy":
        return np.load(path).astype(np.int64)
    raw = path.read_bytes()
    if path.suffix == ".bin":
        magic = int.from_bytes(raw[:4], "little")
        if magic in (20240520, 20240801):  # llm.c: 256 int32 of header
            dtype = np.uint16 if magic == 20240520 else np.uint32
            return np.frombuffer(raw, dtype, offset=1024).astype(np.int64)
        return np.frombuffer(raw, np.uint16).astype(np.int64)
    tokenizer = pathlib.Path(folder) / "tokenizer.json"
    if not tokenizer.exists():
        return np.frombuffer(raw, np.uint8).astype(np.int64)
    from tokenizers import Tokenizer
    encoded = Tokenizer.from_file(str(tokenizer)).encode(raw.decode(), add_special_tokens=False)
    return np.array(encoded.ids, np.int64)


def windows(ids, seq_len, first, count):
    """Inputs and targets of windows [first, first + count), wrapping to the first at the end."""
    n_windows = (len(ids) - 1) // seq_len
    if n_windows < 1:
        raise SystemExit(f"the data has {len(ids)} tokens, fewer than one window of {seq_len} + 1")
    starts = [(first + k) % n_windows * seq_len for k in range(count)]
    rows = torch.from_numpy(np.stack([ids[s:s + seq_len + 1] for s in starts]))
    return rows[:, :-1], rows[:, 1:]


def relative_l2(value, reference):
    """|value - reference| / |reference| in double. NaN stays NaN: pass only what is <= a bound."""
    value, reference = value.double(), reference.double()
    norm = float(reference.norm())
    return float((value - reference).norm()) / (norm if norm > 0 else 1.0)
