# SPDX-License-Identifier: Apache-2.0
"""Carries out notebooks without Jupyter: the cells of code in order, in one namespace, in the folder of the notebook."""

import ast
import contextlib
import html
import io
import json
import os
import pathlib


def cells_of(file):
    """[(kind, text)] of a notebook: "markdown" and "code"."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(pathlib.Path(file).read_text())["cells"]]


def shown(value):
    """What a notebook shows of the value of a cell's last line, as HTML."""
    own = getattr(value, "_repr_html_", None)
    return own() if own else f"<pre>{html.escape(repr(value))}</pre>"


def run(file):
    """Carries a notebook out: ([(kind, text, printed, HTML or None)], the names that it leaves)."""
    names, done, before = {"__name__": "__main__"}, [], os.getcwd()
    os.chdir(pathlib.Path(file).resolve().parent)
    try:
        for number, (kind, text) in enumerate(cells_of(file)):
            if kind != "code":
                done.append((kind, text, "", None))
                continue
            tree = ast.parse(text, tree_name(file, number))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            printed, value = io.StringIO(), None
            with contextlib.redirect_stdout(printed):
                exec(compile(tree, tree_name(file, number), "exec"), names)  # noqa: S102 - it is ours
                if last is not None:
                    value = eval(compile(ast.Expression(last.value), tree_name(file, number), "eval"), names)
            done.append((kind, text, printed.getvalue(), None if value is None else shown(value)))
    finally:
        os.chdir(before)
    return done, names


def tree_name(file, number):
    return f"<{pathlib.Path(file).name}, cell {number}>"


def as_markdown(file):
    """A page with what the cells print and show."""
    parts = []
    for kind, text, printed, value in run(file)[0]:
        if kind == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
        if value:  # one block of HTML: it ends at an empty line
            parts.append("<div class=\"shown\">\n" + "\n".join(line for line in value.splitlines() if line.strip()) + "\n</div>")
    return "\n\n".join(parts) + "\n"
