"""Runs the tests of this folder and the examples of the docstrings, and prints TAP. A case that is
skipped says why. BUILD is the build folder, whose command makes the models; WORK a folder of theirs.

usage: run.py BUILD WORK [WORD...]      a WORD: only the cases that have it in their name
"""

import doctest
import faulthandler
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Tap(unittest.TestResult):
    """One line a case; what went wrong stands before it."""

    lines = 0  # testsRun leaves out what is skipped in some versions of Python

    def _line(self, test, word, more=""):
        self.lines += 1
        print(f"{word} {self.lines} - {test.id()}{more}", flush=True)

    def addSuccess(self, test):
        self._line(test, "ok")

    def addSkip(self, test, reason):
        self._line(test, "ok", f" # SKIP {reason}")

    def _bad(self, test, failure):
        for line in self._exc_info_to_string(failure, test).splitlines():
            print(f"# {line}")
        self._line(test, "not ok")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self._bad(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad(subtest, err)


def examples(work):
    """The docstrings' examples, a case for each module."""
    import zinf

    names = {"model": os.path.join(work, "model"), "output": os.path.join(work, "examples")}
    suite = unittest.TestSuite()
    for found in pkgutil.iter_modules(zinf.__path__, "zinf."):
        if found.name == "zinf.__main__":
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError as missing:
            if missing.name != "torch":
                raise
            continue
        suite.addTests(doctest.DocTestSuite(module, extraglobs=names))
    suite.addTests(doctest.DocTestSuite(zinf, extraglobs=names))
    return suite


def chosen(suite, words):
    for case in suite:
        if isinstance(case, unittest.TestSuite):
            yield from chosen(case, words)
        elif not words or any(word in case.id() for word in words):
            yield case


def main():
    build, work, *words = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    faulthandler.enable()
    faulthandler.dump_traceback_later(int(os.environ.get("ZINF_TEST_SECONDS", 600)), exit=True)
    os.environ["ZINF_TEST_BUILD"], os.environ["ZINF_TEST_WORK"] = build, work
    # fmt: off
    subprocess.run(
        [os.path.join(build, "zinf"), "init", "--arch", "gpt2", "--size", "small", "--layers", "2",
         "--hidden", "32", "--heads", "2", "--tokenizer", "bytes", "--context", "64",
         "--output", os.path.join(work, "model")],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    # fmt: on
    suite = unittest.defaultTestLoader.discover(HERE, pattern="test_*.py", top_level_dir=HERE)
    suite.addTests(examples(work))
    result = Tap()
    unittest.TestSuite(chosen(suite, words)).run(result)
    print(f"1..{result.lines}")
    sys.exit(not result.wasSuccessful() or not result.lines)


if __name__ == "__main__":
    main()
