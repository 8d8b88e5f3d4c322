"""Loops are compiled by a child process, which ends with the worker and leaves the cache behind."""

from __future__ import annotations

import logging

import pytest

from detectors import kernels
from ingest import number_cells
from ingest.scan import escapes, kernel, kernel_words
from service.warm_up import Compiler, compile_readers, load

from .crash_harness import wait_until


def test_until_the_child_is_done_nothing_is_compiled_here_and_then_at_once() -> None:
    compiler = Compiler()
    assert (kernels._Choice.is_eager, kernels._Choice.is_held) == (False, True)
    wait_until(lambda: kernels._Choice.is_eager, timeout_s=240.0)
    assert not kernels._Choice.is_held
    compiler.close()


def test_a_child_that_is_ended_leaves_the_worker_to_compile_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    compiler = Compiler()
    with caplog.at_level(logging.WARNING):
        compiler.close()
        wait_until(lambda: kernels._Choice.is_eager)
    assert compiler._child.returncode != 0


def test_readers_are_made_ready() -> None:
    for made in (number_cells.compiled, kernel.compiled, kernel_words.compiled_words, escapes.compiled):
        made.cache_clear()
    compile_readers()
    readers = (number_cells.compiled(), *kernel.compiled(), kernel_words.compiled_words(), escapes.compiled())
    assert all(one.is_ready for one in readers)


def test_loading_judges_the_packaged_log_once() -> None:
    load()
    before = load.cache_info().hits
    load()
    assert load.cache_info().hits == before + 1
