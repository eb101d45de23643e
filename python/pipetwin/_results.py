# SPDX-License-Identifier: Apache-2.0
"""Answers as objects: JSON that is read when it is asked for, tables and pictures for notebooks."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ._errors import UnavailableError
from ._inputs import Given, Schedule
from ._library import Answer, kind_names


def _library_of(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UnavailableError(f"{name} is not installed", kind="unavailable", place=name,
                               hint=f"pip install {name}", code=5) from error


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    def cells(tag: str, row: Iterable[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>"

    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead>{cells('th', head)}</thead><tbody>" + "".join(cells("td", row) for row in rows) + \
        "</tbody></table>"


class Result:
    """What a command answered.

    text:   the bytes of `--json` on the command line
    json:   the same as a dict
    notes:  remarks, a line each
    answer: all of it (pipetwin.Answer)
    """

    def __init__(self, answer: Answer):
        self.answer = answer

    @property
    def text(self) -> str:
        return self.answer.result

    @cached_property
    def json(self) -> dict[str, Any]:
        return json.loads(self.answer.result)

    @property
    def notes(self) -> list[str]:
        return self.answer.notes.splitlines()

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Picture(str):
    """A picture as a text, SVG. A notebook shows it.

    >>> Picture("<svg/>")._repr_html_(), Picture("<svg/>").startswith("<svg")
    ('<svg/>', True)
    """

    def _repr_html_(self) -> str:
        return str(self)


class Timeline:
    """When each rank does what, as it lies in the library's memory: nothing is copied.

    `timeline[rank]` is a numpy array of one record per action, in order, with the fields `kind` (index into `kinds`),
    `stage`, `micro_batch` (int32), `begin`, `ready` and `end` (int64, nanoseconds since the step's begin); without
    numpy it is a ctypes array of such records. The rank waits from `begin` to `ready`.

    >>> import pipetwin
    >>> step = pipetwin.simulate(stages=2, micro_batches=2, schedule="1f1b", forward_ms=1, backward_ms=2).timeline
    >>> len(step), step.end
    (2, 9000000)
    >>> [(record.stage, step.kinds[record.kind]) for record in step.raw[1]][:2]
    [(1, 'RECV_F'), (1, 'F')]
    """

    def __init__(self, answer: Answer):
        self.raw = answer.rows()
        self._answer = answer

    @cached_property
    def kinds(self) -> list[str]:
        return kind_names()

    @property
    def end(self) -> int:
        """Nanoseconds from the begin of the step to its end."""
        return max((row[-1].end for row in self.raw if len(row)), default=0)

    @cached_property
    def rows(self) -> list[Any]:
        """[rank]: its array."""
        numpy = _library_of("numpy")
        return [numpy.frombuffer(row, dtype=_dtype(numpy)) if len(row) else numpy.empty(0, _dtype(numpy))
                for row in self.raw]

    def chunks(self, rank: int) -> dict[int, int]:
        """{stage: chunk} of a rank: its stages, counted from 0."""
        return {stage: chunk for chunk, stage in enumerate(sorted({record.stage for record in self.raw[rank]}))}

    def to_pandas(self) -> Any:
        """A frame of all ranks, a row per action: start, wait and duration in seconds, device, stage, micro_batch,
        chunk, kind."""
        numpy, pandas = _library_of("numpy"), _library_of("pandas")
        frames = []
        for rank, row in enumerate(self.rows):
            stages, chunk = numpy.unique(row["stage"], return_inverse=True)
            frames.append(pandas.DataFrame({
                "start": row["begin"] / 1e9, "wait": (row["ready"] - row["begin"]) / 1e9,
                "duration": (row["end"] - row["ready"]) / 1e9, "device": rank, "stage": row["stage"],
                "micro_batch": row["micro_batch"], "chunk": chunk,
                "kind": pandas.Categorical.from_codes(row["kind"], self.kinds)}))
        return pandas.concat(frames, ignore_index=True)

    def svg(self) -> Picture:
        """The timeline as a picture."""
        return Picture(self._answer.picture() or "")

    def __getitem__(self, rank: int) -> Any:
        try:
            return self.rows[rank]
        except UnavailableError:
            return self.raw[rank]

    def __len__(self) -> int:
        return len(self.raw)

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"<Timeline: {len(self)} ranks, {self.end / 1e6:g} ms>"


def _dtype(numpy: Any) -> Any:
    return numpy.dtype({"names": ["kind", "stage", "micro_batch", "with_next", "hop", "begin", "ready", "end"],
                        "formats": ["<i4", "<i4", "<i4", "u1", "<i2", "<i8", "<i8", "<i8"],
                        "offsets": [0, 4, 8, 12, 14, 16, 24, 32], "itemsize": 40})


class Prediction(Result):
    """What `simulate` says of one plan, or of several (`json["plans"]`)."""

    @property
    def step_ms(self) -> float:
        """Milliseconds of a step."""
        return self.json["step_ms"]

    @property
    def bubble(self) -> float:
        """Share of the pipeline's time in which devices do not compute, 0 to 1."""
        return self.json["bubble"]["total"]

    @property
    def peak_bytes(self) -> list[int | None]:
        """[rank]: the most memory at a time; None where nothing is known of it, as for plain numbers."""
        return [device["peak_bytes"]["total"] for device in self.json["devices"]]

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.answer)

    def _repr_html_(self) -> str:
        rows = [("schedule", self.json.get("schedule")), ("step", f"{self.step_ms:g} ms"),
                ("bubble", f"{100 * self.bubble:.2f} %")]
        return html_table(("", ""), rows) + self.timeline.svg()

    def __repr__(self) -> str:
        return f"<Prediction: step {self.step_ms:g} ms, bubble {100 * self.bubble:.2f} %>"


