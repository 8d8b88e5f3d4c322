"""Questions of what other settings would have said, each answered by a process of its own.

Judging holds the interpreter for seconds, and may have loops compiled: in the process of the API it would
keep everybody waiting. One at a time, with a limit of time; the newest answers are kept to be asked for.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .what_if_history import CannotRejudge, Question, rejudged

log = logging.getLogger(__name__)

LIMIT_S = 300.0
"""What one answer may take: ten seconds where loops are compiled, a minute more where they are not."""
_KEPT = 32
"""Answers kept; people look at the last few."""
_LESS_URGENT = 10
"""Niceness of the process: what comes in is judged first."""


class DeskBusy(Exception):  # a refusal for now
    """Another question is being answered."""


@dataclass(slots=True)
class Inquiry:
    """One question on its way."""

    id: str
    question: Question
    changes: Mapping[str, Any]
    """The settings that are tried, by name."""
    state: str = "running"
    """``running``, ``done`` or ``refused``."""
    after: Mapping[str, Any] | None = None
    """The verdict under the settings after, once done."""
    refusal: str = ""


class Desk:
    """Takes questions and keeps the answers; any thread may use it."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._inquiries: OrderedDict[str, Inquiry] = OrderedDict()
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._is_closed = False

    def ask(self, question: Question, changes: Mapping[str, Any]) -> Inquiry:
        """Begin to answer.

        Raises:
            DeskBusy: another is being answered.
        """
        with self._lock:
            if any(one.state == "running" for one in self._inquiries.values()):
                raise DeskBusy("another question is being answered")
            inquiry = Inquiry(id=uuid.uuid4().hex[:16], question=question, changes=changes)
            self._inquiries[inquiry.id] = inquiry
            while len(self._inquiries) > _KEPT:
                self._inquiries.popitem(last=False)
        threading.Thread(target=self._answer, args=(inquiry,), daemon=True).start()
        return inquiry

    def find(self, inquiry_id: str) -> Inquiry | None:
        """An inquiry that is still known."""
        with self._lock:
            return self._inquiries.get(inquiry_id)

    def wait(self, inquiry: Inquiry, seconds: float) -> None:
        """Until it is answered, for so long at most."""
        with self._done:
            self._done.wait_for(lambda: inquiry.state != "running", seconds)

    def close(self) -> None:
        """Answer nothing more: what is being judged again ends at once."""
        with self._lock:
            self._is_closed, process = True, self._process
        if process is not None:
            process.kill()

    def _answer(self, inquiry: Inquiry) -> None:
        verdict: Mapping[str, Any] | None = None
        try:
            verdict, refusal = self._in_a_process(inquiry.question)
        except Exception as error:  # the edge of this thread: nobody may be asked any more while it is open
            log.exception("a run could not be judged again")
            refusal = f"it could not be judged again here: {error}"
        with self._done:
            inquiry.after, inquiry.refusal = verdict, refusal
            inquiry.state = "done" if verdict is not None else "refused"
            self._done.notify_all()

    def _in_a_process(self, question: Question) -> tuple[Mapping[str, Any] | None, str]:
        # spawned, not forked: this process has threads, which a fork would copy the locks of
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_judge, args=(question, theirs), daemon=True)
        process.start()
        theirs.close()
        with self._lock:
            self._process = process
        try:
            if self._is_closed:
                return None, "the service is ending"
            if not ours.poll(self._limit_s):
                return None, f"it took longer than {self._limit_s:g} s to judge it again"
            answer: tuple[Mapping[str, Any] | None, str] = ours.recv()
            return answer
        except EOFError:
            if self._is_closed:
                return None, "the service is ending"
            return None, "the process that judged it again ended without an answer"
        finally:
            with self._lock:
                self._process = None
            process.kill()
            process.join()
            ours.close()


def _judge(question: Question, answer: Connection) -> None:
    """In the other process."""
    os.nice(_LESS_URGENT)
    try:
        answer.send((rejudged(question), ""))
    except CannotRejudge as error:
        answer.send((None, str(error)))
