"""What the tests share: the command, a small model, folders of their own."""

import fcntl
import hashlib
import os
import subprocess
import tempfile
import unittest

BUILD = os.environ["ZINF_TEST_BUILD"]
WORK = os.environ["ZINF_TEST_WORK"]
MODEL = os.path.join(WORK, "model")
ROWS = [{"text": f"row {i} of a text, and {i * 7 % 11} more of it, for some windows"} for i in range(40)]
# What all trainings here have: small, on the host, reproducible.
SMALL = {"device": "host", "seq_len": 32, "micro_batch": 2, "dtype": "fp32", "lr": 1e-2, "seed": 7}


def command(*words):
    """The command's standard output; a failure is shown."""
    done = subprocess.run(
        [os.path.join(BUILD, "zinf"), *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


_ports = []


def free_port():
    """Where processes of a test meet; they listen one port further, too. As of tests/support/ports.sh:
    one of 100 that are this process's while it lives, which the system gives to nobody by itself."""
    for block in (n % 120 for n in range(os.getpid(), os.getpid() + 120)):
        if _ports:
            break
        path = f"/tmp/zinf-ports-{block}"
        fd = os.open(path, os.O_RDONLY | (0 if os.path.exists(path) else os.O_CREAT), 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _ports.extend(range(20000 + 100 * block, 20100 + 100 * block, 2))
        except BlockingIOError:
            os.close(fd)
    return _ports.pop()


def sums(folder):
    """Of all files below a folder their hashes, by relative path."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=WORK)

    def path(self, name):
        return os.path.join(self.folder, name)
