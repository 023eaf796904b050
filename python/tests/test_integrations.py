"""zinf.integrations against the trainers whose interface they have: the same script, one import apart."""

import os
import unittest

from common import Case

try:
    import datasets
    import torch
    import transformers
except ImportError:
    torch = None
try:
    import peft
except ImportError:
    peft = None
try:
    import trl
except ImportError:
    trl = None

VOCABULARY = 96


def small_model(seed=3):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def small_rows(n=22):
    """Of different lengths; 22 are no multiple of the batches below."""
    made = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(n):
        length = int(torch.randint(5, 40, (1,), generator=made))
        rows.append({"input_ids": torch.randint(3, VOCABULARY, (length,), generator=made).tolist()})
    return datasets.Dataset.from_list(rows)


def collate(rows):
    most = max(len(row["input_ids"]) for row in rows)

    def padded(values, pad):
        return [value + [pad] * (most - len(value)) for value in values]

    ids = [row["input_ids"] for row in rows]
    return {
        "input_ids": torch.tensor(padded(ids, 0)),
        "labels": torch.tensor(padded([[-100] + one[1:] for one in ids], -100)),
        "attention_mask": torch.tensor(padded([[1] * len(one) for one in ids], 0)),
    }


def words():
    """A tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(VOCABULARY - 4))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@unittest.skipUnless(torch, "transformers, datasets or torch is not installed")
class TransformersTrainer(Case):
    def arguments(self, name, **more):
        given = {
            "output_dir": self.path(name), "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 3, "num_train_epochs": 3, "learning_rate": 1e-2,
            "logging_steps": 1, "seed": 5, "use_cpu": True, "warmup_steps": 3, "weight_decay": 0.1,
            "disable_tqdm": True, "save_strategy": "no", "report_to": [], **more,
        }  # fmt: skip
        return transformers.TrainingArguments(**given)

    def here(self, name, model=None, **more):
        from zinf.integrations.transformers import Trainer

        return self.made(Trainer, name, model, **more)

    def there(self, name, model=None, **more):
        return self.made(transformers.Trainer, name, model, **more)

    def made(self, kind, name, model, callbacks=(), trainer=None, **arguments):
        rows = small_rows()
        made = kind(
            model=model if model is not None else small_model(),
            args=self.arguments(name, **arguments),
            train_dataset=rows,
            eval_dataset=rows.select(range(5)),
            data_collator=collate,
            callbacks=list(callbacks),
            **(trainer or {}),
        )
        made.remove_callback(transformers.PrinterCallback)
        return made

    def check_logs(self, here, there):
        keys = ("step", "epoch", "loss", "grad_norm", "learning_rate", "eval_loss")
        mine, theirs = (
            [{k: float(v) for k, v in line.items() if k in keys} for line in t.state.log_history]
            for t in (here, there)
        )
        self.assertEqual([sorted(line) for line in mine], [sorted(line) for line in theirs])
        for one, other in zip(mine, theirs):
            for key in one:
                near = 1e-4 if key == "grad_norm" else 1e-5
                self.assertAlmostEqual(one[key], other[key], delta=near * max(1, abs(other[key])))

    def test_the_same_script(self):
        arguments = {"eval_strategy": "steps", "eval_steps": 4}
        there, here = self.there("there", **arguments), self.here("here", **arguments)
        expected, found = there.train(), here.train()
        self.check_logs(here, there)
        self.assertEqual(found.global_step, expected.global_step)
        self.assertAlmostEqual(found.training_loss, expected.training_loss, places=5)
        for (name, mine), theirs in zip(here.model.named_parameters(), there.model.parameters()):
            self.assertLess((mine - theirs).abs().max().item(), 1e-4, name)
        self.assertAlmostEqual(here.evaluate()["eval_loss"], there.evaluate()["eval_loss"], places=5)
        here.save_model(self.path("saved"))
        again = transformers.AutoModelForCausalLM.from_pretrained(self.path("saved"))
        self.assertTrue(torch.equal(again.lm_head.weight, here.model.lm_head.weight))

    def test_a_folder_is_not_loaded(self):
        small_model().save_pretrained(self.path("base"))
        here = self.here("here", self.path("base"), max_steps=3)
        self.assertEqual({p.device.type for p in here.model.parameters()}, {"meta"})
        loaded = self.here("loaded", max_steps=3)
        self.assertEqual(here.train().training_loss, loaded.train().training_loss)
        here.save_model(self.path("saved"))
        saved = transformers.AutoModelForCausalLM.from_pretrained(self.path("saved"))
        self.assertTrue(torch.equal(saved.lm_head.weight, loaded.model.lm_head.weight))

    @unittest.skipUnless(peft, "peft is not installed")
    def test_adapters_of_peft(self):
        def adapted():
            torch.manual_seed(4)
            settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
            return peft.get_peft_model(small_model(), settings)

        there, here = self.there("there", adapted()), self.here("here", adapted())
        there.train(), here.train()
        self.check_logs(here, there)
        for (name, mine), theirs in zip(here.model.named_parameters(), there.model.parameters()):
            self.assertLess((mine - theirs).abs().max().item(), 1e-4, name)

    def test_callbacks_stop_and_it_goes_on(self):
        class Stops(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                control.should_training_stop = state.global_step == 5
                return control

        saves = {"save_strategy": "steps", "save_steps": 4}
        whole = self.here("whole", **saves)
        whole.train()
        self.assertEqual(self.here("here", callbacks=[Stops()], **saves).train().global_step, 5)
        resumed = self.here("here", **saves)
        self.assertEqual(resumed.train(resume_from_checkpoint=True).global_step, 12)
        for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters()):
            self.assertTrue(torch.equal(mine, theirs))

    def test_optimizers_of_chosen_modules(self):
        chosen = {"optim_target_modules": ["mlp"], "optim_args": "rank=4, update_proj_gap=5, scale=2"}
        losses = []
        for optim in ("adamw_torch", "galore_adamw", "apollo_adamw", "galore_adamw_layerwise"):
            more = {} if optim == "adamw_torch" else chosen
            losses.append(self.here(optim, optim=optim, **more).train().training_loss)
        self.assertEqual(len(set(losses)), 3)
        self.assertEqual(losses[1], losses[3])
        all_of = {"optim": "galore_adamw", "optim_args": "rank=4, update_proj_gap=5, scale=2"}
        every = self.here("every", optim_target_modules=["attn", "mlp"], **all_of).train()
        self.assertNotIn(every.training_loss, losses)

    def test_what_has_no_counterpart_is_refused_by_name(self):
        import zinf

        for words_, more in (
            ("optim=\"adalomo\"", {"optim": "adalomo"}),
            ("optim_args", {"optim_args": "rank=4"}),
            ("take the head", {"optim": "galore_adamw", "optim_target_modules": "all-linear"}),
            ("lm_head", {"optim": "galore_adamw", "optim_target_modules": ["lm_head"]}),
            ("rang has", {"optim": "apollo_adamw", "optim_target_modules": ["mlp"], "optim_args": "rang=4"}),
            ("random vectors", {"optim": "apollo_adamw", "optim_target_modules": ["mlp"],
                                "optim_args": "proj=svd"}),
            ("auto_find_batch_size", {"auto_find_batch_size": True}),
            ("metric_for_best_model", {"load_best_model_at_end": True, "metric_for_best_model": "f1",
                                       "eval_strategy": "epoch", "save_strategy": "epoch"}),
        ):  # fmt: skip
            with self.assertRaisesRegex(zinf.UnsupportedError, words_):
                self.here("refused", **more).train()
        with self.assertRaisesRegex(zinf.UnsupportedError, "compute_loss_func"):
            self.here("refused", trainer={"compute_loss_func": lambda *_: 0})


@unittest.skipUnless(torch and trl, "trl, transformers, datasets or torch is not installed")
class TrlTrainer(Case):
    def losses(self, kind, name, model, settings=None, rows=None, **more):
        texts = [{"prompt": f"w{i} w{i * 7 % 50} ", "completion": f"w{i + 1} w3 w{i % 5}"} for i in range(20)]
        arguments = (settings or trl.SFTConfig)(
            output_dir=self.path(name), per_device_train_batch_size=2, max_steps=7, learning_rate=1e-2,
            logging_steps=1, use_cpu=True, disable_tqdm=True, save_strategy="no", report_to=[],
            max_length=32, bf16=False, gradient_checkpointing=False,
        )  # fmt: skip
        if not isinstance(model, str):  # from which TRL loads its reference
            model.save_pretrained(self.path("base"))
            words().save_pretrained(self.path("base"))
            model.name_or_path = model.config._name_or_path = self.path("base")
        trainer = kind(
            model=model, args=arguments, processing_class=words(),
            train_dataset=datasets.Dataset.from_list(rows or texts), **more,
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        found = [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]
        self.assertEqual(len(found), 7)
        return found

    def pairs(self, kind):
        for i in range(20):
            row = {"prompt": f"w{i} w{i * 7 % 50} "}
            if kind == "dpo":
                yield {**row, "chosen": f"w{i + 1} w3 w{i % 5}", "rejected": f"w{i % 3} w9"}
            else:
                yield {**row, "completion": f"w{i + 1} w3 w{i % 5}", "label": i % 3 > 0}

    def test_preferences(self):
        from zinf.integrations import trl as here

        adapters = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}
        for name, theirs, mine, settings in (
            ("dpo", trl.DPOTrainer, here.DPOTrainer, trl.DPOConfig),
            ("kto", trl.KTOTrainer, here.KTOTrainer, trl.KTOConfig),
        ):
            rows = list(self.pairs(name))
            for more in ({}, {"peft_config": adapters}):
                with self.subTest(name, **more):
                    given = {k: peft.LoraConfig(**v) for k, v in more.items()} if peft else {}
                    expected = self.losses(theirs, "there", small_model(), settings, rows, **given)
                    self.check(self.losses(mine, "here", small_model(), settings, rows, **given), expected)
                    found = self.losses(mine, "path", self.path("base"), settings, rows, **given)
                    self.check(found, expected)

    def check(self, found, expected):
        for mine, theirs in zip(found, expected):
            self.assertAlmostEqual(mine, theirs, delta=1e-5 * max(1, abs(theirs)))

    def test_the_same_script(self):
        from zinf.integrations.trl import SFTTrainer

        expected = self.losses(trl.SFTTrainer, "there", small_model())
        self.check(self.losses(SFTTrainer, "here", small_model()), expected)

    @unittest.skipUnless(peft, "peft is not installed")
    def test_adapters_above_a_folder_that_is_not_loaded(self):
        from zinf.integrations.trl import SFTTrainer

        small_model().save_pretrained(self.path("base"))
        adapters = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
        expected = self.losses(trl.SFTTrainer, "there", self.path("base"), peft_config=adapters)
        found = self.losses(SFTTrainer, "here", self.path("base"), peft_config=adapters)
        self.check(found, expected)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    unittest.main()
