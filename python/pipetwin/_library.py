# SPDX-License-Identifier: Apache-2.0
"""libpipetwin by ctypes: questions in, answers out. All else of the package is built on `ask`."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._errors import KINDS, Cancelled, PipetwinError, UnavailableError, UsageError

GIVEN_UP = 130
GO_ON, END_WITH_BEST, GIVE_UP = 0, 1, 2
_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p)

Progress = Callable[[float, str], Any]


class Span(ctypes.Structure):
    """pipetwin_span: an action of a timeline as it lies in memory; nanoseconds."""

    _fields_ = [("kind", ctypes.c_int32), ("stage", ctypes.c_int32), ("micro_batch", ctypes.c_int32),
                ("with_next", ctypes.c_uint8), ("unused", ctypes.c_uint8), ("hop", ctypes.c_int16),
                ("begin", ctypes.c_int64), ("ready", ctypes.c_int64), ("end", ctypes.c_int64)]


_SIGNATURES = {
    "pipetwin_version": (ctypes.c_char_p, []),
    "pipetwin_question_new": (ctypes.c_void_p, [ctypes.c_char_p]),
    "pipetwin_question_free": (None, [ctypes.c_void_p]),
    "pipetwin_question_word": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "pipetwin_question_file": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
    "pipetwin_question_output": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "pipetwin_question_on_progress": (ctypes.c_int, [ctypes.c_void_p, _PROGRESS, ctypes.c_void_p]),
    "pipetwin_question_cancel": (None, [ctypes.c_void_p]),
    "pipetwin_ask": (ctypes.c_void_p, [ctypes.c_void_p]),
    "pipetwin_answer_free": (None, [ctypes.c_void_p]),
    "pipetwin_answer_code": (ctypes.c_int, [ctypes.c_void_p]),
    "pipetwin_answer_result": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
    "pipetwin_answer_notes": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
    "pipetwin_answer_file": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]),
    "pipetwin_answer_error": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    "pipetwin_answer_error_line": (ctypes.c_int, [ctypes.c_void_p]),
    "pipetwin_answer_error_column": (ctypes.c_int, [ctypes.c_void_p]),
    "pipetwin_answer_ranks": (ctypes.c_int, [ctypes.c_void_p]),
    "pipetwin_answer_row": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]),
    "pipetwin_answer_picture": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
    "pipetwin_kind_name": (ctypes.c_char_p, [ctypes.c_int]),
}


def library_path() -> Path:
    """The shared library: PIPETWIN_LIBRARY, or the one of this package."""
    chosen = os.environ.get("PIPETWIN_LIBRARY")
    return Path(chosen) if chosen else Path(__file__).parent / "native" / "lib" / "libpipetwin.so"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the library cannot be loaded: {error}", kind="unavailable", place=str(path),
                               hint="install the wheel of pipetwin, or set PIPETWIN_LIBRARY to libpipetwin.so",
                               code=5) from error
    return library


_loading = threading.Lock()
_loaded: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The library, loaded when it is asked for first."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _renew_lock() -> None:
    """In a forked process, where the thread that holds the lock may be missing."""
    global _loading
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def kind_names() -> list[str]:
    """["F", "B", ...]: the word of each `kind` of a span."""
    names: list[str] = []
    while (name := library().pipetwin_kind_name(len(names))) is not None:
        names.append(name.decode())
    return names


class _Memory:
    """What the library keeps of an answer; freed with the last object that uses it."""

    def __init__(self, handle: int):
        self.handle = handle
        weakref.finalize(self, library().pipetwin_answer_free, handle).atexit = False


class _Question:
    """A question with the function that it calls. Whoever asks keeps it until the answer is there: a task that was left
    by an exception may still call."""

    def __init__(self, command: bytes, callback: Any):
        self.callback = callback
        self.handle: int | None = library().pipetwin_question_new(command)
        if not self.handle:
            raise MemoryError("pipetwin: no memory for a question")
        weakref.finalize(self, library().pipetwin_question_free, self.handle).atexit = False
        library().pipetwin_question_on_progress(self.handle, callback, None)

    def ask(self) -> _Memory | None:
        handle = library().pipetwin_ask(self.handle)
        return _Memory(handle) if handle else None

    def cancel(self) -> None:
        library().pipetwin_question_cancel(self.handle)


class _Task:
    """A question that a worker answers."""

    def __init__(self, question: _Question):
        self.question = question
        self.memory: _Memory | None = None
        self.is_done = False
        self.ended = threading.Lock()  # an Event may be left locked by an exception out of a signal
        self.ended.acquire()

    def run(self) -> None:
        try:
            self.memory = self.question.ask()
        finally:
            self.is_done = True
            self.ended.release()


class _Worker:
    """A thread in which the main thread's questions are answered, so that Ctrl-C is seen meanwhile: Python raises
    KeyboardInterrupt in the main thread alone, and not within a function of C."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="pipetwin", daemon=True).start()

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            task.run()
            del task  # or its answer would stay in memory until the next question

    def answer(self, question: _Question) -> _Memory | None:
        """The answer. What is raised meanwhile gives the question up, and comes out behind its end; what is raised
        while that is done comes out at once."""
        task = _Task(question)
        raised: BaseException | None = None
        try:
            self._tasks.put(task)
            while not task.is_done:
                try:
                    task.ended.acquire()
                except BaseException as error:
                    raised = raised or error
                    question.cancel()
        except BaseException:
            question.cancel()
            raise
        if raised is not None:
            raise raised
        return task.memory


