"""Trainings from Python: the command's bits, rows, callbacks, Ctrl-C, threads and forks."""

import ctypes
import errno
import gc
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import zinf
from common import MODEL, ROWS, SMALL, Case, command, sums


def flags(options):
    return [f"--{k.replace('_', '-')}={v}" for k, v in options.items()]


class Training(Case):
    def train(self, data=ROWS, model=MODEL, output="out", **more):
        return zinf.train(model, data, output=self.path(output), **{**SMALL, "format": "text", **more})

    def test_the_commands_bits(self):
        data = self.path("rows.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in ROWS)
        options = {**SMALL, "steps": 4, "save_every": 2, "format": "text"}
        command("train", "--model", MODEL, "--data", data, "--output", self.path("c"), *flags(options))
        run = zinf.train(MODEL, data, output=self.path("python"), **options)
        of_rows = zinf.train(MODEL, iter(ROWS), streaming=False, output=self.path("rows"), **options)
        for output in (run.output, of_rows.output):
            for part in ("model", "checkpoint-2", "checkpoint-4"):
                found, wanted = sums(os.path.join(output, part)), sums(os.path.join(self.path("c"), part))
                tensors = [n for n in wanted if n.endswith(".safetensors") or n.endswith(".bin")]
                self.assertEqual(set(found), set(wanted))
                self.assertTrue(tensors, wanted)
                self.assertFalse([n for n in tensors if found[n] != wanted[n]], part)
        self.assertEqual([(s.step, s.steps) for s in run.steps], [(i, 4) for i in range(1, 5)])
        self.assertEqual(set(run.checkpoints), {2, 4})
        self.assertEqual([c.step for c in zinf.checkpoints(run.output)], [2, 4])
        self.assertEqual(run.steps[-1].loss, of_rows.steps[-1].loss)

    def test_callbacks(self):
        heard = []

        class Listener:
            def on_step(self, step):
                heard.append(("step", step.step))

            def on_evaluation(self, step, measure):
                heard.append(("evaluation", step, math.isfinite(measure.loss)))

            def on_checkpoint(self, step, folder):
                heard.append(("checkpoint", step, os.path.isdir(folder)))

        run = self.train(steps=2, eval_data=ROWS[:8], eval_every=1, save_every=2, callbacks=[Listener()])
        self.assertEqual([h for h in heard if h[0] == "step"], [("step", 1), ("step", 2)])
        self.assertIn(("evaluation", 2, True), heard)
        self.assertIn(("checkpoint", 2, True), heard)
        self.assertIn("steps 1 to 2 of 2", repr(run))
        self.assertIn("<svg", run._repr_html_())

    def test_sets_by_weight_and_by_name(self):
        files = {}
        for name, n in (("a", 30), ("b", 9)):
            files[name] = self.path(f"{name}.txt")
            with open(files[name], "w", encoding="utf-8") as file:
                file.write(f"text of {name} that goes on. " * n)
        options = {**SMALL, "steps": 4, "eval_every": 2}
        heard = []
        run = zinf.train(
            MODEL,
            {files["a"]: 3, files["b"]: 1},
            output=self.path("python"),
            eval_data=files,
            callbacks=[type("L", (), {"on_evaluation": lambda _, step, m: heard.append((step, m.set))})()],
            **options,
        )
        sets = [word for name, path in files.items() for word in ("--eval-data", f"{name}={path}")]
        command(
            "train", "--model", MODEL, "--data", f"{files['a']}:3", f"{files['b']}:1", *sets,
            "--output", self.path("c"), *flags(options),
        )  # fmt: skip
        found, wanted = sums(os.path.join(run.output, "model")), sums(os.path.join(self.path("c"), "model"))
        self.assertEqual(found["model.safetensors"], wanted["model.safetensors"])
        self.assertEqual(heard, [(2, "a"), (2, "b"), (4, "a"), (4, "b")])
        self.assertEqual(set(run.evaluations[4]), {"a", "b"})
        last = zinf.evaluate(os.path.join(run.output, "model"), files, seq_len=32, device="host")
        self.assertEqual(set(last), {"a", "b"})
        for name in files:
            self.assertAlmostEqual(last[name].loss, run.evaluations[4][name].loss, delta=1e-5)
        self.assertIn("; a ", repr(run))

    def test_a_callback_that_fails_ends_the_training_saved(self):
        def fails(step):
            if step.step == 2:
                raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.train(steps=6, callbacks=fails)
        self.assertEqual([c.step for c in zinf.checkpoints(self.path("out"))], [2])

    def test_stop_and_resume_at_the_rows_position(self):
        def stops(step):
            if step.step == 3:
                raise zinf.Stop

        class Counted:
            def __init__(self):
                self.skipped = self.read = 0

            def skip(self, n):
                self.skipped = n
                return ROWS[n:]

            def __iter__(self):
                return iter(ROWS)

        whole = self.train(output="whole", steps=6)
        first = self.train(steps=6, callbacks=stops)
        self.assertEqual(first.steps[-1].step, 3)
        counted = Counted()
        rest = self.train(counted, steps=6, resume=True, streaming=False)
        self.assertEqual(counted.skipped, len(ROWS))
        self.assertEqual(
            [(s.step, s.loss) for s in first.steps + rest.steps],
            [(s.step, s.loss) for s in whole.steps],
        )
        with self.assertRaisesRegex(zinf.OptionError, "data has 3 rows, but"):
            self.train(ROWS[:3], steps=8, resume=True)

    def test_rows_that_fail(self):
        def rows():
            yield ROWS[0]
            raise OSError("the source is gone")

        with self.assertRaisesRegex(OSError, "the source is gone"):
            self.train(rows(), steps=1)
        with self.assertRaisesRegex(zinf.OptionError, "a row is a int"):
            self.train([1, 2], steps=1)
        with self.assertRaisesRegex(zinf.OptionError, "data is int"):
            self.train(5, steps=1)

    def test_ctrl_c_saves_and_raises(self):
        script = f"""
import os, signal, zinf
def hit(step):
    if step.step == 2:
        os.kill(os.getpid(), signal.SIGINT)
try:
    zinf.train({MODEL!r}, {ROWS!r}, output={self.path("out")!r}, steps=100000, callbacks=hit,
               format="text", **{SMALL!r})
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.stdout, done.returncode), ("interrupted True\n", 0), done.stderr)
        self.assertIn("SIGINT: stopping after this step", done.stderr)
        steps = [c.step for c in zinf.checkpoints(self.path("out"))]
        self.assertEqual(len(steps), 1)
        self.assertLess(steps[0], 10)

    def test_ctrl_c_while_rows_are_copied(self):
        """It is raised, and no training goes on with the rows that were there by then."""

        def rows(blocks):
            yield from ROWS[:5]
            if blocks:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(60)
            for row in ROWS:
                os.kill(os.getpid(), signal.SIGINT)
                yield row

        for blocks in (False, True):
            with self.assertRaises(KeyboardInterrupt):
                self.train(rows(blocks), steps=1, streaming=False)
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_ctrl_c_before_the_training_begins(self):
        """While Python is on its way to the library: before it watches for interrupts, and behind
        the last line of Python. The next training has forgotten it."""

        def sends(call):
            def sending(*args):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)  # until it has been heard
                return call(*args)

            return sending

        steps = []
        with zinf.Trainer(
            MODEL, ROWS, output=self.path("out"), steps=60, format="text", overwrite=True,
            callbacks=lambda step: steps.append(step.step), **SMALL,
        ) as trainer:  # fmt: skip
            with mock.patch.object(trainer, "_give_rows", sends(trainer._give_rows)):
                self.assertRaises(KeyboardInterrupt, trainer.train)
            self.assertEqual(steps, [])
            train = zinf._library.lib.zinf_session_train
            with mock.patch.object(zinf._library.lib, "zinf_session_train", sends(train)):
                self.assertRaises(KeyboardInterrupt, trainer.train)
            self.assertEqual(steps, [1])
            steps.clear()
            with mock.patch.object(
                zinf._library.lib, "zinf_session_train", lambda *args: (train(*args), trainer.cancel())[0]
            ):
                trainer.train()
            trainer.train()
            self.assertEqual(steps, [*range(1, 61), *range(1, 61)])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_ctrl_c_where_nobody_can_watch(self):
        """Without a pipe or a thread for it a training does not begin, and Ctrl-C stays what it was."""

        def no_more(*_args):
            raise OSError(errno.EMFILE, "no more")

        for owner, name in ((os, "pipe"), (threading.Thread, "start")):
            open_files = os.listdir("/proc/self/fd")
            with mock.patch.object(owner, name, no_more), self.assertRaises(OSError):
                with zinf._interrupt.SavedOnInterrupt(lambda: None):
                    pass
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
            self.assertEqual(signal.set_wakeup_fd(-1), -1)
            self.assertEqual(len(os.listdir("/proc/self/fd")), len(open_files))

    def test_a_second_ctrl_c_ends_at_once(self):
        script = f"""
import os, signal, threading, time, zinf
def hit(step):
    if step.step == 1:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.8)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
