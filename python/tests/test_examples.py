"""The examples, small."""

import os
import subprocess
import sys
import unittest
import unittest.mock

from common import BUILD, MODEL, Case, command

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")

try:
    import torch
    import transformers
except ImportError:
    torch = None
try:
    import nbclient
    import nbformat
except ImportError:
    nbclient = None


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

    @unittest.skipUnless(nbclient, "nbclient is not installed")
    def test_notebook(self):
        book = nbformat.read(os.path.join(EXAMPLES, "sums.ipynb"), as_version=4)
        with unittest.mock.patch.dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}"):
            nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": self.folder}}).execute()
        shown = [out.get("data", {}) for cell in book.cells for out in cell.get("outputs", [])]
        self.assertTrue(any("<svg" in data.get("text/html", "") for data in shown))
        self.assertIn("'2+3=': '5'", shown[-1]["text/plain"])


if __name__ == "__main__":
    unittest.main()
