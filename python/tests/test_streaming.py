"""Rows that are taken while the training needs them: endless ones, the command's bits, resume at the
row, states of data sets, and what ends early or fails."""

import itertools
import json
import os
import subprocess
import sys

import zinf
from common import MODEL, SMALL, Case, command, sums


def row(i):
    return {"text": f"row {i} of many, {i * 7 % 11} more. " * (1 + i % 3)}


class Stateful:
    """Rows as a `datasets.IterableDataset` has them; `lossy`: a state does not say all."""

    def __init__(self, lossy=False):
        self.at = self.begin = 0
        self.lossy = lossy
        self.given = 0

    def __iter__(self):
        self.at = self.begin
        while True:
            self.at += 1
            self.given += 1
            yield row(self.at - 1)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.begin = state["at"] + (2 if self.lossy and state["at"] else 0)


class Streaming(Case):
    def train(self, data, output="out", **more):
        return zinf.train(MODEL, data, output=self.path(output), progress=False, **{**SMALL, **more})

    def model_of(self, output):
        return sums(self.path(output))[os.path.join("model", "model.safetensors")]

    def test_an_endless_generator_trains_and_ends(self):
        taken = []

        def rows():
            for i in itertools.count():
                taken.append(i)
                yield row(i)

        for form in ("stream", "text"):
            taken.clear()
            run = self.train(rows(), output=form, steps=5, format=form)
            self.assertEqual(run.steps[-1].step, 5)
            self.assertLess(len(taken), 40)
            self.assertFalse(os.listdir(os.path.join(run.output, "cache")))

    def test_the_commands_bits(self):
        data = self.path("rows.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row(i)) + "\n" for i in range(90))
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
        for more in ({}, {"format": "text", "shuffle_buffer": 16}):
            words = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
            command(
                "train", "--model", MODEL, "--data", data, "--output", self.path("c"), *flags,
                *words, "--steps=7", "--streaming", "--overwrite",
            )  # fmt: skip
            self.train(map(row, range(90)), steps=7, overwrite=True, **more)
            self.assertEqual(self.model_of("out"), self.model_of("c"))
        self.train([row(i) for i in range(90)], output="listed", streaming=True, steps=7, **more)
        self.assertEqual(self.model_of("listed"), self.model_of("c"))

    def test_a_killed_training_goes_on_at_its_row(self):
        options = {**SMALL, "steps": 12, "save_every": 4}
        script = f"""
import itertools, os, signal, sys, zinf
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_streaming import row
def kill(step):
    if step.step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
zinf.train({MODEL!r}, map(row, itertools.count()), output={self.path("out")!r}, callbacks=kill,
           progress=False, **{options!r})
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
        self.assertLess(done.returncode, 0, done.stderr)
        skipped = []

        class Skips:
            def __iter__(self):
                return map(row, itertools.count())

            def skip(self, n):
                skipped.append(n)
                return map(row, itertools.count(n))

        self.train(Skips(), resume=True, **options)
        self.assertEqual(len(skipped), 1)
        self.assertGreater(skipped[0], 1)
        self.train(map(row, itertools.count()), output="whole", **options)
        self.assertEqual(self.model_of("out"), self.model_of("whole"))

    def test_data_that_have_a_state_go_on_by_it(self):
        constant = {"format": "text", "lr_scheduler": "constant"}
        self.train(Stateful(), output="whole", steps=40, **constant)
        for lossy in (False, True):
            output = f"lossy-{lossy}"
            self.train(Stateful(lossy), output=output, steps=30, save_every=30, **constant)
            self.assertTrue(os.path.exists(self.path(f"{output}/checkpoint-30")))
            states = self.path(f"{output}/cache/rows-state.json")
            with open(states, "w", encoding="utf-8") as file:  # as after many rows
                text = json.dumps(row(41)).encode()
                place = {"row": 41, "state": {"at": 41}, "sum": zinf._rows.hashlib.sha256(text).hexdigest()}
                json.dump([place], file)
            again = Stateful(lossy)
            if lossy:
                with self.assertLogs("zinf", "WARNING") as said:
                    self.train(again, output=output, steps=40, resume=True, **constant)
                self.assertIn("read again from the first", "".join(said.output))
            else:
                self.train(again, output=output, steps=40, resume=True, **constant)
                self.assertLess(again.given, 50)
            self.assertEqual(self.model_of(output), self.model_of("whole"))

    def test_states_are_kept(self):
        source = zinf._rows.Source(Stateful(), self.path("states.json"))
        source.states.EVERY = 10
        given = zinf._rows.NEXT_ROW(source._next)
        out = (zinf._rows.ctypes.c_char_p * 1)()
        for _ in range(1000):
            self.assertEqual(given(None, out), 1)
        with open(self.path("states.json"), encoding="utf-8") as file:
            places = json.load(file)
        self.assertTrue(32 <= len(places) <= 64)
        self.assertEqual(places[-1]["row"], 990)
        again = zinf._rows.Source(Stateful(), self.path("states.json"))
        self.assertEqual(again._skip(None, 995), 0)
        self.assertEqual(again._next(None, out), 1)
        self.assertEqual(json.loads(out[0]), row(995))

    def test_rows_that_end_begin_again_or_end_the_training(self):
        rows = [row(i) for i in range(9)]
        run = self.train(iter(rows), output="once", steps=60, format="text")
        self.assertEqual(run.steps[-1].step, 4)
        self.assertTrue(os.path.exists(os.path.join(run.model, "config.json")))
        run = self.train(rows, output="again", steps=60, format="text", streaming=True)
        self.assertEqual(run.steps[-1].step, 60)
        with self.assertRaisesRegex(zinf.OptionError, "ended before there were the 2 windows"):
            self.train(iter(rows[:1]), output="few", steps=2, format="text")

    def test_rows_that_fail_on_the_way(self):
        def rows():
            yield from map(row, range(21))
            raise OSError("the source is gone")

        with self.assertRaisesRegex(OSError, "the source is gone"):
            self.train(rows(), steps=60, format="text", save_every=4)
        self.assertTrue(os.path.exists(self.path("out/checkpoint-8")))
        run = self.train(rows(), output="short", steps=3, format="text")
        self.assertEqual(run.steps[-1].step, 3)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(zinf.OptionError, "cannot be counted: give steps=N, or streaming=False"):
            self.train(map(row, range(9)))
        with self.assertRaisesRegex(zinf.OptionError, "counts passes over all rows"):
            self.train([row(0)] * 9, streaming=True, epochs=2)
