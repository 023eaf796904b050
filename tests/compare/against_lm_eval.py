"""Multiple choice against lm-evaluation-harness: python against_lm_eval.py BUILD [FAMILY...]

Makes three small models with random weights (GPT-2, LLaMA, T5 with tokenizers of the fixtures),
500 questions in the forms of MMLU, ARC and HellaSwag, and compares what `zinf eval --task
multiple-choice` says with the harness: each choice's log-probability to 1e-4, accuracies exactly,
standard errors to 1e-9. Of an encoder-decoder the harness takes one text at a time: what it
says of padded batches differs from what transformers says of each. Needs torch, transformers, datasets and lm_eval.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  TQDM_DISABLE="1")
import lm_eval  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.api.task import ConfigurableTask  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks.hellaswag.utils import process_docs  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = os.path.join(HERE, "..", "fixtures", "tokenizer_kinds")
WORDS = ("the river runs past an old mill and nobody knows who built it; café, naïve, Größe, 雨, "
         "seven numbers 12 and 345 were left on a table by her uncle in March [title] [step] why "
         "does heat move from warm to cold?  Energy law cell king tax").split(" ")
SUBJECTS = ["abstract_algebra", "anatomy", "formal_logic", "virology", "econometrics"]


def text(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def mmlu(rng, subject):
    return {"question": text(rng, 5, 25), "subject": subject,
            "choices": [text(rng, 1, 6) for _ in range(4)], "answer": rng.randrange(4)}


def arc(rng):
    n = rng.choice([3, 4, 5])
    labels = rng.choice(["ABCDE", "12345"])[:n]
    return {"question": text(rng, 5, 25), "answerKey": rng.choice(labels),
            "choices": {"text": [text(rng, 1, 8) for _ in range(n)], "label": list(labels)}}


def hellaswag(rng):
    return {"ctx_a": text(rng, 5, 25), "ctx_b": text(rng, 1, 4), "activity_label": text(rng, 1, 3),
            "ctx": "unused", "endings": [text(rng, 3, 12) for _ in range(4)],
            "label": str(rng.randrange(4))}


def write(path, rows):
    with open(path, "w") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def make_model(folder, family):
    torch.manual_seed(7)
    kind = {"gpt2": "neox", "llama": "llama3", "t5": "t5"}[family]
    os.mkdir(folder)
    shutil.copy(os.path.join(KINDS, kind + ".json"), os.path.join(folder, "tokenizer.json"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"))
    vocab = max(tokenizer.get_vocab().values()) + 1
    last = vocab - 1
    word = tokenizer.convert_ids_to_tokens(last)
    tokenizer.eos_token = tokenizer.pad_token = word
    tokenizer.save_pretrained(folder)
    small = dict(vocab_size=vocab, bos_token_id=last, eos_token_id=last, pad_token_id=last)
    if family == "gpt2":
        config = transformers.GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=640, **small)
        model = transformers.GPT2LMHeadModel(config)
    elif family == "llama":
        config = transformers.LlamaConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=192, **small)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                                       decoder_start_token_id=last, **small)
        model = transformers.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 if family == "t5" else 3)  # more than rounding apart
    model.eval().save_pretrained(folder)
    return model, tokenizer


def task_of(name, folder, shots):
    files = {"test": os.path.join(folder, name + ".jsonl")}
    config = {"task": name, "dataset_path": "json", "test_split": "test",
              "output_type": "multiple_choice", "num_fewshot": shots,
              "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True}
                              for m in ("acc", "acc_norm", "acc_bytes")]}
    if name == "arc":
        config.update(doc_to_text="Question: {{question}}\nAnswer:",
                      doc_to_choice="{{choices.text}}",
                      doc_to_target="{{choices.label.index(answerKey)}}")
    elif name == "hellaswag":
        config.update(doc_to_text="{{query}}", doc_to_choice="choices", doc_to_target="{{label}}",
                      process_docs=process_docs)
    else:
        subject = name[len("mmlu_"):]
        config.update(doc_to_choice=["A", "B", "C", "D"], doc_to_target="answer",
                      description="The following are multiple choice questions (with answers) "
                                  f"about {subject.replace('_', ' ')}.\n\n",
                      doc_to_text="{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\n"
                                  "C. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:")
        if shots:
            files["dev"] = os.path.join(folder, name + "_dev.jsonl")
            config.update(fewshot_split="dev", fewshot_config={"sampler": "first_n"})
    config["dataset_kwargs"] = {"data_files": files}
    return ConfigurableTask(config=config)


def harness(model, tokenizer, folder, names, shots):
    backend = "seq2seq" if model.config.is_encoder_decoder else "causal"
    lm = HFLM(pretrained=model, tokenizer=tokenizer, backend=backend, batch_size=1 if backend == "seq2seq" else 8,
              max_length=getattr(model.config, "max_position_embeddings", None) or 2048)
    out = lm_eval.simple_evaluate(model=lm, tasks=[task_of(n, folder, shots) for n in names],
                                  log_samples=True, bootstrap_iters=0, verbosity="ERROR")
    return out


def zinf(build, model, folder, data, options):
    output, lines = os.path.join(folder, "results.json"), os.path.join(folder, "lines.jsonl")
    command = [os.path.join(build, "zinf"), "eval", "--model", model, "--task", "multiple-choice",
               "--data", data, "--threads", "2", "--dtype", "fp32", "--micro-batch", "8",
               "--predictions", lines, "--output", output] + options
    subprocess.run(command, check=True, capture_output=True)
    with open(lines) as f:
        return json.load(open(output)), [json.loads(line) for line in f]


def compare(what, theirs, ours, lines, names, samples):
    worst, n = 0, 0
    by_subject = {}
    for line in lines:
        by_subject.setdefault(line.get("subject", ""), []).append(line)
    for name in names:
        own = by_subject[name[len("mmlu_"):] if name.startswith("mmlu_") else ""]
        rows = sorted(samples[name], key=lambda s: s["doc_id"])
        assert len(own) == len(rows)
        for mine, row in zip(own, rows):
            for a, b in zip(mine["logprobs"], row["filtered_resps"], strict=True):
                worst, n = max(worst, abs(a - float(b[0]))), n + 1
        subject = name[len("mmlu_"):] if name.startswith("mmlu_") else "multiple_choice"
        for metric in ("acc", "acc_norm", "acc_bytes"):
            a, b = ours["results"][subject][metric + ",none"], theirs[name][metric + ",none"]
            assert abs(a - b) < 1e-12, (what, name, metric, a, b)
    assert worst < 1e-4, (what, worst)
    print(f"{what}: {n} log-probabilities, largest difference {worst:.1e}; accuracies equal")


def check_errors(ours, theirs, names):
    for metric in ("acc", "acc_norm", "acc_bytes"):
        mine = ours["results"]["multiple_choice"]
        errors = [lm_eval.api.metrics.mean_stderr(
            [s[metric] for s in theirs["samples"][n]]) for n in names]
        sizes = [len(theirs["samples"][n]) for n in names]
        wanted = errors[0] if len(names) == 1 else lm_eval.api.metrics.pooled_sample_stderr(
            errors, sizes)
        assert abs(mine[metric + "_stderr,none"] - wanted) < 1e-9, (metric, mine, wanted)


def main(build, *families):
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        names = ["mmlu_" + s for s in SUBJECTS]
        everything, dev = [], []
        for i, (name, subject) in enumerate(zip(names, SUBJECTS)):
            rows = [mmlu(rng, subject) for _ in range(30 + 5 * i)]
            examples = [mmlu(rng, subject) for _ in range(4)]
            write(os.path.join(folder, name + ".jsonl"), rows)
            write(os.path.join(folder, name + "_dev.jsonl"), examples)
            everything += rows
            dev += examples
        write(os.path.join(folder, "mmlu.jsonl"), everything)
        write(os.path.join(folder, "dev.jsonl"), dev)
        write(os.path.join(folder, "arc.jsonl"), [arc(rng) for _ in range(150)])
        write(os.path.join(folder, "hellaswag.jsonl"), [hellaswag(rng) for _ in range(150)])
        for family in families or ("gpt2", "llama", "t5"):
            path = os.path.join(folder, family)
            model, tokenizer = make_model(path, family)
            for data, which, shots in (("mmlu", names, 0), ("mmlu", names, 3), ("arc", ["arc"], 0),
                                       ("hellaswag", ["hellaswag"], 0)):
                theirs = harness(model, tokenizer, folder, which, shots)
                options = ["--few-shot", os.path.join(folder, "dev.jsonl"), "--shots", str(shots)
                           ] if shots else []
                ours, lines = zinf(build, path, folder, os.path.join(folder, data + ".jsonl"),
                                   options)
                compare(f"{family} {data} {shots} shots", theirs["results"], ours, lines, which,
                        theirs["samples"])
                check_errors(ours, theirs, which)


main(*sys.argv[1:])
