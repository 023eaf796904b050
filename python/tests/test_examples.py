"""The examples, small."""

import os
import subprocess
import sys
import unittest

from common import MODEL, Case, command

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")

try:
    import torch
    import transformers
except ImportError:
    torch = None


class Examples(Case):
    def run_example(self, name, *words):
        done = subprocess.run(
            [sys.executable, os.path.join(EXAMPLES, name), *words],
            capture_output=True, text=True, check=False, cwd=self.folder,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_finetune(self):
        said = self.run_example("finetune.py", "--model", MODEL, "--steps", "3")
        self.assertIn("bottleneck", said)
        self.assertIn("steps 1 to 3 of 3", said)
        self.assertTrue(os.path.exists(self.path("sums/model/model.safetensors")))

    def test_lora_chat(self):
        model = self.path("chat-model")
        command(
            "init", "--arch", "llama", "--size", "7b", "--layers", 2, "--hidden", 32, "--heads", 2,
            "--tokenizer", "bytes", "--context", 192, "--output", model,
        )  # fmt: skip
        words = ("--model", model, "--steps", "10", "--quantize", "int8", "--chat-template", "chatml")
        said = self.run_example("lora_chat.py", *words)
        self.assertIn("step 10: loss ", said)
        self.assertIn("{5: ", said)
        self.assertTrue(os.path.exists(self.path("rooms/model/adapter_model.safetensors")))

    @unittest.skipUnless(torch, "transformers or torch is not installed")
    def test_torch_optimizer(self):
        said = self.run_example("torch_optimizer.py", "--path", ".", "--model", MODEL, "--steps", "2")
        self.assertIn("step 2: loss ", said)


if __name__ == "__main__":
    unittest.main()
