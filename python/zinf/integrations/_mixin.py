"""What a Trainer of transformers' kind overrides, so that its training runs in this library."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import transformers
from transformers.trainer_utils import TrainOutput, speed_metrics

from .. import _calls
from .._library import OptionError, UnsupportedError, log
from .._trainer import Stop
from ._arguments import options_of, refuse_others

_NO_LOSS = -100


def _is_peft(model: Any) -> bool:
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def _saved(model: Any, folder: str, **how: Any) -> str:
    """The model's folder, written anew."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **how)
    return folder


def without_weights(folder: str) -> Any:
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.name_or_path = folder
    return model


def _begin_adapters(model: Any, seed: int) -> None:
    """Gives adapters of a model without weights the values that PEFT begins with after TRL's seeding:
    it draws for each layer that it makes, and then for its beginning."""
    from peft.tuners.lora import LoraLayer

    kept = torch.get_rng_state()
    torch.manual_seed(seed)
    for module in model.modules():
        for name in getattr(module, "lora_A", {}) if isinstance(module, LoraLayer) else ():
            for part in (module.lora_A, module.lora_B):
                old = part[name]
                made = torch.nn.Linear(old.in_features, old.out_features, old.bias is not None)
                part[name] = made.to(old.weight.dtype)
            module.reset_lora_parameters(name, model.peft_config[name].init_lora_weights)
    torch.set_rng_state(kept)
    for name, value in model.named_parameters():
        if value.requires_grad and value.is_meta:
            raise UnsupportedError(f"{name} is trained beside the adapters: give a model that is loaded")


# ---- rows ----


def _rows_of(batch: Any) -> List[Dict[str, List[int]]]:
    """A collated batch as rows of ids; padding is left out by the library. A list has rows as they
    are."""
    if isinstance(batch, list):
        return batch
    if "labels" not in batch or "input_ids" not in batch:
        raise UnsupportedError(
            f"the data collator gives {', '.join(batch)}: zinf trains on input_ids and labels"
        )
    if "position_ids" in batch and "attention_mask" not in batch:
        raise UnsupportedError(
            "the data collator joins rows to one (padding_free, packing): leave that out, and give "
            "options=dict(pack=True)"
        )
    names = [n for n in ("input_ids", "labels", "attention_mask") if batch.get(n) is not None]
    columns = [batch[name].tolist() for name in names]
    return [dict(zip(names, row)) for row in zip(*columns)]


class _Rows:
    """The rows of a data loader, once; or for so many steps of `batch` rows, epoch by epoch, as it
    gives them. A step that has fewer, as the last of an epoch may, is filled up with rows that have
    no loss."""

    def __init__(self, loader: Any, batch: int = 1, steps: Optional[int] = None):
        self.loader, self.batch, self.steps = loader, batch, steps

    def __iter__(self) -> Iterator[Dict[str, List[int]]]:
        left = None if self.steps is None else self.steps * self.batch
        for epoch in itertools.count():
            if hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(epoch)
            given = 0
            for row in itertools.islice(self._epoch(), left):
                yield row
                given += 1
            if left is None or not given or left == given:
                return
            left -= given

    def _epoch(self) -> Iterator[Dict[str, List[int]]]:
        rows: List[Dict[str, List[int]]] = []
        n = 0
        for batch in self.loader:
            rows = _rows_of(batch)
            yield from rows
            n += len(rows)
        missing = -n % self.batch if rows else 0
        if missing and "input_ids" not in rows[-1]:
            raise OptionError(
                f"the last step of an epoch has {self.batch - missing} of {self.batch} rows: leave "
                f"them out with train_dataset.select(range({n - n % self.batch}))"
            )
        for _ in range(missing):
            ids = rows[-1]["input_ids"][:2]
            yield {"input_ids": ids, "labels": [_NO_LOSS] * len(ids)}


def _longest(dataset: Any) -> Optional[int]:
    """Tokens of the longest row; None: rows cannot be counted, or are not tokenised yet."""
    if not hasattr(dataset, "__len__") or not len(dataset) or "input_ids" not in dataset[0]:
        return None
    return max(len(dataset[i]["input_ids"]) for i in range(len(dataset)))


