"""TrainingArguments as options of `zinf.train`. What has no counterpart is refused by its name."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, Dict, Iterable, List

from .._library import OptionError, UnsupportedError

# What a training computes does not depend on these: where it logs, how rows are loaded, how torch
# would compute. Placement, recomputation and launch are this library's own.
_WITHOUT_EFFECT = set(
    """
    accelerator_config activation_checkpointing activation_checkpointing_kwargs activation_offloading
    average_tokens_across_devices batch_eval_metrics bf16_full_eval chat_template_path
    completion_only_loss assistant_only_loss dataloader_drop_last dataloader_in_order
    dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
    dataloader_pin_memory dataloader_prefetch_factor dataset_kwargs dataset_num_proc
    dataset_text_field ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb
    ddp_find_unused_parameters ddp_static_graph ddp_timeout debug disable_tqdm do_eval do_predict
    do_train eos_token eval_accumulation_steps eval_do_concat_batches eval_packing
    eval_use_gather_object fp16_full_eval full_determinism gradient_checkpointing
    gradient_checkpointing_kwargs hub_always_push hub_model_id hub_private_repo hub_revision
    hub_strategy hub_token include_for_metrics include_num_input_tokens_seen label_names
    length_column_name liger_kernel_config local_rank log_level log_level_replica log_on_each_node
    logging_dir logging_first_step logging_nan_inf_filter logging_steps logging_strategy
    max_length model_init_kwargs pad_to_multiple_of pad_token per_device_eval_batch_size
    prediction_loss_only project push_to_hub remove_unused_columns report_to
    restore_callback_states_from_checkpoint resume_from_checkpoint run_name save_on_each_node
    save_only_model save_safetensors shuffle_dataset skip_memory_metrics torch_compile
    torch_compile_backend torch_compile_mode torch_empty_cache_steps trackio_bucket_id
    trackio_space_id trackio_static_space_id train_sampling_strategy truncation_mode
    trust_remote_code use_cache use_liger_kernel
    """.split()
)
# These become options below.
_TAKEN = set(
    """
    adam_beta1 adam_beta2 adam_epsilon bf16 data_seed deepspeed eval_steps eval_strategy fp16
    gradient_accumulation_steps greater_is_better label_smoothing_factor learning_rate
    load_best_model_at_end lr_scheduler_type max_grad_norm max_steps metric_for_best_model
    neftune_noise_alpha num_train_epochs optim optim_args optim_target_modules output_dir per_device_train_batch_size save_steps
    save_strategy save_total_limit seed tf32 use_cpu warmup_ratio warmup_steps weight_decay
    """.split()
)
_OPTIMIZERS = {
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "adamw_8bit": "AdamW8bit",
    "adamw_bnb_8bit": "AdamW8bit",
    "adamw_torch": "AdamW",
    "adamw_torch_fused": "AdamW",
    "lion_32bit": "Lion",
    "paged_adamw_32bit": "AdamW",
    "paged_adamw_8bit": "AdamW8bit",
    "paged_lion_32bit": "Lion",
    "sgd": "SGD",
}
# Those of chosen modules alone: type, and what transformers gives it without optim_args.
_PROJECTED = {
    "apollo_adamw": ("APOLLO", {"rank": 128, "update_proj_gap": 200, "scale": 1.0}),
    "galore_adamw": ("GaLoreAdamW", {"rank": 128, "update_proj_gap": 200, "scale": 0.25}),
}
_PROJECTED.update({f"{name}_layerwise": row for name, row in list(_PROJECTED.items())})
_OPTIM_ARGS = {"rank": int, "update_proj_gap": int, "scale": float, "proj_type": str,
               "proj": str, "scale_type": str}  # fmt: skip


def word_of(value: Any) -> Any:
    """What an enumeration of transformers stands for."""
    return getattr(value, "value", value)


def refuse_others(args: Any, taken: Iterable[str]) -> None:
    """Raises where a field that nothing here stands for differs from its default; taken: those that
    a trainer turns into options itself."""
    for field in dataclasses.fields(args):
        name, value = field.name, getattr(args, field.name)
        if name in _TAKEN or name in _WITHOUT_EFFECT or name in taken or name.startswith("_"):
            continue
        made = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if made else field.default
        if value not in (default, None, False, [], {}, "", "no") and word_of(value) != word_of(default):
            raise UnsupportedError(
                f"{type(args).__name__}: {name}={value!r} has no counterpart in zinf: leave it out"
            )


def _optimizer(args: Any) -> str:
    name = str(word_of(args.optim))
    if name not in _OPTIMIZERS:
        raise UnsupportedError(
            f'TrainingArguments: optim="{name}" has no counterpart in zinf: use one of '
            f"{', '.join([*_OPTIMIZERS, *_PROJECTED])}"
        )
    for field in ("optim_args", "optim_target_modules"):
        if getattr(args, field, None):
            raise UnsupportedError(
                f'TrainingArguments: {field} with optim="{name}" has no counterpart in zinf: leave it out'
            )
    return _OPTIMIZERS[name]


def _is_target(wanted: Any, name: str) -> bool:
    """As transformers matches a module's name: text is an expression, words are parts of it."""
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None
    return any(word in name or re.fullmatch(word, name) for word in wanted)


