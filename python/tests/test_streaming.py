"""Rows that are taken while the training needs them: endless ones, the command's bits, resume at the
row, states of data sets, and what ends early or fails."""

import itertools
import json
import os
import signal
import subprocess
import sys

import zinf
from common import MODEL, SMALL, Case, command, free_port, sums


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
                file.write(zinf._rows._States.sealed(json.dumps([place])))
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
            places = json.load(file)["places"]
        self.assertTrue(32 <= len(places) <= 64)
        self.assertEqual(places[-1]["row"], 990)
        again = zinf._rows.Source(Stateful(), self.path("states.json"))
        self.assertEqual(again._skip(None, 995), 0)
        self.assertEqual(again._next(None, out), 1)
        self.assertEqual(json.loads(out[0]), row(995))

    def test_a_state_with_another_bit(self):
        path = self.path("states.json")
        source = zinf._rows.Source(Stateful(), path)
        source.states.EVERY = 10
        out = (zinf._rows.ctypes.c_char_p * 1)()
        for _ in range(22):
            self.assertEqual(source._next(None, out), 1)
        with open(path, "rb") as file:
            good = file.read()
        self.assertEqual(len(json.loads(good)["places"]), 2)
        for bit in range(8 * len(good)):
            damaged = bytearray(good)
            damaged[bit // 8] ^= 1 << bit % 8
            with open(path, "wb") as file:
                file.write(damaged)
            again = zinf._rows.Source(Stateful(), path)
            self.assertLess(again._skip(None, 21), 0, f"bit {bit}")
            self.assertIsInstance(again.failure, zinf.OptionError)
            self.assertIn("states.json", str(again.failure))
            self.assertIn("Remove it", str(again.failure))
        with open(path, "wb") as file:
            file.write(good[:-9])
        self.assertLess(zinf._rows.Source(Stateful(), path)._skip(None, 21), 0)

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

    def run_script(self, text):
        script = f"""
import gc, itertools, os, signal, sys, threading, time, zinf
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_streaming import row
model, output, options = {MODEL!r}, {self.path("out")!r}, {SMALL!r}
later = threading.Event()
def rows(n, then):
    yield from map(row, range(n))
    threading.Timer(0.2, then).start()
    later.wait()
def hit():
    os.kill(os.getpid(), signal.SIGINT)
{text}"""
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", script], capture_output=True, text=True, timeout=100
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_a_source_that_blocks_for_ever(self):
        said, _ = self.run_script("""
for n in (0, 1, 40):
    began = time.monotonic()
    try:
        zinf.train(model, rows(n, hit), output=output, overwrite=True, steps=900, format="text",
                   progress=False, **options)
    except KeyboardInterrupt:
        steps = [c.step for c in zinf.checkpoints(output)] if n > 1 else []
        print(n, len(steps), time.monotonic() - began < 30)
later.set()  # the threads come back, to what must still be there
until = time.monotonic() + 60
while time.monotonic() < until and not all(source.is_done for source in zinf._trainer._left):
    time.sleep(0.01)
gc.collect()
print(len(zinf._trainer._left), all(source.is_done for source in zinf._trainer._left))
""")
        self.assertEqual(said, "0 0 True\n1 0 True\n40 1 True\n3 True\n")

    def test_cancel_ends_a_source_that_blocks(self):
        said, _ = self.run_script("""
for n in (0, 40):
    three = threading.Event()
    trainer = zinf.Trainer(model, rows(n, lambda: (n and three.wait(60), trainer.cancel())),
                           output=output, overwrite=True, steps=900, format="text", progress=False,
                           callbacks=lambda step: step.step > 2 and three.set(), **options)
    try:
        print(n, len(trainer.train().steps) > 2)
    except zinf.Error as error:
        print(n, error)
    del trainer
    gc.collect()
""")
        self.assertEqual(
            said, "0 the training was cancelled before its first step\n40 True\n", said
        )

    def test_signals_are_as_in_the_main_thread(self):
        masks = []

        def rows():  # what it forks inherits them
            for i in itertools.count():
                masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
                yield row(i)

        self.train(rows(), steps=2, format="text", shuffle_buffer=5)
        self.assertEqual(set(map(frozenset, masks)), {frozenset()})

    def test_a_source_keeps_its_own_reason(self):
        class Gone:
            def __iter__(self):
                return map(row, itertools.count())

            def skip(self, n):
                raise OSError(f"row {n} is gone")

        self.train(Gone(), steps=4, save_every=2, format="text")
        with self.assertRaisesRegex(OSError, "is gone"):
            self.train(Gone(), steps=6, format="text", resume=True)

    def test_states_that_are_damaged(self):
        path = self.path("states.json")
        place = {"row": 5, "state": {"at": 5}, "sum": "0"}
        sealed = zinf._rows._States.sealed
        for text, said in (
            (sealed("{}"), "no list of places"),
            ("[{", "no JSON"),
            ("{}", "no JSON with places"),
            ("[]", "no JSON with places"),
            ('{"places": []}', "checksum"),
            (sealed(json.dumps([{**place, "row": "5"}])), "place 0 has no 'row'"),
            (sealed(json.dumps([place, {"row": 6, "sum": ""}])), "place 1 has no 'state'"),
            (sealed(json.dumps([{"row": 6, "state": {}}])), "place 0 has no 'sum'"),
            (sealed(json.dumps([{**place, "state": {"to": 5}}])), "do not take the state of row 5"),
        ):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            source = zinf._rows.Source(Stateful(), path)
            self.assertLess(source._skip(None, 9), 0)
            self.assertIsInstance(source.failure, zinf.OptionError)
            self.assertRegex(str(source.failure), f"{path}: .*{said}.*Remove it")

    def ranks(self, data, **more):
        """Two processes, as torchrun starts them; `data` is an expression of rank's rows. Their texts."""
        options = {**SMALL, "format": "text", "steps": 6, "progress": False, **more}
        script = f"""
import itertools, os, sys, zinf
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_streaming import Stateful, row
rank = int(os.environ["RANK"])
try:
    run = zinf.train({MODEL!r}, {data}, output={self.path("ranks")!r}, **{options!r})
    print(run.steps and [step.loss for step in run.steps])
except zinf.Error as error:
    print(error)
"""
        port = free_port()
        children = [
            subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                env={
                    **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                    "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                    "TORCHELASTIC_RUN_ID": f"rows-{port}", "TORCHELASTIC_RESTART_COUNT": "1",
                },
            )
            for rank in range(2)
        ]  # fmt: skip
        return [child.communicate(timeout=100)[0] for child in children]

    def test_two_processes_share_the_rows(self):
        whole = self.train(map(row, itertools.count()), steps=6, format="text", accumulate=2)
        self.ranks("Stateful()", save_every=3)
        said = self.ranks("Stateful()", resume=f"{self.path('ranks')}/checkpoint-3")
        self.assertEqual(said[1], "[]\n")  # the first one tells
        losses = json.loads(said[0])
        self.assertEqual(len(losses), 3)
        for found, step in zip(losses, whole.steps[3:]):
            self.assertAlmostEqual(found, step.loss, delta=1e-6)
        listed = self.ranks("[row(i) for i in range(60)]", overwrite=True, steps=2)
        self.assertEqual(len(json.loads(listed[0])), 2)
        caches = os.listdir(self.path("ranks/cache"))
        self.assertTrue({"rows.jsonl", "rows-1.jsonl"} <= set(caches), caches)
        for said in self.ranks("map(row, itertools.count(rank))", overwrite=True):
            self.assertIn("the ranks have different rows", said)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(zinf.OptionError, "cannot be counted: give steps=N, or streaming=False"):
            self.train(map(row, range(9)))
        with self.assertRaisesRegex(zinf.OptionError, "counts passes over all rows"):
            self.train([row(0)] * 9, streaming=True, epochs=2)