_worker: _Worker | None = None


def _answer_to(question: _Question) -> _Memory | None:
    global _worker
    if threading.current_thread() is not threading.main_thread():
        return question.ask()
    if _worker is None:
        _worker = _Worker()
    if _worker.process != os.getpid():  # forked: the library says so
        return question.ask()
    return _worker.answer(question)


class Answer:
    """What a command has printed, and what it has written.

    code:    exit code
    result:  what it printed on stdout
    notes:   its remarks on stderr
    """

    def __init__(self, memory: _Memory, outputs: Iterable[str]):
        self._memory: _Memory | None = memory
        self.code: int = library().pipetwin_answer_code(memory.handle)
        self.result: str = self._text("pipetwin_answer_result")
        self.notes: str = self._text("pipetwin_answer_notes")
        self._outputs = tuple(outputs)

    def close(self) -> None:
        """Frees what the library keeps, its timeline above all; texts and rows that were read stay."""
        self._memory = None

    def handle(self) -> int:
        """The handle of the library. Raises ValueError where the answer was closed."""
        if self._memory is None:
            raise ValueError("this answer was closed: ask again, and keep it as long as its timeline is in use")
        return self._memory.handle

    def _bytes(self, function: str, *arguments: Any) -> bytes | None:
        size = ctypes.c_size_t()
        at = getattr(library(), function)(self.handle(), *arguments, ctypes.byref(size))
        return None if at is None else ctypes.string_at(at, size.value)

    def _text(self, function: str) -> str:
        return (self._bytes(function) or b"").decode("utf-8", "replace")

    def file(self, name: str) -> bytes | None:
        """The content of an output, or None where it was not written."""
        return self._bytes("pipetwin_answer_file", name.encode())

    def picture(self) -> str | None:
        """The timeline as SVG; None where there is none."""
        content = self._bytes("pipetwin_answer_picture")
        return None if content is None else content.decode()

    def rows(self) -> list[ctypes.Array[Span]]:
        """[rank]: its spans, in the library's memory, which lives as long as one of them."""
        rows = []
        for rank in range(library().pipetwin_answer_ranks(self.handle())):
            count = ctypes.c_size_t()
            at = library().pipetwin_answer_row(self.handle(), rank, ctypes.byref(count))
            row = (Span * count.value).from_address(at) if at else (Span * 0)()
            row.memory = self._memory  # keeps it
            rows.append(row)
        return rows

    def error(self) -> PipetwinError | None:
        """The error as an exception that is not raised; None for a success."""
        parts = [library().pipetwin_answer_error(self.handle(), part) for part in range(6)]
        if parts[0] is None:
            return None
        kind, place, file, key, reason, hint = (part.decode("utf-8", "replace") for part in parts)
        made = Cancelled if self.code == GIVEN_UP else KINDS.get(kind, PipetwinError)
        return made(reason, kind=kind, place=place, file=file, key=key, hint=hint, code=self.code, answer=self,
                    line=library().pipetwin_answer_error_line(self.handle()),
                    column=library().pipetwin_answer_error_column(self.handle()))