zinf.train({MODEL!r}, {ROWS!r}, output={self.path("out")!r}, steps=9, callbacks=hit, format="text",
           **{SMALL!r})
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, -signal.SIGINT, done.stderr)

    def test_a_trainer_is_for_one_call_at_a_time(self):
        said = []

        def again(step):
            for call in (lambda: trainer.generate("a"), lambda: trainer.plan()):
                try:
                    call()
                except zinf.Error as error:
                    said.append(str(error))

        trainer = zinf.Trainer(
            MODEL, ROWS, output=self.path("out"), steps=1, callbacks=again, format="text", **SMALL
        )
        trainer.train()
        self.assertEqual(len(said), 2)
        self.assertIn("is at work", said[0])
        trainer.close()
        with self.assertRaisesRegex(zinf.Error, "is closed"):
            trainer.plan()

    def test_threads_and_collection(self):
        losses = []

        def work(i):
            run = self.train(output=f"out-{i}", steps=3, callbacks=lambda step: gc.collect())
            losses.append([step.loss for step in run.steps])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(losses), 2)
        self.assertEqual(losses[0], losses[1])

    def test_a_forked_process_leaves_the_session_alone(self):
        trainer = zinf.Trainer(MODEL, ROWS, output=self.path("out"), steps=2, format="text", **SMALL)
        trainer.train()
        child = os.fork()
        if not child:
            try:
                trainer.plan()
            except zinf.Error as error:
                del trainer
                gc.collect()
                os._exit(17 if "forked" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 17)
        self.assertGreater(trainer.evaluate().loss, 0)
        trainer.close()

    def test_an_adapter_by_peft_names(self):
        run = self.train(steps=1, lora={"r": 4, "lora_alpha": 8, "target_modules": ["c_attn"]})
        with open(os.path.join(run.model, "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["r"], config["lora_alpha"]), (4, 8))
        folder = zinf.export(run.model, self.path("merged"), merge=True, model=MODEL)
        self.assertTrue(os.path.exists(os.path.join(folder, "config.json")))
        joined = zinf.join_adapters({run.model: 0.5, run.output: 0.5}, self.path("joined"))
        self.assertTrue(os.path.exists(os.path.join(joined, "adapter_config.json")))
        with self.assertRaises(zinf.Error):
            zinf.export(self.path("nowhere"), self.path("x"))


class Steps(Case):
    def trainer(self, **more):
        options = {"device": "host", "seq_len": 16, "micro_batch": 2, "lr": 1e-2, "dtype": "fp32"}
        return zinf.Trainer(MODEL, **{**options, **more})

    def test_steps_learn_and_texts_follow(self):
        ids = [[97, 98] * 8] * 2
        with self.trainer(temperature=0, max_new_tokens=4) as trainer:
            before = trainer.generate("abab")
            losses = [trainer.step(ids).loss for _ in range(60)]
            after = trainer.generate(["abab", "ab"])
            logits = trainer.logits([97, 98, 97])
            self.assertEqual(len(logits), trainer.vocabulary)
            self.assertEqual(max(range(len(logits)), key=lambda i: logits[i]), 98)
            trainer.save(self.path("saved"))
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertEqual((after[0], after[0].finish, after[0].prompt_tokens), ("abab", "length", 4))
        self.assertNotEqual(before, after[0])
        pieces = []
        again = zinf.generate(
            self.path("saved"), "abab", temperature=0, max_new_tokens=4, device="host",
            dtype="fp32", stream=pieces.append,
        )
        self.assertEqual(again, after[0])
        self.assertIn(b"abab", b"".join(pieces))

    def test_labels_stand_where_ids_do(self):
        ids = [list(range(97, 113))] * 2
        targets = [row[1:] + [-1] for row in ids]
        losses = []
        for given in ((ids,), (ids, targets), ({"input_ids": ids, "labels": ids},)):
            with self.trainer() as trainer:
                losses.append(trainer.step(*given).loss)
        self.assertEqual(len(set(losses)), 1)
        with self.trainer() as trainer:
            with self.assertRaisesRegex(zinf.OptionError, "3 ids, but a step takes 32"):
                trainer.step([1, 2, 3])

    def test_gradients(self):
        with self.trainer(data=ROWS, format="text") as trainer:
            loss, norm = trainer.gradients(self.path("gradients.safetensors"))
        self.assertTrue(loss > 0 and norm > 0 and os.path.exists(self.path("gradients.safetensors")))


class Embeddings(Case):
    def test_the_commands_embeddings(self):
        texts = [r["text"] for r in ROWS[:7]] + ["word"]
        data = self.path("rows.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        words = ["--device=host", "--pooling=mean", "--seq-len=32", "--dtype=fp32"]
        lines = command("embed", "--model", MODEL, "--data", data, *words).splitlines()
        wanted = [json.loads(line)["embedding"] for line in lines]
        options = {"device": "host", "pooling": "mean", "seq_len": 32, "dtype": "fp32"}
        for found in (zinf.embed(MODEL, texts, **options), zinf.embed(MODEL, data=data, **options)):
            self.assertEqual(found.tolist(), [[_single(x) for x in row] for row in wanted])
        one = zinf.embed(MODEL, texts[0], **options)
        self.assertEqual(list(one), [_single(x) for x in wanted[0]])
        with self.assertRaisesRegex(zinf.OptionError, "give one of them"):
            zinf.embed(MODEL)

    def test_a_trainer_goes_on_after_it(self):
        with zinf.Trainer(MODEL, ROWS, output=self.path("out"), steps=1, format="text", **SMALL) as t:
            self.assertEqual(t.embed().shape[0], len(ROWS))
            self.assertEqual(t.train().steps[-1].step, 1)


def _single(x):
    return ctypes.c_float(x).value
