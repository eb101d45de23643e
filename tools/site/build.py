#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site from the pages, and follows every link of it.

    /usr/bin/python3 tools/site/build.py PROGRAM PACKAGE FOLDER

PROGRAM is the whole `pipetwin`, PACKAGE the folder that has the Python package (build/release/python). FOLDER/html/index.html
is the site, which opens from disk; FOLDER/source has what Sphinx read: the pages as they are, a page for each schedule, and
the reference of command line, Python, C and files. Ends with 1 where a link or an anchor is dead, or a page is missing.
"""

import argparse
import html.parser
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import notebooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("docs", "scenarios", "profiles")
# Headings of the navigation, and their pages; all others are internals.
GROUPS = {
    "Begin": ["docs/README", "docs/tutorials/choose-a-configuration", "docs/tutorials/invent-a-schedule",
              "docs/tutorials/learn-pipelines", "docs/tutorials/run-on-a-cluster", "docs/cookbook", "docs/notebooks/README",
              "docs/glossary", "docs/not-modelled", "scenarios/README"],
    "Use": ["docs/cli", "docs/scenario", "docs/gui", "docs/schedules", "docs/planning", "docs/simulation", "docs/experts",
            "docs/devices", "docs/cluster", "docs/checkpoints", "docs/python", "docs/formats", "docs/import-keys",
            "docs/validation", "SECURITY", "CHANGELOG"],
    "Reference": ["reference/commands", "reference/python", "reference/c", "reference/files"],
    "Internals": ["CONTRIBUTING"],
}


def output_of(*command, **how):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **how).stdout


def fenced(text, language="text"):
    """A block of code, whatever marks are in it."""
    marks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{marks}{language}\n{text.rstrip()}\n{marks}\n"


def tree(entries, caption=""):
    """Sphinx's list of the pages under this one."""
    about = f":caption: {caption}\n" if caption else ""
    return "```{toctree}\n:hidden:\n" + about + "\n" + "\n".join(entries) + "\n```\n"


def own_tables(text, name):
    """Rows about one schedule, with the heads of their tables."""
    found, head = [], []
    for line in text.splitlines():
        if not line.startswith("|"):
            head = []
        elif len(head) < 2:
            head.append(line)
        elif re.match(rf"\|[^|]*\[{re.escape(name)}\]\(#|\|[^|]*[\[ ,]{re.escape(name)}\]\(#", line):
            found.append("\n".join([*head, line]))
    return found


def section(text, name):
    """The section of a page under the heading that a schedule has, or shares."""
    for heading in (name, name.rsplit("-", 1)[0]):
        match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        if match:
            return match[1]
    raise SystemExit(f"tools/site: docs/schedules.md has no section on '{name}'")


def from_folder_below(text):
    """Links of a page, for one that lies a folder deeper."""
    text = re.sub(r"\]\(#", "](../schedules.md#", text)
    return re.sub(r"\]\((?!\.\./schedules\.md#|[a-z]+://)([^)]+)\)", r"](../\1)", text).replace("../schedules/", "")


def schedule_names(program):
    """Names that `simulate --schedule` takes."""
    try:
        output_of(program, "simulate", "--schedule", "no-such-schedule", "--stages", "4", "--forward-ms", "1",
                  "--backward-ms", "2", stderr=subprocess.PIPE)
    except subprocess.CalledProcessError as error:
        names = re.search(r"known: ([a-z0-9, -]+)", error.stderr)
        if names:
            return [name.strip() for name in re.split(r",| or ", names[1]) if name.strip()]
        raise SystemExit(f"tools/site: no list of schedules in: {error.stderr}") from error
    raise SystemExit("tools/site: 'no-such-schedule' is a schedule")


def schedule_pages(program, source):
    page = (ROOT / "docs/schedules.md").read_text()
    names = schedule_names(program)
    for name in names:
        picture = ROOT / "docs/schedules" / f"{name}.svg"
        if not picture.exists():
            raise SystemExit(f"tools/site: {picture} is missing: scripts/schedule-pictures draws it")
        text = section(page, name)
        if f"({picture.parent.name}/{name}.svg)" not in text:
            text = f"![{name}](schedules/{name}.svg)\n\n{text}"
        tables = "\n\n".join(own_tables(page, name))
        (source / "docs/schedules" / f"{name}.md").write_text(
            f"# {name}\n\n{from_folder_below(text)}\n\n{from_folder_below(tables)}\n\n"
            f"The symbols, and how it compares with others: [the schedules](../schedules.md). "
            f"`pipetwin simulate --schedule {name} ...` predicts a step of it.\n")
    target = source / "docs/schedules.md"
    target.write_text(target.read_text() + "\n" + tree(f"schedules/{name}" for name in names))


