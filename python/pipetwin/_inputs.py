# SPDX-License-Identifier: Apache-2.0
"""What is asked about: models, clusters, scenarios and schedules."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from ._errors import BadInputError, UsageError

PathLike = Union[str, "os.PathLike[str]"]


def number(value: Any, what: str) -> str:
    """A number as the command line takes it. Raises TypeError, and UsageError for NaN and infinity."""
    if isinstance(value, bool) or not hasattr(value, "__index__") and not hasattr(value, "__float__"):
        raise TypeError(f"{what} is of type {type(value).__name__}, expected a number")
    if hasattr(value, "__index__"):
        return str(value.__index__())
    if not math.isfinite(value):
        raise UsageError(f"{float(value)} is no finite number", kind="usage", place=what,
                         hint="give a finite number, or leave it out", code=2)
    return repr(float(value))


def toml_value(value: Any, what: str) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        text = json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
            raise UsageError("it has half of a surrogate pair in it", kind="usage", place=what,
                             hint="give valid Unicode", code=2)
        return text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key, what)} = {toml_value(one, f'{what}.{key}')}"
                               for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ndarray":
        return "[" + ", ".join(toml_value(one, f"{what}[{index}]") for index, one in enumerate(value)) + "]"
    if value is None:
        raise TypeError(f"{what} is None, which TOML has no word for: leave the key out")
    return number(value, what)


def toml_key(key: Any, what: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of {what} is of type {type(key).__name__}, expected str")
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key, what)


def toml_text(tables: Mapping[str, Any]) -> str:
    """A dict as TOML: a line per key, a table per inner dict.

    >>> print(toml_text({"pipeline": {"stages": 4, "schedule": "1f1b"}}), end="")
    [pipeline]
    stages = 4
    schedule = "1f1b"
    """
    lines = [f"{toml_key(key, 'scenario')} = {toml_value(value, key)}"
             for key, value in tables.items() if not isinstance(value, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines.append(f"[{toml_key(name, 'scenario')}]")
            lines += [f"{toml_key(key, name)} = {toml_value(value, f'{name}.{key}')}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Given:
    """A word of a command line, and the files that go with it."""

    word: str
    files: Mapping[str, Union[str, bytes]]


def _json_text(value: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise UsageError(str(error), kind="usage", place=what, hint="give finite numbers", code=2) from error


class Model:
    """A model: a name that `models()` lists, the path of a config.json, of its folder or of a *.profile.json, or the
    content of a config.json as a dict.

    >>> Model("llama-3-8b").given().word
    'llama-3-8b'
    >>> Model({"model_type": "gpt2", "n_layer": 12}, name="mine").given().word
    'mine.json'
    """

    def __init__(self, source: PathLike | Mapping[str, Any], *, name: str = "config"):
        if not isinstance(source, (str, os.PathLike, Mapping)):
            raise TypeError(f"a model of type {type(source).__name__}, expected a name, a path or a dict")
        self.source, self.name = source, name

    def given(self) -> Given:
        if isinstance(self.source, Mapping):
            file = f"{self.name}.json"
            return Given(file, {file: _json_text(self.source, file)})
        return Given(os.fspath(self.source), {})

    def __repr__(self) -> str:
        return f"Model({self.source!r})"


class Cluster:
    """Nodes of a cluster: a name that `clusters()` lists, a path, or the keys of [cluster] as a dict.

    >>> Cluster("8x-h100-sxm", nodes=8)
    Cluster('8x-h100-sxm', nodes=8)
    """

    def __init__(self, source: PathLike | Mapping[str, Any], nodes: int | None = None):
        if not isinstance(source, (str, os.PathLike, Mapping)):
            raise TypeError(f"a cluster of type {type(source).__name__}, expected a name, a path or a dict")
        self.source, self.nodes = source, nodes

    def given(self) -> Given:
        if isinstance(self.source, Mapping):
            tables = self.source if "cluster" in self.source else {"cluster": self.source}
            return Given("cluster.toml", {"cluster.toml": toml_text(tables)})
        return Given(os.fspath(self.source), {})

    def __repr__(self) -> str:
        return f"Cluster({self.source!r}" + (f", nodes={self.nodes}" if self.nodes is not None else "") + ")"


class Scenario:
    """A scenario: a path, its text as TOML, or its tables as a dict (docs/scenario.md).

    files: {name: content} of files that it names, as {"costs.profile.json": {...}}; a dict becomes JSON. Without any,
    the names of files in a text or a dict have to be absolute.

    >>> gpipe = Scenario({"model": {"kind": "mlp", "sizes": [8, 8, 8]}, "pipeline": {"stages": 2}})
    >>> sorted(gpipe.given().files)
    ['scenario.toml']
    """

    def __init__(self, source: PathLike | Mapping[str, Any], files: Mapping[str, Any] | None = None):
        if not isinstance(source, (str, os.PathLike, Mapping)):
            raise TypeError(f"a scenario of type {type(source).__name__}, expected a path, TOML or a dict")
        self.source = source
        self.files = {name: _json_text(content, name) if isinstance(content, Mapping) else content
                      for name, content in (files or {}).items()}

    def given(self) -> Given:
        if isinstance(self.source, Mapping):
            return Given("scenario.toml", {**self.files, "scenario.toml": toml_text(self.source)})
        if isinstance(self.source, str) and "\n" in self.source:
            return Given("scenario.toml", {**self.files, "scenario.toml": self.source})
        return Given(os.fspath(self.source), self.files)

    def __repr__(self) -> str:
        return f"Scenario({self.source!r})" if len(repr(self.source)) < 200 else "Scenario(...)"


@dataclass(frozen=True)
class Action:
    """An action of a rank, "2F0": stage 2, forward, micro-batch 0.

    kind:         "F", "B" (both gradients), "I" (of the input), "W" (of the weights), "R" (recompute), "SEND_F", ...
    micro_batch:  None for actions of the whole step, such as "OPT"
    peer:         the other stage of a message that skips stages; else None

    >>> Action.parse("2F0")
    Action(stage=2, kind='F', micro_batch=0, peer=None)
    >>> str(Action(1, "SEND_B", 3))
    '1SEND_B3'
    """

    stage: int
    kind: str
    micro_batch: int | None = None
    peer: int | None = None

    @classmethod
    def parse(cls, text: str) -> Action:
        found = re.fullmatch(r"(\d+)([A-Z]+(?:_[A-Z]+)*)(\d+)?(?:[<>](\d+))?", text.strip())
        if found is None:
            raise BadInputError(f"'{text}' is no action", kind="bad input", place="schedule",
                                hint="write a stage, a kind and a micro-batch, as in 2F0", code=3)
        stage, kind, micro_batch, peer = found.groups()
        return cls(int(stage), kind, None if micro_batch is None else int(micro_batch),
                   None if peer is None else int(peer))

    def __str__(self) -> str:
        way = "" if self.peer is None else f"{'>' if self.kind.startswith('SEND') else '<'}{self.peer}"
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}{way}"


Cell = Union[Action, "tuple[Action, Action]"]
_PIECE = re.compile(r"""\([^)]*\)|"[^"]*"|[,;\t]|[^,;\t"(]+|.""")


def _csv_rows(text: str) -> list[list[str]]:
    """Cells of each line that are not empty; what separates them is what the first line has: `,`, else `;`, else a tab,
    or what a line `sep=;` in front names."""
    text = text.removeprefix("\ufeff")
    lines = [_unquoted(line) for line in re.split(r"\r*\n" if "\n" in text else r"\r", text)]
    named = re.fullmatch(r"(?:sep|SEP)=([,;\t])", lines[0]) if lines else None
    lines = lines[1:] if named else lines
    first = _PIECE.findall(lines[0]) if lines else []
    separator = named[1] if named else next((one for one in ",;\t" if one in first), ",")
    rows = []
    for line in lines:
        cells = [""]
        for piece in _PIECE.findall(line):
            if piece == separator:
                cells.append("")
            else:
                cells[-1] += piece
        rows.append([cell for cell in map(_unquoted, cells) if cell])
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _unquoted(text: str) -> str:
    """A cell, or a whole line, without the quotes and blanks around it."""
    found = re.fullmatch(r'[ \t]*"([^"]*)"[ \t]*', text)
    return (found[1] if found else text).strip(" \t")


class Schedule:
    """Rows of actions, one per rank: `schedule[rank][cell]`. A pair of actions that overlap is a tuple of two.

    >>> two = Schedule([["0F0", "0B0"], ["1F0", "1B0"]])
    >>> two[1][0]
    Action(stage=1, kind='F', micro_batch=0, peer=None)
    >>> two.ranks, two.stages, two.micro_batches
    (2, 2, 1)
    """

    def __init__(self, rows: Iterable[Iterable[Cell | str]]):
        if isinstance(rows, (str, bytes)):
            raise TypeError("rows of a schedule are lists: use Schedule.from_csv(text)")
        self.rows: list[list[Cell]] = [[_cell(cell) for cell in row] for row in rows]

    @classmethod
    def from_csv(cls, text: str) -> Schedule:
        """Reads a schedule file (docs/formats.md): a line per rank. A spreadsheet's file may begin with a byte-order
        mark, have cells in quotes, or stand `;` or tabs between them.

        >>> Schedule.from_csv('0F0,"0B0"\\r\\n')[0][1]
        Action(stage=0, kind='B', micro_batch=0, peer=None)
        """
        return cls(_csv_rows(text))

    def to_csv(self) -> str:
        """The schedule as a file."""
        return "".join(",".join(_cell_text(cell) for cell in row) + "\r\n" for row in self.rows)

    def actions(self) -> Iterator[tuple[int, Action]]:
        """(rank, action) for every action, pairs taken apart."""
        for rank, row in enumerate(self.rows):
            for cell in row:
                for action in cell if isinstance(cell, tuple) else (cell,):
                    yield rank, action

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @property
    def stages(self) -> int:
        return 1 + max((action.stage for _, action in self.actions()), default=-1)

    @property
    def micro_batches(self) -> int:
        return 1 + max((action.micro_batch for _, action in self.actions() if action.micro_batch is not None),
                       default=-1)

    def placement(self) -> list[list[int]]:
        """[rank]: its stages, ascending."""
        found: list[set[int]] = [set() for _ in self.rows]
        for rank, action in self.actions():
            if action.kind in "FBIW":
                found[rank].add(action.stage)
        return [sorted(stages) for stages in found]

    def given(self) -> Given:
        return Given("schedule.csv", {"schedule.csv": self.to_csv()})

    def __getitem__(self, rank: int) -> list[Cell]:
        return self.rows[rank]

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]  # rows may be changed

    def __repr__(self) -> str:
        return f"<Schedule: {self.ranks} ranks, {self.stages} stages, {self.micro_batches} micro-batches>"


def _cell(cell: Cell | str) -> Cell:
    if isinstance(cell, Action):
        return cell
    if isinstance(cell, tuple):
        return tuple(_cell(one) for one in cell)  # type: ignore[return-value]
    if not isinstance(cell, str):
        raise TypeError(f"a cell of type {type(cell).__name__}, expected an Action, two of them, or text")
    pair = re.fullmatch(r"\((.*);(.*)\)OVERLAP_F_B", cell.strip())
    return (Action.parse(pair[1]), Action.parse(pair[2])) if pair else Action.parse(cell)


def _cell_text(cell: Cell) -> str:
    return f"({cell[0]};{cell[1]})OVERLAP_F_B" if isinstance(cell, tuple) else str(cell)


def given(source: Any) -> Given:
    """The word and the files of anything that a command reads."""
    if isinstance(source, Mapping):
        return Scenario(source).given()
    if isinstance(source, (list, tuple)):
        return Schedule(source).given()
    if isinstance(source, (str, os.PathLike)):
        return Scenario(source).given()
    if hasattr(source, "given"):
        return source.given()
    raise TypeError(f"a source of type {type(source).__name__}, expected a path, a Scenario, a Schedule or a Plan")


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options of a command: batch_tokens=4e6 is "--batch-tokens 4000000.0", True the option alone, None and False
    nothing; a list is separated by commas, and `set` is a dict of keys of a scenario.

    >>> option_words({"forward_ms": [1, 2], "set": {"pipeline.stages": 2}, "quiet": True})
    ['--set', 'pipeline.stages=2', '--forward-ms', '1,2', '--quiet']
    """
    words: list[str] = []
    keys = options.get("set")
    if keys is not None:
        if not isinstance(keys, Mapping):
            raise TypeError(f"set is of type {type(keys).__name__}, expected a dict of keys of a scenario")
        for key, value in keys.items():
            words += ["--set", f"{key}={toml_value(value, str(key))}"]
    for name, value in options.items():
        if name == "set" or value is None or value is False:
            continue
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [option, ",".join(_option_value(one, name) for one in value)]
        else:
            words += [option, _option_value(value, name)]
    return words


