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
from typing import Callable

_TWICE_SECONDS = 0.5  # what comes within it is the first one, told twice
_END = b"\0"


class SavedOnInterrupt:
    """A context: `cancel` is called at the first Ctrl-C; `heard` says whether there was one. Does
    nothing outside of the main thread, and where Ctrl-C is ignored."""

    def __init__(self, cancel: Callable[[], None]):
        self.cancel = cancel
        self.heard = False
        self.first = 0.0  # when the thread below saw the first; 0: not yet
        self.active = False

    def __enter__(self) -> SavedOnInterrupt:
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        if before is None or before == signal.SIG_IGN:
            return self
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        self.before_fd = signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        self.before = signal.signal(signal.SIGINT, self._handle)
        self.active = True
        return self

    def __exit__(self, *_exception) -> None:
        if not self.active:
            return
        self.active = False
        signal.signal(signal.SIGINT, self.before)
        signal.set_wakeup_fd(self.before_fd)
        os.write(self.write, _END)
        self.thread.join()
        os.close(self.read)
        os.close(self.write)

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
