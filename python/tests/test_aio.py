"""Files by the words of deepspeed.ops.aio: aligned or not, whole pages or not."""

import mmap
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
