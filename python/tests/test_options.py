"""Keywords are the options of the command."""

import inspect
import typing

import zinf
from common import MODEL, ROWS, Case, command
from zinf import _options

# Options that decide how the command shows a training, and none of the training itself.
SHOWN = {"tensorboard", "progress", "plan", "json", "help"}


class Options(Case):
    def flags_of(self, name):
        """Names in `zinf help NAME`, where each option begins a line."""
        lines = command("help", name).splitlines()
        words = [line.split()[0] for line in lines if line.strip().startswith("--")]
        return {w.split("[")[0].split("=")[0][2:].replace("-", "_") for w in words}

    def test_every_option_of_the_command_is_a_keyword(self):
        flags = self.flags_of("train") - SHOWN
        self.assertGreater(len(flags), 60)
        for call in (zinf.train, zinf.Trainer.__init__):
            missing = flags - set(inspect.signature(call).parameters)
            self.assertFalse(missing, f"{call.__qualname__} lacks {missing}")

    def test_signatures_are_the_rows(self):
        rows = {row.name: row for row in zinf.options()}
        calls = (zinf.train, zinf.plan, zinf.evaluate, zinf.generate, zinf.embed, zinf.Trainer.__init__)
        for call in calls:
            parameters = inspect.signature(call).parameters
            self.assertFalse(set(rows) - set(parameters) - {"data"}, call.__qualname__)
            for name, parameter in parameters.items():
                if name in rows and parameter.kind is parameter.KEYWORD_ONLY and name != "config":
                    self.assertIsNone(
                        parameter.default if parameter.default != () else None, name
                    )
            self.assertIn(rows["warmup_steps"].help, " ".join(call.__doc__.split()))

    def test_types(self):
        rows = {row.name: row for row in zinf.options()}
        self.assertEqual(rows["seq_len"].annotation, int)
        self.assertEqual(rows["pack"].annotation, bool)
        self.assertEqual(typing.get_args(rows["device"].annotation), ("auto", "host", "cuda"))
        self.assertIn("bleu", rows["metric"].words)

    def test_texts_of_values(self):
        given = {
            "pack": True,
            "resume": True,
            "no_shuffle": False,
            "metric": ["bleu", "rouge1"],
            "lora_targets": ["q", "v"],
            "device_memory": 1 << 30,
            "lr": 1e-5,
            "steps": None,
        }
        self.assertEqual(
            _options.settings_of(given),
            [
                ("pack", "true"),
                ("resume", ""),
                ("no_shuffle", "false"),
                ("metric", "bleu"),
                ("metric", "rouge1"),
                ("lora_targets", "q,v"),
                ("device_memory", "1073741824B"),
                ("lr", "1e-05"),
            ],
        )

    def test_errors_are_the_librarys_sentences(self):
        with self.assertRaisesRegex(zinf.OptionError, "did you mean option seq_len") as caught:
            zinf.plan(MODEL, seq_lem=3)
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(zinf.OptionError, "option steps 'x' is not a whole number"):
            zinf.Trainer(MODEL, steps="x")
        with self.assertRaisesRegex(zinf.NotFoundError, "a Hugging Face model folder holds"):
            zinf.plan(self.path("nothing"))
        with self.assertRaisesRegex(zinf.OptionError, "lora: unknown key 'rnk'"):
            zinf.Trainer(MODEL, lora={"rnk": 3})

    def test_sentences_name_keywords(self):
        """Whatever the library says names options as Python has them."""
        with self.assertRaisesRegex(zinf.OptionError, "^seq_len=65: the model's context is 64"):
            zinf.Trainer(MODEL, seq_len=65, device="host").batch
        with self.assertRaisesRegex(zinf.OptionError, "^option epochs and option steps both say"):
            zinf.train(MODEL, ROWS, epochs=1, steps=1, output=self.path("out"))
        with self.assertRaisesRegex(zinf.OptionError, "give eval_data, or streaming=False"):
            zinf.Trainer(MODEL, iter(ROWS), steps=1, output=self.path("out")).evaluate()
        for row in zinf.options():
            self.assertNotRegex(f"{row.help} {row.otherwise}", r"(?<!\S)--\w", row.name)

    def test_names_of_other_programs(self):
        with zinf.Trainer(MODEL, per_device_train_batch_size=3, device="host", max_length=16) as t:
            self.assertEqual(t.batch, (3, 16))

    def test_a_configuration_as_dict(self):
        config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}
        with zinf.Trainer(MODEL, config=config, device="host", seq_len=16) as t:
            self.assertEqual(t.batch, (6, 16))
        with self.assertRaisesRegex(zinf.OptionError, "gradient_clippin"):
            zinf.plan(MODEL, config={"gradient_clippin": 1}, device="host")
