"""Optimizers against torch's own, with state in RAM and on a drive."""

import copy
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import unittest
from unittest import mock

import zinf
from common import Case

try:
    import torch
except ImportError:
    torch = None

STEPS = 50


class LionAsWritten:
    """Algorithm 2 of arXiv 2302.06675. unsure: elements whose sign was once that of a sum that
    cancels to rounding, and so may be either."""

    def __init__(self, params, lr, betas, weight_decay):
        self.params, self.lr, self.betas, self.weight_decay = params, lr, betas, weight_decay
        self.moments = [torch.zeros_like(p) for p in params]
        self.sizes = [torch.zeros_like(p) for p in params]  # moments of the gradients' sizes
        self.unsure = [torch.zeros_like(p, dtype=torch.bool) for p in params]

    def step(self):
        with torch.no_grad():
            for p, m, size, unsure in zip(self.params, self.moments, self.sizes, self.unsure):
                c = self.betas[0] * m + (1 - self.betas[0]) * p.grad
                of = self.betas[0] * size + (1 - self.betas[0]) * p.grad.abs()
                unsure |= (c.abs() < 1e-5 * of) & (of != 0)
                size.mul_(self.betas[1]).add_(p.grad.abs(), alpha=1 - self.betas[1])
                # Two steps, as there: a sign's steps are all of one size, and so are their
                # roundings, which add up. Nor p * (1 - lr decay), a factor that is rounded itself.
                p.add_(p.clone(), alpha=-self.lr * self.weight_decay)
                p.sub_(self.lr * torch.sign(c))
                m.mul_(self.betas[1]).add_(p.grad, alpha=1 - self.betas[1])


