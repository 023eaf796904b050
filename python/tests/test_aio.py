"""Files by the words of deepspeed.ops.aio: aligned or not, whole pages or not."""

import mmap
import gc
import os
import subprocess
import sys
import unittest

import zinf
from common import Case

try:
    import torch
except ImportError:
    torch = None


class Aio(Case):
    def test_bench(self):
        words = ["bench", self.folder, "--size", "1M", "--rounds", "1"]
        done = subprocess.run(
            [sys.executable, "-m", "zinf.aio", *words], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"write GB/s +read GB/s\nzinf +[0-9.]+ +[0-9.]+\n")
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_is_written_is_read(self):
        handle = zinf.aio.Handle(block_size=1 << 16, queue_depth=4)
        for n in (1, 4096, 4097, 300000):
            for offset in (0, 4096, 77):
                with self.subTest(bytes=n, offset=offset):
                    path, data = self.path(f"{n}-{offset}"), bytearray(os.urandom(n))
                    self.assertEqual(handle.sync_pwrite(data, path, offset), 1)
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), bytes(offset) + data)
                    there, pages = bytearray(n), mmap.mmap(-1, n)
                    handle.async_pread(there, path, offset)
                    handle.async_pread(pages, path, offset)
                    self.assertEqual(handle.wait(), 2)
                    self.assertEqual((there, pages[:]), (data, data))
        self.assertEqual((handle.wait(), handle.get_block_size(), handle.get_queue_depth()), (0, 65536, 4))

    def test_what_does_not_go(self):
        handle = zinf.aio.Handle()
        with self.assertRaises(FileNotFoundError):
            handle.sync_pread(bytearray(5), self.path("none"))
        handle.sync_pwrite(bytearray(5000), self.path("file"))
        with self.assertRaisesRegex(zinf.OptionError, "has 5000 bytes"):
            handle.sync_pread(bytearray(5001), self.path("file"))
        with self.assertRaises(zinf.Error):
            zinf.aio.Handle(block_size=5)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_tensors(self):
        handle = zinf.aio.Handle()
        made = torch.arange(5000, dtype=torch.float32)
        handle.sync_pwrite(made, self.path("file"))
        locked = handle.new_cpu_locked_tensor(5000, made)
        self.assertEqual(locked.data_ptr() % 4096, 0)
        handle.sync_pread(locked, self.path("file"))
        self.assertTrue(torch.equal(locked, made))
        self.assertTrue(handle.free_cpu_locked_tensor(locked))
        self.assertFalse(handle.free_cpu_locked_tensor(locked))
        with self.assertRaisesRegex(zinf.OptionError, "in one piece"):
            handle.sync_pwrite(made.view(50, 100).t(), self.path("file"))

    def test_a_handle_that_is_gone_leaves_no_descriptors(self):
        with open(self.path("file"), "wb") as file:
            file.write(bytes(1 << 20))
        handle = zinf.aio.Handle()  # what the library opens once is open
        handle.sync_pread(bytearray(8192), self.path("file"))
        del handle
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for i in range(5):
            handle = zinf.aio.Handle()
            handle.async_pread(bytearray(1 << 20), self.path("file"))
            handle.async_pwrite(bytearray(5000), self.path(f"other-{i}"))
            with self.assertRaises(zinf.OptionError):
                handle.async_pread(bytearray(2 << 20), self.path("file"))
            del handle
            gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_the_examples_of_deepnvme(self):
        """What its tutorial and its programs do, with the builders of this module."""
        from zinf.aio import AsyncIOBuilder, PinMemoryBuilder

        n, file = (1 << 20) + 4096, self.path("test.pt")
        tensor = torch.randint(256, (n,), dtype=torch.uint8)
        h = AsyncIOBuilder().load(verbose=False).aio_handle()
        h.sync_pwrite(tensor, file)
        self.assertEqual(os.path.getsize(file), n)
        pin = PinMemoryBuilder().load().pin_handle()
        pinned = pin.new_cpu_locked_tensor(n, torch.empty(0, dtype=torch.uint8))
        self.assertTrue(pin.is_pinned(pinned) and h.is_pinned(pinned))
        pinned.copy_(tensor)
        for settings in ({}, {"intra_op_parallelism": 4}, {"block_size": 1 << 20, "queue_depth": 32,
                         "single_submit": False, "overlap_events": True, "intra_op_parallelism": 8}):
            h = AsyncIOBuilder().load().aio_handle(**settings)
            for source in (tensor, pinned):
                os.remove(file)
                self.assertEqual(h.async_pwrite(source, file), 0)
                self.assertEqual(h.wait(), 1)
                self.assertEqual(os.path.getsize(file), n)
                there = torch.empty(n, dtype=torch.uint8)
                h.async_pread(there, file)
                self.assertEqual(h.wait(), 1)
                self.assertTrue(torch.equal(there, tensor))
        self.assertEqual((h.get_intra_op_parallelism(), h.get_alignment()), (8, 4096))
        self.assertTrue(h.get_overlap_events() and not h.get_single_submit())
        for call, more in ((h.read, (False,)), (h.pread, (False, False)), (h.pread, (True, True, 0))):
            there = torch.empty(n, dtype=torch.uint8)
            done = call(there, file, *more)
            self.assertEqual(done or h.wait(), 1)
            self.assertTrue(torch.equal(there, tensor))
        self.assertEqual(h.write(tensor, file, False), 1)
        with open(file, "r+b") as opened:
            h.async_pwrite(tensor.flip(0), opened.fileno())
            self.assertEqual(h.wait(), 1)
        with open(file, "rb") as opened:
            self.assertEqual(opened.read(), bytes(tensor.flip(0).tolist()))
        buffers = [torch.full((4096,), i, dtype=torch.float32) for i in range(5)]
        for i, buffer in enumerate(buffers):
            h.async_pwrite(buffer, file, 16384 * i)
        self.assertEqual(h.wait(), 5)
        parts = [torch.empty(4096) for _ in buffers]
        for i, part in enumerate(parts):
            h.async_pread(part, file, 16384 * i)
        self.assertEqual(h.wait(), 5)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(parts, buffers)))
        self.assertTrue(pin.free_cpu_locked_tensor(pinned))