_CANDIDATE = ("schedule", "stages", "chunks", "micro_batches", "data_parallel", "tensor_parallel", "recompute",
              "step_ms", "bubble_total", "peak_bytes")


class Plan(Result):
    """What `plan` found, the fastest plan first."""

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """Plans, the fastest first: dicts with "schedule", "stages", "micro_batches", "step_ms" and more."""
        return self.json["candidates"]

    @property
    def best(self) -> dict[str, Any]:
        """The prediction of the fastest plan."""
        return self.json["best"]

    @property
    def step_ms(self) -> float:
        """Milliseconds of a step of the fastest plan."""
        return self.best["step_ms"]

    def file(self, name: str) -> str:
        """A file of the fastest plan: "scenario.toml", "profile.json", "schedule.csv", "plan.json",
        "predicted.trace.json", "search.json", or an export. Raises KeyError."""
        content = self.answer.file(f"plan/{name}")
        if content is None:
            raise KeyError(name)
        return content.decode()

    @cached_property
    def schedule(self) -> Schedule:
        """The rows of the fastest plan, with their messages."""
        return Schedule.from_csv(self.file("schedule.csv"))

    def given(self) -> Given:
        """The fastest plan as a scenario that other questions take."""
        return Given("scenario.toml", {"scenario.toml": self.file("scenario.toml"),
                                       "profile.json": self.file("profile.json"),
                                       "schedule.csv": self.file("schedule.csv")})

    def to_pandas(self) -> Any:
        """`ranked` as a frame."""
        return _library_of("pandas").DataFrame(self.ranked)

    def _repr_html_(self) -> str:
        return html_table(_CANDIDATE, ([_short(plan.get(key)) for key in _CANDIDATE] for plan in self.ranked[:10]))

    def __repr__(self) -> str:
        best = self.ranked[0]
        return (f"<Plan: {best['schedule']}, {best['stages']} stages of {best['chunks']} chunks, "
                f"{best['micro_batches']} micro-batches, step {self.step_ms:g} ms, the fastest of {len(self.ranked)}>")


def _short(value: Any) -> Any:
    if isinstance(value, list):  # of stages: equal neighbours together
        return ", ".join(f"{word} x{count}" if (count := len(list(same))) > 1 else f"{word}"
                         for word, same in itertools.groupby(value))
    return f"{value:g}" if isinstance(value, float) else "" if value is None else value


class Check(Result):
    """What `check` says of a schedule."""

    @property
    def valid(self) -> bool:
        """Whether the schedule is complete, and free of deadlock."""
        return self.answer.code == 0

    @property
    def violations(self) -> list[Any]:
        """Rules that are broken: dicts with "rank", "cell", "action" and "why"."""
        return self.json["problems"]

    def __bool__(self) -> bool:
        return self.valid

    def __repr__(self) -> str:
        return f"<Check: {'valid' if self.valid else 'not valid'}>"


class Comparison(Result):
    """What `compare` says of a predicted and a measured timeline."""

    @property
    def step_error_percent(self) -> float:
        """Error of the predicted step, per cent of the measured one."""
        return self.json["step_ms"]["error_percent"]

    def _repr_html_(self) -> str:
        rows = [(name, *(_short(pair[side]) for side in ("predicted", "measured", "error_percent")))
                for name, pair in self.json.items()
                if isinstance(pair, Mapping) and {"predicted", "measured", "error_percent"} <= set(pair)]
        return html_table(("", "predicted", "measured", "error %"), rows)


class Imported(Result):
    """What `import` made of a file.

    content:  the file that was written: a scenario, a profile or a schedule
    profile:  costs that were written beside a scenario; None where there are none
    """

    def __init__(self, answer: Answer, out: str):
        super().__init__(answer)
        self._out = out

    @property
    def content(self) -> str:
        return (self.answer.file(self._out) or b"").decode()

    @property
    def profile(self) -> str | None:
        content = self.answer.file(self._out.rsplit(".", 1)[0] + ".profile.json")
        return None if content is None else content.decode()