def command_pages(program, source):
    commands = re.findall(r"^  ([a-z]+)  ", output_of(program, "--help"), re.MULTILINE)
    folder = source / "reference/commands"
    folder.mkdir()
    for name in commands:
        (folder / f"{name}.md").write_text(
            f"# pipetwin {name}\n\n{fenced(output_of(program, 'help', name, env={**os.environ, 'COLUMNS': '100'}))}\n"
            "What it means: [the command line](../../docs/cli.md).\n")
    (source / "reference/commands.md").write_text(
        "# Every command and option\n\nWhat the program prints for `pipetwin help COMMAND`. Meanings, with examples: "
        "[the command line](../docs/cli.md).\n\n" + "".join(f"- [{name}](commands/{name}.md)\n" for name in commands) +
        "\n" + fenced(output_of(program, "--help")) + "\n" + tree(f"commands/{name}" for name in commands))
    return commands


def described(name, thing):
    """A function or class of the package: its signature and what its docstring says."""
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = ""
    word = "class " if inspect.isclass(thing) else ""
    return fenced(f"{word}{name}{signature}\n\n{inspect.getdoc(thing) or ''}", "python")


def python_page(package, source):
    sys.path.insert(0, str(package))
    import pipetwin
    import pipetwin.torch
    text = "# Every function of Python\n\nWhat `help()` prints. How they go together: [Python and C](../docs/python.md).\n\n"
    for module, prefix in ((pipetwin, "pipetwin"), (pipetwin.torch, "pipetwin.torch")):
        for name in module.__all__:
            thing = getattr(module, name)
            text += f"## {prefix}.{name}\n\n{described(f'{prefix}.{name}', thing)}\n"
            if not inspect.isclass(thing) or issubclass(thing, BaseException):
                continue
            for member, value in vars(thing).items():
                function = value.fget if isinstance(value, property) else getattr(value, "func", value)
                function = getattr(function, "__func__", function)
                if not member.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
                    text += f"### {name}.{member}\n\n{described(f'{name}.{member}', function)}\n"
    (source / "reference/python.md").write_text(text)


def type_of(schema):
    kind = schema.get("type") or ("one of several" if "anyOf" in schema or "oneOf" in schema else "")
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(word)}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    return " or ".join(kind) if isinstance(kind, list) else kind


def schema_rows(schema, whole, path="", depth=0):
    if "$ref" in schema and schema["$ref"].startswith("#/") and depth < 8:
        target = whole
        for part in schema["$ref"][2:].split("/"):
            target = target[part]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    for key, value in schema.get("properties", {}).items():
        if isinstance(value, dict):
            place = f"{path}.{key}" if path else key
            yield place, type_of(value), value.get("description", "")
            if depth < 8:
                yield from schema_rows(value, whole, place, depth + 1)
    if isinstance(schema.get("items"), dict) and depth < 8:
        yield from schema_rows(schema["items"], whole, path + "[]", depth + 1)


def file_page(source):
    schemas = sorted((ROOT / "docs").rglob("*.schema.json"))
    text = "# Every key of the files\n\nWhat each file is for: [files](../docs/formats.md). The keys follow from the " \
           "JSON Schemas, which any editor or validator reads.\n\n"
    for file in schemas:
        schema = json.loads(file.read_text())
        text += f"## {file.name.removesuffix('.schema.json')}\n\n{schema.get('description', '')}\n\n" \
                f"[{file.name}](../{file.relative_to(ROOT)})\n\n| Key | Type | Meaning |\n|---|---|---|\n"
        for row in schema_rows(schema, schema):
            cells = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
            text += f"| `{cells[0]}` | {cells[1]} | {cells[2]} |\n"
        text += "\n"
    (source / "reference/files.md").write_text(text)


def staged_link(page, link, source, anchors):
    """A link as Sphinx takes it: the first page has another name there, anchors in HTML are unknown to it, and folders
    have no page."""
    words, (path, _, anchor) = link[1], link[2].partition("#")
    file = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
    if file.is_dir():
        return words
    if file == source / "README.md":
        return f"[{words}]({os.path.relpath(source / 'index.md', page.parent)}{'#' + anchor if anchor else ''})"
    if anchor in anchors.get(file, ()):
        return f'<a href="{path[:-2] + "html" if path else ""}#{anchor}">{words}</a>'
    return link[0]