@unittest.skipIf(torch is None, "torch is not installed")
class Optimizers(Case):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # for so small tensors

    def model(self, dtype=None):
        """A small transformer, the same each time. Without biases: that of keys has a gradient of
        nothing but rounding, by which Adam would divide."""
        torch.manual_seed(3)
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, bias=False)
        model = torch.nn.Sequential(torch.nn.Embedding(65, 32), layer, torch.nn.Linear(32, 65))
        return model.to(dtype or torch.float32)

    def learn(self, model, optimizer, steps=STEPS, first=0, scheduler=None, tape=None):
        """The weights after these steps. tape: gradients of each step, played where it has them,
        else recorded."""
        for i in range(first, first + steps):
            generator = torch.Generator().manual_seed(i)
            ids = torch.randint(65, (4, 17), generator=generator)
            out = model(ids[:, :-1]).float().flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(out, ids[:, 1:].flatten())
            model.zero_grad()
            loss.backward()
            if tape is not None and i < len(tape):
                for p, grad in zip(model.parameters(), tape[i]):
                    p.grad.copy_(grad)
            elif tape is not None:
                tape.append([p.grad.clone() for p in model.parameters()])
            optimizer.step()
            if scheduler:
                scheduler.step()
        return torch.cat([p.detach().float().flatten() for p in model.parameters()])

    def close(self, made, wanted):
        off = ((made - wanted).norm() / wanted.norm()).item()
        self.assertLess(off, 1e-6)
        self.assertGreater((wanted - self.start()).norm().item(), 1e-3)

    def start(self):
        return torch.cat([p.detach().flatten() for p in self.model().parameters()])

    def drive(self, **more):
        return {"state": "nvme", "path": self.folder, "buffer_bytes": 100_000, **more}

    def cases(self):
        own = torch.optim
        yield "AdamW", dict(lr=1e-3, weight_decay=0.1), own.AdamW
        yield "Adam", dict(lr=1e-3, weight_decay=1e-3), own.Adam
        yield "Adagrad", dict(lr=1e-3, weight_decay=1e-3, initial_accumulator_value=0.1), own.Adagrad
        yield "SGD", dict(lr=1e-2, momentum=0.9, weight_decay=1e-3), own.SGD
        yield "Lion", dict(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1), LionAsWritten

    def test_against_torch_and_the_same_bits_on_a_drive(self):
        for name, settings, own in self.cases():
            with self.subTest(name):
                model, kind = self.model(), getattr(zinf, name)
                # A sign has no small errors: both see the same gradients.
                tape = [] if name == "Lion" else None
                reference = own(list(model.parameters()), **settings)
                wanted = self.learn(model, reference, tape=tape)
                model = self.model()
                made = self.learn(model, kind(model.parameters(), **settings), tape=tape)
                unsure = torch.zeros_like(made, dtype=torch.bool)
                if name == "Lion":
                    unsure = torch.cat([u.flatten() for u in reference.unsure])
                    self.assertLess(unsure.float().mean().item(), 2e-3)
                self.close(torch.where(unsure, wanted, made), wanted)
                model = self.model()
                there = self.learn(
                    model, kind(model.parameters(), **settings, **self.drive()), tape=tape
                )
                self.assertTrue(torch.equal(made, there))

    def test_masters_of_bf16(self):
        settings = dict(lr=1e-3, weight_decay=0.1)
        model = self.model(torch.bfloat16)
        optimizer = zinf.AdamW(model.parameters(), **settings)
        made = self.learn(model, optimizer)
        for p in model.parameters():
            master = optimizer.state[p]["master"]
            self.assertTrue(torch.equal(master.to(torch.bfloat16), p.detach()))
        model = self.model(torch.bfloat16)
        there = self.learn(model, zinf.AdamW(model.parameters(), **settings, **self.drive()))
        self.assertTrue(torch.equal(made, there))

    def test_saved_loaded_and_from_torch(self):
        whole_model = self.model()
        whole = self.learn(whole_model, zinf.AdamW(whole_model.parameters()), 10)
        for first, second in (({}, self.drive()), (self.drive(), {}), (self.drive(), self.drive())):
            model = self.model()
            before = zinf.AdamW(model.parameters(), **first)
            self.learn(model, before, 6)
            torch.save(before.state_dict(), self.path("state.pt"))
            after = zinf.AdamW(model.parameters(), lr=9.0, **second)
            after.load_state_dict(torch.load(self.path("state.pt")))
            self.assertTrue(torch.equal(self.learn(model, after, 4, 6), whole))
        model = self.model()
        own = torch.optim.AdamW(model.parameters())
        self.learn(model, own, 6)
        ours = zinf.AdamW(model.parameters())
        ours.load_state_dict(own.state_dict())
        self.close(self.learn(model, ours, 4, 6), whole)

    def test_a_state_dict_of_drives_stays_as_it_is(self):
        model = self.model()
        optimizer = zinf.AdamW(model.parameters(), **self.drive())
        self.learn(model, optimizer, 2)
        found = optimizer.state_dict()["state"]
        kept = copy.deepcopy(found)
        self.learn(model, optimizer, 1)
        for number, state in kept.items():
            for name, value in state.items():
                self.assertTrue(torch.equal(found[number][name], value), name)

    def test_what_only_torch_does(self):
        """A state_dict, or a group, that asks for another formula is not taken for this one's."""
        param = torch.nn.Parameter(torch.ones(3))
        param.grad = torch.ones(3)
        for ours, theirs, key in (
            (zinf.AdamW, torch.optim.AdamW([param], amsgrad=True), "amsgrad"),
            (zinf.Adam, torch.optim.Adam([param], maximize=True), "maximize"),
            (zinf.SGD, torch.optim.SGD([param], momentum=0.9, nesterov=True), "nesterov"),
            (zinf.SGD, torch.optim.SGD([param], momentum=0.9, dampening=0.5), "dampening"),
            (zinf.Adagrad, torch.optim.Adagrad([param], lr_decay=0.1), "lr_decay"),
        ):
            theirs.step()
            optimizer = ours([param])
            with self.assertRaisesRegex(zinf.UnsupportedError, f"a group has {key}="):
                optimizer.load_state_dict(theirs.state_dict())
            with self.assertRaisesRegex(zinf.UnsupportedError, f"a group has {key}="):
                ours([{"params": [param], key: theirs.param_groups[0][key]}])
        theirs = torch.optim.Adam([param], weight_decay=0.1)
        with self.assertRaisesRegex(zinf.OptionError, "decoupled_weight_decay=False.*use Adam"):
            zinf.AdamW([param]).load_state_dict(theirs.state_dict())
        zinf.Adam([param]).load_state_dict(theirs.state_dict())

    def test_numbers_out_of_range(self):
        param = torch.nn.Parameter(torch.ones(3))
        for key, value in (
            ("lr", -1e-3), ("lr", float("nan")), ("eps", -1.0), ("weight_decay", -0.1),
            ("betas", (1.0, 0.9)), ("betas", (0.9, -0.1)),
        ):  # fmt: skip
            with self.assertRaisesRegex(ValueError, f"{key} (is|are) "):
                zinf.AdamW([param], **{key: value})
        with self.assertRaisesRegex(ValueError, "momentum is -0.9"):
            zinf.SGD([param], momentum=-0.9)

    def test_state_of_another_model(self):
        other = torch.nn.Parameter(torch.ones(3))
        before = zinf.AdamW([other])
        other.sum().backward()
        before.step()
        for more in ({}, self.drive()):
            after = zinf.AdamW([torch.nn.Parameter(torch.ones(1000))], **more)
            with self.assertRaisesRegex(zinf.OptionError, "3 elements of exp_avg.*needs 1000"):
                after.load_state_dict(before.state_dict())

    def test_parameters_that_change(self):
        """Another size is refused, and changes nothing; other values and other types are taken."""
        for more in ({}, self.drive()):
            for size in (10, 100000):
                p = torch.nn.Parameter(torch.ones(1000))
                optimizer = zinf.AdamW([p], lr=0.5, weight_decay=0, **more)
                p.grad = torch.ones(1000)
                optimizer.step()
                p.data = torch.ones(size)
                with self.assertRaisesRegex(zinf.OptionError, f"1000 elements.*parameter {size}"):
                    optimizer.step()
                p.grad = None
                p.grad = torch.ones(size)
                with self.assertRaisesRegex(zinf.OptionError, f"{size} elements.*state is for 1000"):
                    optimizer.step()
                self.assertTrue(torch.equal(p.detach(), torch.ones(size)))
        p = torch.nn.Parameter(torch.ones(4))
        optimizer = zinf.AdamW([p], lr=0.5, weight_decay=0)
        for value, dtype in enumerate((torch.float32, torch.bfloat16, torch.float32, torch.bfloat16)):
            p.grad = None
            p.data = torch.full((4,), float(value), dtype=dtype)
            p.grad = torch.ones(4, dtype=dtype)
            optimizer.step()
            self.assertTrue(torch.allclose(p.detach().float(), torch.full((4,), value - 0.5)), value)

    def test_parameters_without_elements(self):
        for more in ({}, self.drive()):
            some, none = (torch.nn.Parameter(torch.ones(n)) for n in (5, 0))
            optimizer = zinf.AdamW([some, none], lr=0.5, weight_decay=0, in_backward=1, **more)
            (some.sum() + none.sum()).backward()
            optimizer.step()
            self.assertTrue(torch.allclose(some.detach(), torch.full((5,), 0.5)))

    def test_gradients_that_are_not_reduced_yet(self):
        """Under DistributedDataParallel, of one process and of two."""
        script = """
import sys, torch, zinf
from torch import distributed
distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]),
                               world_size=int(sys.argv[3]))
model = torch.nn.Linear(3, 2)
try:
    optimizer = zinf.AdamW(model.parameters(), in_backward=1)
    if sys.argv[3] == "1":
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()  # nothing reduces there
        optimizer = zinf.AdamW(model.parameters(), in_backward=1)
        model = torch.nn.parallel.DistributedDataParallel(model)
        model(torch.ones(1, 3)).sum().backward()
except zinf.UnsupportedError as error:
    print(error)
zinf.AdamW(model.parameters()).step()
"""
        for world in (1, 2):
            words = [sys.executable, "-c", script, self.path(f"meeting-{world}")]
            runs = [
                subprocess.Popen(
                    [*words, str(rank), str(world)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
                for rank in range(world)
            ]
            for run in runs:
                said, failed = run.communicate(timeout=120)
                self.assertEqual(run.returncode, 0, failed)
                self.assertIn("before it is reduced over the processes: leave in_backward out", said)

    def test_moments_of_8_bits(self):
        for dtype in (torch.float32, torch.bfloat16):
            model = self.model(dtype)
            optimizer = zinf.AdamW8bit(model.parameters(), lr=1e-3)
            made = self.learn(model, optimizer)
            state = optimizer.state[model[0].weight]
            kept = sum(v.numel() * v.element_size() for k, v in state.items() if k.startswith("exp_avg"))
            self.assertLess(kept, 2.1 * model[0].weight.numel())
            model = self.model(dtype)
            wanted = self.learn(model, zinf.AdamW(model.parameters(), lr=1e-3))
            moved = (wanted - self.start()).norm().item()
            self.assertLess((made - wanted).norm().item(), 0.1 * moved)
            model = self.model(dtype)
            before = zinf.AdamW8bit(model.parameters(), lr=1e-3, **self.drive())
            self.learn(model, before, 20)
            torch.save(before.state_dict(), self.path("state.pt"))
            after = zinf.AdamW8bit(model.parameters(), **self.drive())
            after.load_state_dict(torch.load(self.path("state.pt")))
            self.assertTrue(torch.equal(self.learn(model, after, STEPS - 20, 20), made))
        with self.assertRaisesRegex(zinf.OptionError, "load that of the same optimizer"):
            zinf.AdamW(model.parameters()).load_state_dict(after.state_dict())

    def test_groups_schedules_and_frozen_parameters(self):
        results = []
        for kind, more in ((torch.optim.AdamW, {}), (zinf.AdamW, {}), (zinf.AdamW, self.drive())):
            model = self.model()
            model[0].weight.requires_grad_(False)
            groups = [
                {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
            ]
            optimizer = kind(groups, lr=1e-3, **more)
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 20)
            results.append(self.learn(model, optimizer, scheduler=schedule))
        self.close(results[1], results[0])
        self.assertTrue(torch.equal(results[1], results[2]))

    def test_in_the_backward_pass(self):
        for dtype in (torch.float32, torch.bfloat16):
            for kind in (zinf.AdamW, zinf.AdamW8bit):
                model = self.model(dtype)
                wanted = self.learn(model, kind(model.parameters()), 10)
                for more in ({}, self.drive()):
                    with self.subTest(str(dtype), kind=kind.__name__, **more):
                        model = self.model(dtype)
                        optimizer = kind(model.parameters(), in_backward=1, **more)
                        made = self.learn(model, optimizer, 10)
                        self.assertTrue(torch.equal(made, wanted))
                        self.assertTrue(all(p.grad is None for p in model.parameters()))

    def test_gradients_summed_over_backward_passes(self):
        """Weights that are tied, that one pass alone reaches, that none reaches, that change theirs."""
        results = []
        for more in ({}, {"in_backward": 2}, {"in_backward": 2, **self.drive(buffer_bytes=1)}):
            model = self.model()
            model[0].weight = model[2].weight
            extra = torch.nn.Linear(32, 65)
            params = [*model.parameters(), *extra.parameters(), torch.nn.Parameter(torch.ones(9000))]
            optimizer = zinf.AdamW(params, lr=1e-3, **more)
            for i in range(6):
                extra.weight.requires_grad_(i != 3)
                for head in (model[2], extra):
                    ids = torch.arange(40).view(2, 20) + i
                    head(model[1](model[0](ids))).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            results.append(torch.cat([p.detach().flatten() for p in params]))
        self.assertTrue(torch.equal(results[0], results[1]))
        self.assertTrue(torch.equal(results[0], results[2]))

    def test_what_the_backward_pass_cannot(self):
        for more in ({}, self.drive()):
            model = self.model()
            optimizer = zinf.AdamW(model.parameters(), in_backward=1, **more)
            loss = model(torch.arange(8).view(1, 8)).square().mean()
            loss.backward(retain_graph=True)
            with self.assertRaisesRegex(zinf.Error, "call step.. before this"):
                optimizer.state_dict()
            with self.assertRaisesRegex(zinf.Error, "made 2 times before"):
                loss.backward()
            worker = optimizer._worker
            self.assertFalse(worker.done.is_set())
            del optimizer  # in the middle of a step
            gc.collect()
            self.assertTrue(worker.done.is_set())
            self.assertEqual(os.listdir(self.folder), [])
            loss = model(torch.arange(8).view(1, 8)).square().mean()
            model.zero_grad()
            loss.backward()
            self.assertIsNotNone(model[2].weight.grad)
        gone = zinf.AdamW(model.parameters(), in_backward=1, state="nvme", path=self.path("nowhere"))
        with self.assertRaisesRegex(zinf.NotFoundError, "nowhere"):
            model(torch.arange(8).view(1, 8)).square().mean().backward()
        del gone
        with self.assertRaisesRegex(zinf.UnsupportedError, "save its state_dict"):
            copy.deepcopy(zinf.AdamW(model.parameters()))
        with self.assertRaisesRegex(zinf.OptionError, "in_backward is -1"):
            zinf.AdamW(model.parameters(), in_backward=-1)

    def test_interrupts_forks_and_collection(self):
        """At odd moments; after them steps go on, and nothing is left."""

        def interrupt(*_):
            raise KeyboardInterrupt

        numbers = torch.utils.data.TensorDataset(torch.arange(4))
        before, heard = signal.signal(signal.SIGALRM, interrupt), 0
        try:
            for more in ({}, {"in_backward": 1}):
                model = self.model()
                optimizer = zinf.AdamW(model.parameters(), **self.drive(), **more)
                for i in range(60):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.0004 * (1 + i % 29))
                        self.learn(model, optimizer, 1, i)
                        gc.collect()
                    except KeyboardInterrupt:
                        heard += 1
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    if i % 20 == 7:  # workers are forked while gradients wait for their update
                        optimizer.step()  # of the backward pass that was interrupted
                        optimizer.zero_grad()
                        model(torch.arange(8).view(1, 8)).square().mean().backward()
                        loader = torch.utils.data.DataLoader(numbers, num_workers=2)
                        self.assertEqual(sum(x.item() for (x,) in loader), 6)
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertTrue(torch.isfinite(model[2].weight).all())
                optimizer.state_dict()
                del optimizer
                gc.collect()
                self.assertEqual(os.listdir(self.folder), [])
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertGreater(heard, 5)

    def test_gradient_scaler(self):
        results = []
        for kind, more in ((torch.optim.AdamW, {}), (zinf.AdamW, {}), (zinf.AdamW, self.drive())):
            model = self.model()
            optimizer = kind(model.parameters(), lr=1e-3, **more)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=3)
            for i in range(8):
                out = model((torch.arange(40).view(2, 20) + i) % 65)
                loss = out.square().mean() * (float("inf") if i == 4 else 1.0)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                scaler.step(optimizer)
                scaler.update()
            results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            self.assertEqual(optimizer.state[model[0].weight]["step"].item(), 7)
        self.close(results[1], results[0])
        self.assertTrue(torch.equal(results[1], results[2]))

    def test_killed_between_steps_and_loaded(self):
        """The process that trains is killed at any moment; another goes on from what it saved last,
        and what the first one had on the drive is gone."""
        model = self.model()
        wanted = self.learn(model, zinf.AdamW(model.parameters()), 30)
        script = textwrap.dedent(
            """
            import os, signal, sys, torch, unittest, test_optim, zinf
            case, folder, last = test_optim.Optimizers(), sys.argv[1], int(sys.argv[2])
            test_optim.Optimizers.setUpClass()
            case.folder = os.path.join(folder, "drive")
            model, done = case.model(), 0
            optimizer = zinf.AdamW(model.parameters(), in_backward=1, **case.drive())
            if os.path.exists(folder + "/saved"):
                done, weights, state = torch.load(folder + "/saved")
                model.load_state_dict(weights)
                optimizer.load_state_dict(state)
            while done < 30:
                case.learn(model, optimizer, 1, done)
                done += 1
                torch.save((done, model.state_dict(), optimizer.state_dict()), folder + "/new")
                os.replace(folder + "/new", folder + "/saved")
                print(done, flush=True)
                if done == last:  # who kills this process comes late
                    signal.pause()
            """
        )
        os.mkdir(self.path("drive"))
        tests = os.path.dirname(os.path.abspath(__file__))
        environment = {**os.environ, "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"}
        for kill in (3, 8, None):
            words = [sys.executable, "-c", script, self.folder, str(kill + 15 if kill else 0)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as made:
                for line in made.stdout:
                    if kill and int(line) >= kill:
                        time.sleep(0.002 * kill)
                        made.kill()
                        break
            self.assertEqual(made.returncode, -signal.SIGKILL if kill else 0)
            self.assertEqual(len(os.listdir(self.path("drive"))), 1 if kill else 0)
        loaded = torch.cat([p.flatten() for p in torch.load(self.path("saved"))[1].values()])
        self.assertTrue(torch.equal(loaded, wanted))

    def test_parameters_that_are_not_in_one_piece(self):
        results = []
        for kind in (torch.optim.AdamW, zinf.AdamW):
            weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4).t())
            self.assertFalse(weight.is_contiguous())
            optimizer = kind([weight], lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                (weight * weight).sum().backward()
                optimizer.step()
            results.append(weight.detach())
        self.assertLess((results[0] - results[1]).abs().max().item(), 1e-5)

    def test_parameters_on_a_gpu(self):
        """A stand-in says that it is on one: they go through copies, each after the event of the
        gradient, and are there before the next kernel."""

        class OnGpu(torch.nn.Parameter):
            is_cpu, is_cuda = property(lambda _: False), property(lambda _: True)

        calls = []
        stream, event = mock.Mock(), mock.Mock()
        stream.record_event.side_effect = lambda: calls.append("made") or event
        event.synchronize.side_effect = lambda: calls.append("wait")
        stream.synchronize.side_effect = lambda: calls.append("back")
        for dtype in (torch.float32, torch.bfloat16):
            results = []
            for kind in (torch.nn.Parameter, OnGpu):
                for more in ({}, {"in_backward": 1}, self.drive(), self.drive(in_backward=1)):
                    weights = [kind(torch.linspace(-1, 1, n).to(dtype)) for n in (5, 30_000)]
                    calls.clear()
                    with mock.patch("torch.cuda.current_stream", return_value=stream):
                        optimizer = zinf.AdamW(weights, lr=0.1, **more)
                        for _ in range(3):
                            sum((w * w).sum() for w in weights).backward()
                            optimizer.step()
                            optimizer.zero_grad()
                    results.append(torch.cat([w.detach() for w in weights]))
                    if kind is OnGpu:
                        self.assertEqual(calls.count("made"), 6)
                        self.assertGreaterEqual(calls.count("wait"), 6)
                        self.assertGreaterEqual(calls.count("back"), 6)
                        self.assertEqual((calls[0], calls[-1]), ("made", "back"))
                    else:
                        self.assertEqual(calls, [])
            self.assertTrue(all(torch.equal(results[0], found) for found in results))
        with self.assertRaisesRegex(zinf.UnsupportedError, "device meta.*load the weights"):
            zinf.AdamW([torch.nn.Parameter(torch.ones(3, device="meta"))])

    def test_folders_go_and_errors_are_said(self):
        model = self.model()
        optimizer = zinf.AdamW(model.parameters(), **self.drive())
        self.learn(model, optimizer, 1)
        self.assertEqual(len(os.listdir(self.folder)), 1)
        with self.assertRaisesRegex(zinf.OptionError, "added after the drives were filled"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
        del optimizer
        gc.collect()
        self.assertEqual(os.listdir(self.folder), [])
        with self.assertRaisesRegex(zinf.OptionError, "needs path"):
            zinf.AdamW(model.parameters(), state="nvme")
        with self.assertRaisesRegex(zinf.OptionError, "state is 'disk'"):
            zinf.AdamW(model.parameters(), state="disk")
        with self.assertRaisesRegex(zinf.UnsupportedError, "float64"):
            zinf.AdamW([torch.nn.Parameter(torch.ones(2, dtype=torch.float64))])
        gone = zinf.AdamW(model.parameters(), state="nvme", path=self.path("nowhere"))
        with self.assertRaisesRegex(zinf.NotFoundError, "nowhere"):
            gone.step()
