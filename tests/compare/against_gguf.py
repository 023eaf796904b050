#!/usr/bin/env python3
"""Compares `zinf export --gguf` with what llama.cpp's own converter makes of the same model folders:
every tensor byte for byte, and every key that says something of the model or its tokenizer.

Usage: against_gguf.py LLAMA_CPP ZINF FOLDER     (needs torch, transformers, gguf, sentencepiece)

LLAMA_CPP is its source tree, ZINF the program, FOLDER an empty one for the models.
"""
import json
import pathlib
import subprocess
import sys

import torch
import transformers

TEXT = ["line %d of a text that is long enough for some merges, isn't it?" % i for i in range(200)]


def byte_tokenizer(folder, pattern):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers, processors
    tok = Tokenizer(models.BPE())
    if pattern:
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=350, special_tokens=["<|begin|>", "<|end|>", "<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_tokens(["<tool>"])
    tok.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", 0)]) \
        if pattern else processors.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<|begin|>",
                                                eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)


def piece_tokenizer(folder, prefix):
    import io
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=330, model_type="bpe",
        byte_fallback=True, minloglevel=2, add_dummy_prefix=prefix, pad_id=3,
        normalization_rule_name="identity")
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
        "add_eos_token": False, "tokenizer_class": "LlamaTokenizer",
        "added_tokens_decoder": {"330": {"content": "<start_of_turn>", "special": True}}}))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
FORMS = ("f32", "f16", "bf16", "q8_0")
COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, vocab_size=352, max_position_embeddings=256, bos_token_id=1,
              eos_token_id=2)
CASES = {
    "llama": (dict(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                                    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 64}), LLAMA3, "llama-bpe"),
    "mistral": (dict(sliding_window=None, head_dim=16), None, None),
    "qwen2": (dict(tie_word_embeddings=True), QWEN2, "qwen2"),
    "qwen3": (dict(head_dim=32), QWEN2, "qwen2"),
    "phi3": (dict(pad_token_id=3, num_key_value_heads=4), None, None),
    "gemma": (dict(head_dim=16), None, None),
    "gemma2": (dict(head_dim=16, sliding_window=32), None, None),
    "gpt2": (dict(n_embd=64, n_layer=2, n_head=4, n_positions=256, n_ctx=256), "", "gpt-2"),
}


def make(name, folder):
    settings, pattern, _ = CASES[name]
    folder.mkdir(parents=True)
    config = transformers.AutoConfig.for_model(name, **({**COMMON, **settings} if name != "gpt2" else
                                                        {**settings, "vocab_size": 352}))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.3)
    model.save_pretrained(folder)
    if pattern is None:
        piece_tokenizer(folder, not name.startswith("gemma"))
    else:
        byte_tokenizer(folder, pattern)


def convert(llama_cpp, name, folder, form, output):
    """llama.cpp's converter, told which way text is cut: it knows that by a sum of known models."""
    code = ("import sys, conversion.base as b, conversion.llama\n"
            "b.TextModel.get_vocab_base_pre = lambda self, t: %r\n"
            "import runpy; sys.argv = ['c', %r, '--outtype', %r, '--outfile', %r]\n"
            "runpy.run_path('convert_hf_to_gguf.py', run_name='__main__')\n"
            % (CASES[name][2], str(folder), form, str(output)))
    done = subprocess.run([sys.executable, "-c", code], cwd=llama_cpp, capture_output=True, text=True,
                          env={**__import__("os").environ, "PYTHONPATH": str(llama_cpp)})
    if done.returncode:
        print(done.stderr[-2000:])
    return not done.returncode


# What tells of a file's making and not of the model.
DESCRIBING = ("general.name", "general.size_label", "general.basename", "general.finetune",
              "general.sampling", "GGUF.", "general.version", "general.organization")


def compare(ours, theirs):
    from gguf import GGUFReader
    a, b = GGUFReader(ours), GGUFReader(theirs)
    bad = 0
    for key in sorted(set(a.fields) | set(b.fields)):
        if key.startswith(DESCRIBING):
            continue
        x = a.fields[key].contents() if key in a.fields else None
        y = b.fields[key].contents() if key in b.fields else None
        same_type = key in a.fields and key in b.fields and a.fields[key].types == b.fields[key].types
        if x != y or not same_type:
            bad += 1
            print("  ", key, str(x)[:90], "|", str(y)[:90])
    x = {t.name: t for t in a.tensors}
    y = {t.name: t for t in b.tensors}
    for name in sorted(set(x) | set(y)):
        if name not in x or name not in y:
            print("  ", name, "ours" if name in x else "theirs", "alone")
            bad += 1
        elif (x[name].tensor_type != y[name].tensor_type or list(x[name].shape) != list(y[name].shape)
              or x[name].data.tobytes() != y[name].data.tobytes()):
            print("  ", name, x[name].tensor_type, y[name].tensor_type, x[name].shape, y[name].shape)
            bad += 1
    return bad


def main():
    llama_cpp, zinf, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    transformers.logging.set_verbosity_error()
    failures = 0
    for name in sys.argv[4:] or CASES:
        if not (folder / name).exists():
            make(name, folder / name)
        for form in FORMS:
            ours, theirs = folder / f"{name}-{form}.gguf", folder / f"{name}-{form}-theirs.gguf"
            ours.unlink(missing_ok=True)
            done = subprocess.run([zinf, "export", "--checkpoint", folder / name, "--gguf", form,
                                   "--output", ours])
            if done.returncode or not convert(llama_cpp, name, folder / name, form, theirs):
                failures += 1
                continue
            bad = compare(ours, theirs)
            failures += bad > 0
            print(name, form, "differs in %d places" % bad if bad else "equal", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
