"""Ctrl-C while the library trains: the step is finished, all is saved, then KeyboardInterrupt.

Python runs its own handlers only between its own instructions, of which there may be none for a
whole step. So a thread reads the numbers of signals that Python writes to a pipe, says at once that
the training ends, and ends the process at the second Ctrl-C, as the command does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Optional

_TWICE_SECONDS = 0.5  # what comes within it is the first one, told twice
_END = b"\0"


class NotedInterrupt:
    """A context in which Ctrl-C raises nothing, as nothing may be raised through the library's
    frames: an exception there is lost, and whatever the callback should have done, too. It is raised
    at the end, or at once where may_raise says that only Python's code is at work. Does nothing
    outside of the main thread."""

    def __init__(self, may_raise: Callable[[], bool] = lambda: False):
        self.may_raise = may_raise
        self.heard = False
        self.before: Any = None  # the handler outside
        self.real: Any = None  # that of who has no context

    def __enter__(self) -> NotedInterrupt:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # it is one of Python's
                outer = getattr(before, "__self__", None)
                self.real = outer.real if isinstance(outer, NotedInterrupt) else before
                self.before = before
                signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_exception) -> None:
        if self.before is None:
            return
        before, self.before = self.before, None
        signal.signal(signal.SIGINT, before)
        if self.heard:
            self.real(signal.SIGINT, None)

    def _handle(self, number: int, frame: Any) -> None:
        if self.may_raise():
            self.real(number, frame)
        else:
            self.heard = True

    def raise_heard(self) -> None:
        """In a callback, whose exceptions are caught there."""
        if self.heard and self.before is not None:
            self.heard = False
            self.real(signal.SIGINT, None)


class SavedOnInterrupt:
    """A context: `cancel` is called at the first Ctrl-C; `heard` says whether there was one. Does
    nothing outside of the main thread, and where Ctrl-C is ignored."""

    def __init__(self, cancel: Callable[[], None]):
        self.cancel = cancel
        self.heard = False
        self.first = 0.0  # when the thread below saw the first; 0: not yet
        self.before: Any = None  # the handler outside
        self.before_fd: Optional[int] = None  # what Python wrote signals to; None: it still does
        self.read = self.write = -1
        self.thread: Optional[threading.Thread] = None

    def __enter__(self) -> SavedOnInterrupt:
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        if before is None or before == signal.SIG_IGN:
            return self
        # The handler is there first and goes last: what it hears raises nothing in between.
        self.before = before
        signal.signal(signal.SIGINT, self._handle)
        try:
            self._begin()
        except BaseException:  # no more files, or threads: nobody leaves the context
            self._give_back()
            raise
        return self

    def _begin(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        thread = threading.Thread(target=self._watch, daemon=True)
        self.before_fd = signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)
        thread.start()
        self.thread = thread

    def __exit__(self, *_exception) -> None:
        if self.before is None:
            return
        self._give_back()

    def _give_back(self) -> None:
        if self.before_fd is not None:
            signal.set_wakeup_fd(self.before_fd)
        if self.thread is not None:
            os.write(self.write, _END)
            self.thread.join()
        for fd in (self.read, self.write):
            if fd >= 0:
                os.close(fd)
        before, self.before = self.before, None
        signal.signal(signal.SIGINT, before)

    def _handle(self, _number, _frame) -> None:
        self._note()

    def _note(self) -> None:
        if not self.heard:
            self.heard = True
            self.cancel()

    def _watch(self) -> None:
        while True:
            number = os.read(self.read, 1)
            if number == _END:
                return
            if self.before_fd >= 0:  # an event loop listens, too
                os.write(self.before_fd, number)
            if number[0] == signal.SIGINT:
                self._interrupt()

    def _interrupt(self) -> None:
        if not self.first:
            self.first = time.monotonic()
            self._note()
            sys.stderr.write("zinf: SIGINT: stopping after this step; once more to stop now\n")
        elif time.monotonic() - self.first > _TWICE_SECONDS:
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
            libc.signal(signal.SIGINT, None)  # SIG_DFL; Python's own call is the main thread's
            os.kill(os.getpid(), signal.SIGINT)