def _encoded(word: object, what: str) -> bytes:
    if not isinstance(word, (str, os.PathLike)):
        raise TypeError(f"{what} is of type {type(word).__name__}, expected str")
    encoded = os.fsencode(word)
    if b"\0" in encoded:
        raise UsageError("it has a zero byte in it", kind="usage", place=what, hint="leave the byte out", code=2)
    return encoded


def ask(words: Sequence[str], *, files: Mapping[str, str | bytes] | None = None, outputs: Iterable[str] = (),
        progress: Progress | None = None, check: bool = True) -> Answer:
    """Asks what the words of a command line ask, and returns what the program would print.

    words:     of the command line, without the program: ["simulate", "gpt.toml", "--json"]
    files:     {name: content}; words that are such a name name this file
    outputs:   names of files or folders that the command writes, which come with the answer
    progress:  called with a share from 0 to 1 and a text, by another thread than the main one; True from it ends the
               task with the best so far. What it raises comes out of `ask`
    check:     raise what the answer says is wrong

    >>> ask(["check", "s.csv", "--json"], files={"s.csv": "0F0,0B0\\r\\n"}).code
    0
    """
    if isinstance(words, (str, bytes)) or not words:
        raise TypeError("words is no list of words: write [\"simulate\", \"gpt.toml\"]")
    encoded = [_encoded(word, f"words[{index}]") for index, word in enumerate(words)]
    contents: dict[bytes, bytes] = {}
    for name, content in (files or {}).items():
        if not isinstance(content, (str, bytes)):
            raise TypeError(f"files[{name!r}] is of type {type(content).__name__}, expected str or bytes")
        contents[_encoded(name, "files")] = content.encode() if isinstance(content, str) else content
    outputs = list(outputs)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is of type {type(progress).__name__}, expected a function of a share and a text")
    raised: list[BaseException] = []

    def on_progress(share: float, what: bytes, _user: object) -> int:
        try:
            ends = progress is not None and progress(share, what.decode("utf-8", "replace"))
            return END_WITH_BEST if ends is True else GO_ON
        except BaseException as error:
            raised.append(error)
            return GIVE_UP

    lib = library()
    question = _Question(encoded[0], _PROGRESS(on_progress))
    memory: _Memory | None = None
    done = all(lib.pipetwin_question_word(question.handle, word) == 0 for word in encoded[1:])
    for name, content in contents.items():
        if lib.pipetwin_question_file(question.handle, name, content, len(content)) != 0:
            raise UsageError(f"{os.fsdecode(name)!r} is no name of a file", kind="usage", place="files",
                             hint="give a name without '/', such as scenario.toml", code=2)
    for name in outputs:
        if lib.pipetwin_question_output(question.handle, _encoded(name, "outputs")) != 0:
            raise UsageError(f"{name!r} is no name of a file", kind="usage", place="outputs",
                             hint="give a name without '/', such as picture.svg", code=2)
    if done:
        memory = _answer_to(question)
    if raised:
        raise raised[0]
    if memory is None:
        raise MemoryError("pipetwin: no memory for an answer")
    answer = Answer(memory, outputs)
    error = answer.error()
    if check and error is not None:
        raise error
    return answer
