#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The notebooks as Jupyter's kernel carries them out (python3-nbclient, python3-ipykernel): no cell may fail.

    PYTHONPATH=FOLDER jupyter_check.py
"""

import pathlib
import sys

import nbformat
from nbclient import NotebookClient

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "notebooks"
for file in sorted(FOLDER.glob("*.ipynb")):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    pictures = sum("<svg" in output.get("data", {}).get("text/html", "") for cell in notebook.cells
                   for output in cell.get("outputs", []))
    print(f"{file.name}: {len(notebook.cells)} cells, {pictures} pictures")
    if pictures == 0:
        sys.exit(f"{file.name}: no picture, expected one")