class _Schedule(NamedTuple):
    """How many steps a training has; of an epoch its steps, and the batches that these are made of."""

    steps: int
    epoch_steps: int
    epoch_batches: int
    accumulate: int

    @classmethod
    def of(cls, args: Any, loader: Any) -> _Schedule:
        accumulate = args.gradient_accumulation_steps
        try:
            batches = len(loader)
        except TypeError:
            if args.max_steps <= 0:
                raise OptionError("args.max_steps has to be given: the data set has no length") from None
            return cls(args.max_steps, args.max_steps, args.max_steps * accumulate, accumulate)
        of_epoch = max(-(-batches // accumulate), 1)
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * of_epoch)
        return cls(steps, of_epoch, batches, accumulate)

    def epoch_of(self, step: int) -> float:
        whole, within = divmod(step - 1, self.epoch_steps)
        return whole + min((within + 1) * self.accumulate / self.epoch_batches, 1.0)


# ---- what a training tells ----


class _Told:
    """Callbacks of transformers, and its log, from this library's events."""

    def __init__(self, trainer: Any, schedule: _Schedule):
        self.trainer, self.schedule = trainer, schedule
        self.losses: List[float] = []
        self.logged = 0

    def on_step(self, step: Any) -> None:
        t = self.trainer
        state, handler = t.state, t.callback_handler
        self.losses.append(step.loss)
        state.global_step = step.step
        state.epoch = self.schedule.epoch_of(step.step)
        t.control = handler.on_step_end(t.args, state, t.control)
        if t.control.should_log:
            t.control.should_log = False
            new = self.losses[self.logged :]
            self.logged = len(self.losses)
            t.log({
                "loss": math.fsum(new) / len(new),
                "grad_norm": step.grad_norm,
                "learning_rate": step.lr,
            })  # fmt: skip
        self._end(step)

    def _end(self, step: Any) -> None:
        t = self.trainer
        t.control.should_evaluate = t.control.should_save = False
        if step.step % self.schedule.epoch_steps == 0:
            t.control = t.callback_handler.on_epoch_end(t.args, t.state, t.control)
            t.control.should_evaluate = t.control.should_save = t.control.should_log = False
        if t.control.should_training_stop and step.step < step.steps:
            raise Stop

    def on_evaluation(self, step: int, measure: Any) -> None:
        t = self.trainer
        metrics = {"eval_loss": measure.loss}
        t.log(dict(metrics))
        t.control = t.callback_handler.on_evaluate(t.args, t.state, t.control, metrics)
        if t.args.metric_for_best_model is not None:
            t._determine_best_metric(metrics=metrics, trial=None)
        if t.control.should_training_stop:
            raise Stop

    def on_checkpoint(self, step: int, folder: str) -> None:
        t = self.trainer
        t.control = t.callback_handler.on_save(t.args, t.state, t.control)


# ---- the trainer ----


class TrainsHere:
    """Comes before a Trainer among a class's bases. model may also be the path of a folder: then no
    weight of it is loaded, and it may be larger than the RAM; `save_model` copies what was trained.
    options: keywords of `zinf.train` for what TrainingArguments have no field for (device_memory,
    config, quantize, pack, ...); they win over args."""

    _taken: Tuple[str, ...] = ()  # fields of args that a class turns into options itself

    def __init__(self, model: Any = None, args: Any = None, *rest: Any, options: Optional[Dict] = None, **more):
        if args is not None:
            refuse_others(args, self._taken)
        self._options = dict(options or {})
        self._folder: Optional[str] = None  # of a model that is not in memory
        self._run: Any = None
        if isinstance(model, (str, os.PathLike)):
            self._folder = os.fspath(model)
            model = without_weights(self._folder)
        super().__init__(model, args, *rest, **more)
        whole = self.model.get_base_model() if _is_peft(self.model) else self.model
        if self._folder is None and next(whole.parameters()).is_meta:
            self._folder = whole.name_or_path
        if self._folder is not None and _is_peft(self.model):
            _begin_adapters(self.model, self.args.seed)
        for name in ("compute_loss_func", "model_init"):
            if getattr(self, name, None) is not None:
                raise UnsupportedError(f"{name} has no counterpart in zinf: leave it out")

    @property
    def place_model_on_device(self) -> bool:
        """The model stays where it is: what trains is this library's own copy."""
        return False

    @place_model_on_device.setter
    def place_model_on_device(self, _value: bool) -> None:
        pass

    # ---- before ----

    def _model_options(self, resumes: bool) -> Dict[str, Any]:
        """The model as it is now, as a folder; adapters as PEFT's beside it. A training that is
        resumed began with what lies there."""
        start = os.path.join(self.args.output_dir, "start")
        base, adapter = os.path.join(start, "model"), os.path.join(start, "adapter")
        model = self.accelerator.unwrap_model(self.model)
        whole = model.get_base_model() if _is_peft(model) else model
        if not resumes and _is_peft(model):
            _saved(model, adapter)
        if not resumes and self._folder is None:
            weights = {
                name.replace(".base_layer.", "."): value
                for name, value in whole.state_dict().items()
                if ".lora_" not in name
            }
            _saved(whole, base, state_dict=weights)
            if self.processing_class is not None:
                self.processing_class.save_pretrained(base)
        options = {"model": self._folder or base}
        if _is_peft(model):
            options["adapter"] = adapter
        return options

    def _sequence(self) -> Optional[int]:
        longest = _longest(self.train_dataset)
        if longest is None:
            return getattr(self.args, "max_length", None)
        if self.eval_dataset is not None and not isinstance(self.eval_dataset, dict):
            longest = max(longest, _longest(self.eval_dataset) or 0)
        return longest

    def _eval_rows(self) -> Optional[_Rows]:
        if str(getattr(self.args.eval_strategy, "value", self.args.eval_strategy)) == "no":
            return None
        if isinstance(self.eval_dataset, dict):
            raise UnsupportedError("several eval_datasets while training: give one, and call evaluate for others")
        if self.compute_metrics is not None:
            log.warning(
                "compute_metrics is called by evaluate(); evaluations while training have the loss alone"
            )
        return _Rows(self.get_eval_dataloader())

    # ---- training ----

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: Any = None, **_):
        """Trains, and gives the weights to the model where it is in memory. resume_from_checkpoint:
        True, or a checkpoint of this library in output_dir."""
        if trial is not None:
            raise UnsupportedError("a search of hyperparameters: call train for each of its trials")
        args, loader = self.args, self.get_train_dataloader()
        schedule = _Schedule.of(args, loader)
        options = options_of(args, self.accelerator.unwrap_model(self.model), schedule, self._options)
        options.setdefault("seq_len", self._sequence())
        batch = args.train_batch_size * args.gradient_accumulation_steps
        rows = _Rows(loader, batch, schedule.steps)
        # Rows of a set without a length may be more than a drive holds.
        options.setdefault("streaming", not hasattr(self.train_dataset, "__len__"))
        if resume_from_checkpoint:
            options["resume"] = resume_from_checkpoint if isinstance(resume_from_checkpoint, str) else True
        else:
            options["overwrite"] = True
        start = time.time()
        told = self._begin(schedule)
        options = {**self._model_options(bool(resume_from_checkpoint)), **options}
        self._run = _calls.train(
            data=rows, eval_data=self._eval_rows(), callbacks=told, progress=False, **options
        )
        self._take_weights()
        return self._finish(told, start)

    def _begin(self, schedule: _Schedule) -> _Told:
        args = self.args
        self.is_in_train = True
        self.state = transformers.TrainerState()
        self.state.max_steps = schedule.steps
        self.state.num_train_epochs = math.ceil(schedule.steps / schedule.epoch_steps)
        self.state.train_batch_size = args.train_batch_size
        self.state.compute_steps(args, schedule.steps)
        self.state.is_local_process_zero = self.state.is_world_process_zero = True
        self.callback_handler.model = self.model
        self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
        self.control = self.callback_handler.on_epoch_begin(args, self.state, self.control)
        return _Told(self, schedule)

    def _finish(self, told: _Told, start: float) -> TrainOutput:
        n = len(told.losses)
        loss = math.fsum(told.losses) / n if n else math.nan
        samples = n * self.args.train_batch_size * self.args.gradient_accumulation_steps
        metrics = speed_metrics("train", start, num_samples=samples, num_steps=n)
        metrics["train_loss"] = loss
        self.log(dict(metrics))
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        self.is_in_train = False
        return TrainOutput(self.state.global_step, loss, metrics)

    def _take_weights(self) -> None:
        if self._folder is not None:
            return
        from safetensors.torch import load_file

        model = self.accelerator.unwrap_model(self.model)
        files = [f for f in sorted(os.listdir(self._run.model)) if f.endswith(".safetensors")]
        for name in files:
            tensors = load_file(os.path.join(self._run.model, name))
            if _is_peft(model):
                from peft import set_peft_model_state_dict

                set_peft_model_state_dict(model, tensors)
            else:
                model.load_state_dict(tensors, strict=False)
        if hasattr(model, "tie_weights"):
            model.tie_weights()

    # ---- after ----

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"):
        """The loss by this library; with compute_metrics, which need logits, as transformers does."""
        if self.compute_metrics is not None and self._folder is None:
            try:
                self.model.to(self.args.device)
                return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
            finally:
                self.model.to("cpu")
        data = eval_dataset if eval_dataset is not None else self.eval_dataset
        if isinstance(data, dict):
            found: Dict[str, float] = {}
            for name, one in data.items():
                found.update(self.evaluate(one, ignore_keys, f"{metric_key_prefix}_{name}"))
            return found
        rows = _Rows(self.get_eval_dataloader(data))
        start = time.time()
        measure = _calls.evaluate(data=rows, **self._model_now())
        metrics = speed_metrics(metric_key_prefix, start, num_samples=len(data))
        metrics[f"{metric_key_prefix}_loss"] = measure.loss
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _model_now(self) -> Dict[str, Any]:
        options = self._model_options(self._run is not None)
        if self._run is not None:
            options["adapter" if "adapter" in options else "model"] = self._run.model
        options["seq_len"] = self._options.get("seq_len") or self._sequence()
        options["device"] = "host" if self.args.use_cpu else None
        return options

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        """As transformers does; of a model that is not in memory, what was trained is copied."""
        if self._folder is None:
            return super().save_model(output_dir, _internal_call)
        if self._run is None:
            raise OptionError("nothing was trained yet: call train before save_model")
        shutil.copytree(self._run.model, output_dir or self.args.output_dir, dirs_exist_ok=True)