def _rules(args: Any, model: Any, kind: str) -> List[Dict[str, str]]:
    """zinf.learning_rates, by which modules that are not chosen have AdamW; [] where all are."""
    import torch

    wanted = args.optim_target_modules
    if not wanted or (isinstance(wanted, str) and wanted.replace("_", "-") == "all-linear"):
        raise UnsupportedError(
            f"TrainingArguments: optim_target_modules={wanted!r} would take the head, which has AdamW in "
            'zinf: name modules of layers, such as ["attn", "mlp"]'
        )
    head = model.get_output_embeddings()
    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    chosen = [n for n in linear if _is_target(wanted, n)]
    if not chosen:
        raise OptionError(f"optim_target_modules={wanted!r} names no linear layer")
    for name, module in model.named_modules():
        if module is head and name in chosen:
            raise UnsupportedError(f"optim_target_modules: {name}, the head, has AdamW in zinf: leave it out")
    if set(chosen) == {n for n, m in model.named_modules() if n in linear and m is not head}:
        return []
    rules = [{"pattern": f"{name}.weight", "optimizer": kind} for name in chosen]
    return [*rules, {"pattern": "*", "optimizer": "AdamW"}]


def _projected(args: Any, model: Any, config: Dict[str, Any]) -> None:
    """The optimizer of a configuration that has none, and whose it is."""
    kind, defaults = _PROJECTED[str(word_of(args.optim))]
    params: Dict[str, Any] = {"lr": args.learning_rate, "weight_decay": args.weight_decay, **defaults}
    params.update(betas=[args.adam_beta1, args.adam_beta2], eps=args.adam_epsilon)
    for part in filter(None, (args.optim_args or "").replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        if name not in _OPTIM_ARGS:
            raise UnsupportedError(
                f"TrainingArguments: optim_args: {name} has no counterpart in zinf: use one of "
                f"{', '.join(_OPTIM_ARGS)}"
            )
        params[name] = _OPTIM_ARGS[name](value)
    config["optimizer"] = {"type": kind, "params": params}
    rules = _rules(args, model, kind)
    if rules:
        own = dict(config.get("zinf") or {})
        own["learning_rates"] = [*own.get("learning_rates", []), *rules]
        config["zinf"] = own


def _configuration(args: Any, model: Any, given: Any) -> Dict[str, Any]:
    """DeepSpeed's configuration, with the optimizer of the arguments where it has none."""
    config = given if given is not None else getattr(args, "deepspeed", None)
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            config = json.load(file)
    config = dict(config or {})
    if "optimizer" not in config and str(word_of(args.optim)) in _PROJECTED:
        _projected(args, model, config)
    elif "optimizer" not in config:
        kind = _optimizer(args)
        params: Dict[str, Any] = {"lr": args.learning_rate, "weight_decay": args.weight_decay}
        if kind in ("AdamW", "AdamW8bit", "Lion"):
            params["betas"] = [args.adam_beta1, args.adam_beta2]
        if kind in ("AdamW", "AdamW8bit"):
            params["eps"] = args.adam_epsilon
        config["optimizer"] = {"type": kind, "params": params}
    return config


def _every(strategy: Any, steps: Any, schedule: Any) -> int:
    """Steps between evaluations or checkpoints; 0: there are none."""
    word = str(word_of(strategy))
    if word == "epoch":
        return schedule.epoch_steps
    if word != "steps":
        return 0
    return max(int(steps if steps >= 1 else schedule.steps * steps), 1)


def _dtype(args: Any, model: Any) -> str:
    if args.bf16 or args.fp16:
        return "bf16" if args.bf16 else "fp16"
    dtype = str(next(model.parameters()).dtype).replace("torch.", "")
    return {"bfloat16": "bf16", "float16": "fp16"}.get(dtype, "fp32")


def options_of(args: Any, model: Any, schedule: Any, own: Dict) -> Dict[str, Any]:
    """Keywords of `zinf.train` for a schedule of steps; own: those that the caller gives, which win."""
    own = dict(own)
    if args.world_size > 1:
        raise OptionError("start one process: it uses all GPUs that are visible (option seats)")
    if args.load_best_model_at_end and args.metric_for_best_model not in (None, "loss", "eval_loss"):
        raise UnsupportedError(
            f'TrainingArguments: metric_for_best_model="{args.metric_for_best_model}": the best '
            "model is that of the lowest eval_loss"
        )
    evaluations = _every(args.eval_strategy, args.eval_steps or args.logging_steps, schedule)
    saves = _every(args.save_strategy, args.save_steps, schedule)
    options = {
        "output": args.output_dir,
        "config": _configuration(args, model, own.pop("config", None)),
        "steps": schedule.steps,
        "micro_batch": args.per_device_train_batch_size,
        "accumulate": args.gradient_accumulation_steps,
        "lr": args.learning_rate,
        "lr_scheduler": str(word_of(args.lr_scheduler_type)),
        "warmup_steps": args.get_warmup_steps(schedule.steps),
        "clip": args.max_grad_norm or 0,
        "label_smoothing": args.label_smoothing_factor or None,
        "neftune_alpha": args.neftune_noise_alpha or None,
        "seed": args.seed,
        "no_shuffle": True,
        "dtype": _dtype(args, model),
        "eval_every": evaluations or None,
        "save_every": saves or None,
        "no_final_checkpoint": not saves or None,
        "save_total_limit": args.save_total_limit,
        "load_best_at_end": args.load_best_model_at_end or None,
        "device": "host" if args.use_cpu else None,
        "matmul_type": "tf32" if args.tf32 and not args.use_cpu else None,
        "seats": args.n_gpu if args.n_gpu > 1 else None,
    }
    options.update(own)
    return options
