# SPDX-License-Identifier: Apache-2.0
"""The program `pipetwin` of the wheel."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program."""
    program = Path(__file__).parent / "native" / "bin" / "pipetwin"
    os.execv(program, [str(program), *sys.argv[1:]])
