"""What all children have in common: a life that ends with their parent's."""

import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from edgeprof.errors import EdgeprofError
from edgeprof.profiling.channel import HOLD_S, Outbox, read_orders
from edgeprof.profiling.messages import Failed, Order, Stop

_PR_SET_PDEATHSIG = 1  # prctl(2)


class Control:
    """The orders that come after the job. Tells whether the parent has asked to stop; ends the
    process once the parent is gone.

    Its descriptor turns readable when the parent asks to stop.
    """

    def __init__(self, orders: Iterator[Order]) -> None:
        self._orders = orders
        self._waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._asked = threading.Event()
        self._descriptor, self._signal = os.pipe()
        threading.Thread(target=self._watch, daemon=True).start()

    def fileno(self) -> int:
        return self._descriptor

    def stop_asked(self) -> bool:
        return self._asked.is_set()

    def next_order(self) -> Order:
        """The next one after the job; waits for it."""
        return self._waiting.get()

    def order_waits(self) -> bool:
        """Whether there is one to take."""
        return not self._waiting.empty()

    def _watch(self) -> None:
        for order in self._orders:
            self._waiting.put(order)
            if isinstance(order, Stop):
                self._asked.set()
                os.write(self._signal, b"s")
        os._exit(1)


def serve(work: Callable[[Order, Outbox, Control], None], *, hold_s: float = HOLD_S) -> None:
    """The life of a child: take the job, do it, say why where it cannot be done.

    The two descriptors of the pipes are the process's arguments. Messages are held for ``hold_s``,
    to be sent together. Stdout is never written to.
    """
    orders_descriptor, messages_descriptor = (int(argument) for argument in sys.argv[1:3])
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the recorder decides what Ctrl-C means
    orders = read_orders(orders_descriptor)
    job = next(orders, None)
    if job is None:
        return
    outbox = Outbox(messages_descriptor, hold_s)
    try:
        work(job, outbox, Control(orders))
    except EdgeprofError as error:
        outbox.put(Failed(kind=type(error).__name__, message=str(error)))
    outbox.flush()


def _end_with_parent() -> None:
    """Where the system can: be killed with the parent, also in the middle of a long pass."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
