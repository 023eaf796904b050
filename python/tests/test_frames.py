"""zinf's optimizers where others drive the loop: transformers' Trainer, Accelerate and Lightning. Each
trains once with torch's AdamW and then with zinf's, with state in RAM and on a drive."""

import logging
import unittest
import warnings

import zinf
from common import Case

try:
    import torch
except ImportError:
    torch = None
try:
    import accelerate
except ImportError:
    accelerate = None
try:
    import datasets
    import transformers
except ImportError:
    transformers = None
try:
    import lightning
except ImportError:
    lightning = None


def small_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def batches(n=12):
    made = torch.Generator().manual_seed(1)
    x = torch.randn(4 * n, 8, generator=made)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 4)


@unittest.skipIf(torch is None, "torch is not installed")
class Frames(Case):
    def compare(self, train):
        """train(make, name): the weights that a training with the optimizer of make ends with."""
        wanted = train(lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1), "torch")
        ours = {"lr": 1e-2, "weight_decay": 0.1}
        drive = {"state": "nvme", "path": self.folder, "buffer_bytes": 1 << 16}
        made = train(lambda params: zinf.AdamW(params, **ours), "ram")
        off = max((a - b).abs().max().item() for a, b in zip(made, wanted))
        self.assertLess(off, 1e-5)
        there = train(lambda params: zinf.AdamW(params, **ours, **drive), "drive")
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(made, there)))

    @unittest.skipIf(transformers is None, "transformers or datasets is not installed")
    def test_trainer_of_transformers(self):
        config = transformers.LlamaConfig(
            vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
        )  # fmt: skip
        ids = torch.randint(48, (24, 12), generator=torch.Generator().manual_seed(1)).tolist()
        rows = datasets.Dataset.from_list([{"input_ids": row, "labels": row} for row in ids])

        def train(make, name):
            weights = []
            for resume in (False, True):  # the second one goes on from what the first one saved
                torch.manual_seed(3)
                model = transformers.LlamaForCausalLM(config)
                optimizer = make(model.parameters())
                schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
                trainer = transformers.Trainer(
                    model=model,
                    args=transformers.TrainingArguments(
                        output_dir=self.path(name), per_device_train_batch_size=2, max_steps=6, seed=5,
                        gradient_accumulation_steps=2, use_cpu=True, save_steps=3, report_to=[],
                        disable_tqdm=True, logging_steps=6,
                    ),
                    train_dataset=rows,
                    optimizers=(optimizer, schedule),
                )  # fmt: skip
                trainer.remove_callback(transformers.PrinterCallback)
                trainer.train(resume_from_checkpoint=self.path(f"{name}/checkpoint-3") if resume else None)
                weights.append([p.detach().clone() for p in model.parameters()])
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(*weights)))
            return weights[1]

        self.compare(train)

    @unittest.skipIf(accelerate is None, "accelerate is not installed")
    def test_accelerate(self):
        def train(make, name):
            run = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
            model = small_model()
            optimizer = make(model.parameters())
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4)
            model, optimizer, loader, schedule = run.prepare(model, optimizer, batches(), schedule)
            for epoch in range(2):
                for x, y in loader:
                    with run.accumulate(model):
                        run.backward((model(x) - y).square().mean())
                        if run.sync_gradients:
                            run.clip_grad_norm_(model.parameters(), 1.0)
                        optimizer.step()
                        schedule.step()
                        optimizer.zero_grad()
                if not epoch:
                    run.save_state(self.path(name))
                    run.load_state(self.path(name))
            return [p.detach().clone() for p in model.parameters()]

        self.compare(train)

    @unittest.skipIf(lightning is None, "lightning is not installed")
    def test_lightning(self):
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

        def train(make, name):
            class Module(lightning.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.model = small_model()

                def training_step(self, batch, _):
                    x, y = batch
                    return (self.model(x) - y).square().mean()

                def configure_optimizers(self):
                    optimizer = make(self.parameters())
                    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
                    return {"optimizer": optimizer, "lr_scheduler": schedule}

            def fit(epochs, checkpoint=None):
                module = Module()
                trainer = lightning.Trainer(
                    accelerator="cpu", max_epochs=epochs, logger=False, enable_progress_bar=False,
                    enable_checkpointing=False, enable_model_summary=False, gradient_clip_val=1.0,
                )  # fmt: skip
                trainer.fit(module, batches(), ckpt_path=checkpoint)
                trainer.save_checkpoint(self.path(f"{name}-{epochs}.ckpt"))
                return [p.detach().clone() for p in module.parameters()]

            fit(1)
            resumed = fit(3, self.path(f"{name}-1.ckpt"))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(resumed, fit(3))))
            return resumed

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.compare(train)
