# SPDX-License-Identifier: Apache-2.0
"""Errors of pipetwin as exceptions: each says where, what, and one thing to do."""

from __future__ import annotations

__all__ = ["PipetwinError", "UsageError", "BadInputError", "InfeasibleError", "UnavailableError", "FileError",
           "Cancelled"]


class PipetwinError(Exception):
    """An error of the library; `str(error)` is what the command line prints.

    kind:    "usage", "bad input", "infeasible", "unavailable", "io" or "other"
    place:   where, as in "scenario.toml:3:10" or "--nodes"; empty where there is no place
    file:    the file of the place; empty where it is none
    line, column:  from 1; 0 where they are not known
    key:     the key of a scenario that the error is about, as in "pipeline.stages"; may be empty
    reason:  what is wrong, and what was expected
    hint:    what to do
    code:    the exit code of the command line (docs/cli.md)
    answer:  all that the command printed, where it was asked; else None
    """

    def __init__(self, reason: str, *, kind: str = "other", place: str = "", file: str = "", line: int = 0,
                 column: int = 0, key: str = "", hint: str = "", code: int = 1, answer: object = None):
        self.kind, self.place, self.file, self.line, self.column = kind, place, file, line, column
        self.key, self.reason, self.hint, self.code, self.answer = key, reason, hint, code, answer
        super().__init__((f"{place}: " if place else "") + reason + (f"\nhint: {hint}" if hint else ""))

    def __reduce__(self):
        fields = {name: getattr(self, name) for name in
                  ("kind", "place", "file", "line", "column", "key", "hint", "code")}
        return _again, (type(self), self.reason, fields)


def _again(kind, reason, fields):
    return kind(reason, **fields)


class UsageError(PipetwinError, ValueError):
    """An argument that the question does not have, or a value that it does not take."""


class BadInputError(PipetwinError, ValueError):
    """A file or a value that its grammar refuses."""


class InfeasibleError(PipetwinError):
    """A plan that does not fit, deadlocks or is not complete."""


class UnavailableError(PipetwinError, RuntimeError):
    """Something that is not there: a device, a library, or threads behind a fork."""


class FileError(PipetwinError, OSError):
    """A file that cannot be read or written."""


class Cancelled(PipetwinError):
    """A question that was given up."""


KINDS = {"usage": UsageError, "bad input": BadInputError, "infeasible": InfeasibleError,
         "unavailable": UnavailableError, "io": FileError}