def _option_value(value: Any, name: str) -> str:
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else number(value, name)


def file_text(source: PathLike | str | bytes) -> str | bytes:
    """The content of a path, or a text of several lines as it is."""
    if isinstance(source, bytes) or isinstance(source, str) and "\n" in source:
        return source
    return Path(source).read_bytes()


def named(source: Any, name: str) -> Given:
    """A word for a file that is a path, a text of several lines or a dict."""
    if isinstance(source, Mapping):
        return Given(name, {name: _json_text(source, name)})
    if isinstance(source, bytes) or isinstance(source, str) and "\n" in source:
        return Given(name, {name: source})
    if isinstance(source, (str, os.PathLike)):
        return Given(os.fspath(source), {})
    raise TypeError(f"{name} is of type {type(source).__name__}, expected a path, a text or a dict")


def _numbered(name: str, number: int) -> str:
    """`name`, "scenario-2.toml" for the second."""
    stem, dot, ending = name.partition(".")
    return name if number == 1 else f"{stem}-{number}{dot}{ending}"


class CommandLine:
    """Words of a command line, some of which are names of given files and of outputs. A path of the caller that is such
    a name, too, is written as "./NAME". The second given file of one name gets a number: "scenario-2.toml".

    >>> line = CommandLine("sweep")
    >>> line.give(Scenario({"a": 1}).given()), line.give(Scenario({"a": 2}).given()), line.add("x.toml")
    (None, None, None)
    >>> line.words()
    ['sweep', 'scenario.toml', 'scenario-2.toml', 'x.toml']
    """

    def __init__(self, command: str):
        self._command = command
        self._words: list[tuple[str, str | bytes | None, bool]] = []  # a word, its content, whether it is an output
        self._fixed: dict[str, str | bytes] = {}
        self.outputs: list[str] = []
        self.files: dict[str, str | bytes] = {}

    def add(self, *words: str) -> None:
        self._words += [(word, None, False) for word in words]

    def give(self, source: Given) -> None:
        """Adds the word of a source. Its other files keep their names, which it knows. Raises UsageError where two
        sources have different files of one name."""
        for name, content in source.files.items():
            if name == source.word:
                continue
            if self._fixed.setdefault(name, content) != content:
                raise UsageError(f"two sources have a file {name!r} each, and these differ", kind="usage", place=name,
                                 hint="ask about one source at a time, or give their files different names", code=2)
        self._words.append((source.word, source.files.get(source.word), False))

    def output(self, name: str) -> None:
        """Adds the name of a file that the command writes."""
        self.outputs.append(name)
        self._words.append((name, None, True))

    def words(self) -> list[str]:
        """All words; settles `files`."""
        for name in self.outputs:
            if name in self._fixed:
                raise UsageError(f"{name!r} is the name of a given file", kind="usage", place=name,
                                 hint="choose another name for what is written", code=2)
        self.files = dict(self._fixed)
        others = {word for word, content, _ in self._words if content is None}
        words = [self._command]
        for word, content, is_output in self._words:
            if content is not None:
                number = 1
                while (name := _numbered(word, number)) in others or self.files.get(name, content) != content:
                    number += 1
                self.files[name] = content
                words.append(name)
            else:
                words.append(word)
        return [words[0]] + [f"./{word}" if content is None and not is_output and
                             (word in self.files or word in self.outputs) else word
                             for word, (_, content, is_output) in zip(words[1:], self._words)]


def sequence_of(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