def stage(program, package, source):
    """What Sphinx reads: the tree of pages, as links of theirs expect it."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder)
    for name in PAGES:
        shutil.copy(ROOT / name, source / name)
    (source / "README.md").rename(source / "index.md")
    shutil.copy(ROOT / "LICENSE", source / "LICENSE")
    anchors = {page: set(re.findall(r'<a id="([^"]+)">', page.read_text())) for page in source.rglob("*.md")}
    for page in anchors:
        page.write_text(re.sub(r"(?<!!)\[([^\]]*)\]\(([^()\s:]+)\)", lambda link: staged_link(page, link, source, anchors),
                               page.read_text()))
    (source / "reference").mkdir()
    schedule_pages(program, source)
    command_pages(program, source)
    python_page(package, source)
    notebook_pages(source)
    header = (ROOT / "cli/library/pipetwin.h").read_text()
    (source / "reference/c.md").write_text(
        "# Every function of C\n\nThe header `pipetwin.h`. How to link: [Python and C](../docs/python.md#the-c-library).\n\n" +
        fenced(header, "c"))
    file_page(source)
    present = {page.relative_to(source).with_suffix("").as_posix() for page in source.rglob("*.md")}
    named = {name for group in GROUPS.values() for name in group}
    rest = sorted(name for name in present - named - {"index"}
                  if not name.startswith(("docs/schedules/", "docs/notebooks/", "reference/commands/")))
    index = source / "index.md"
    text = index.read_text()
    for caption, names in GROUPS.items():
        text += "\n" + tree([name for name in names if name in present] + (rest if caption == "Internals" else []), caption)
    index.write_text(text)


def notebook_pages(source):
    """Notebooks as pages, with what their cells print and show; the links to them stay."""
    folder = source / "docs/notebooks"
    files = sorted(folder.glob("*.ipynb"))
    for file in files:
        file.with_suffix(".md").write_text(notebooks.as_markdown(file) + f"\nThe notebook: [{file.name}]({file.name}).\n")
    index = folder / "README.md"
    index.write_text(index.read_text().replace(".ipynb)", ".md)") + "\n" + tree(file.stem for file in files))


class Anchors(html.parser.HTMLParser):
    """Links and ids of a page."""

    def __init__(self, page):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("href", "src") and value and tag != "form":
                self.links.append(value)
                if key == "src" or (tag == "link" and "stylesheet" in (dict(attributes).get("rel") or "")):
                    self.loaded.append(value)  # by the page itself, so it has to lie on the disk
            if key in ("id", "name") and value:
                self.ids.add(value)


def dead_links(site):
    """["PAGE: LINK"] of links that lead nowhere, and how many were followed."""
    pages = {file: Anchors(file.read_text()) for file in site.rglob("*.html")}
    dead, followed = [], 0
    for file, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                if parts.scheme not in ("https", "http", "mailto", "data") or (link in page.loaded and parts.scheme != "data"):
                    dead.append(f"{file.relative_to(site)}: {link}")
                continue
            followed += 1
            target = (file.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else file
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                dead.append(f"{file.relative_to(site)}: {link}")
            elif anchor and target in pages and anchor not in pages[target].ids:
                dead.append(f"{file.relative_to(site)}: {link}")
    return dead, followed


def missing_pages(site, source):
    """Pages that were staged and are not there, or that the search does not know."""
    index = (site / "searchindex.js").read_text()
    for page in sorted(source.rglob("*.md")):
        name = page.relative_to(source).with_suffix("").as_posix()
        if not (site / f"{name}.html").is_file() or f'"{name}"' not in index:
            yield name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    asked = parser.parse_args()
    source, site = asked.folder.resolve() / "source", asked.folder.resolve() / "html"
    stage(asked.program.resolve(), asked.package.resolve(), source)
    shutil.rmtree(site, ignore_errors=True)
    from sphinx.cmd.build import main as sphinx
    code = sphinx(["-q", "-W", "--keep-going", "-E", "-b", "html", "-c", str(ROOT / "tools/site"), "-d",
                   str(asked.folder.resolve() / "doctrees"), str(source), str(site)])
    dead, followed = dead_links(site)
    missing = list(missing_pages(site, source))
    for line in [*(f"dead link: {link}" for link in dead), *(f"no page: {name}" for name in missing)]:
        print(line, file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages, {followed} links followed, {len(dead)} dead, {len(missing)} pages missing")
    return 1 if code or dead or missing else 0


if __name__ == "__main__":
    sys.exit(main())
