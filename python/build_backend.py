# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package for pip (PEP 517): `pip install .`, or of a source file.

The wheel is that of scripts/wheel. It needs a compiler, CMake and the libraries of scripts/install-packages build; a wheel
needs none of them.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGETS = ("pipetwin_library", "pipetwin_planner_program")
LEFT_OUT = {"build", "runs", ".cache", ".git", "__pycache__"}


def _version():
    return re.search(r"project\(pipetwin VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def _refuse(what):
    raise SystemExit(f"pipetwin: {what}\nhint: 'scripts/install-packages build' installs what a build needs on Debian 12; "
                     "where that cannot be, install the wheel, which needs no compiler")


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel; returns its name."""
    missing = [name for name in ("cmake", "ninja", "c++", "readelf") if shutil.which(name) is None]
    if missing:
        _refuse(f"{', '.join(missing)}: not found, so the package cannot be built from its source")
    build = ROOT / "build" / "pip"
    for command in (("cmake", "--preset", "release", "-B", str(build), "--log-level=WARNING", "-DPIPETWIN_GUI=OFF", "-DPIPETWIN_CUDA=OFF",
                     "-DPIPETWIN_MPI=OFF", "-DPIPETWIN_TESTS=OFF"),
                    ("cmake", "--build", str(build), "--target", *TARGETS)):
        if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode != 0:
            _refuse(f"'{' '.join(command)}' failed")
    folder = ROOT / "build" / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, str(ROOT / "python" / "build.py"), str(build), str(folder), "--wheel"], check=True,
                   stdout=sys.stderr)
    wheel = next(folder.glob("*.whl"))
    shutil.copy(wheel, wheel_directory)
    return wheel.name


def _sources():
    """What the repository has; without git all but what a build leaves."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False) if shutil.which("git") and (ROOT / ".git").exists() else None
    if listed is not None and listed.returncode == 0:
        return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).exists())
    return sorted(file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*")
                  if file.is_file() and not LEFT_OUT & set(file.relative_to(ROOT).parts))


def build_sdist(sdist_directory, config_settings=None):
    """Writes the source as one file; returns its name."""
    base = f"pipetwin-{_version()}"
    about = f"Metadata-Version: 2.1\nName: pipetwin\nVersion: {_version()}\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as packed:
        for name in _sources():
            if name != "PKG-INFO":
                packed.add(ROOT / name, f"{base}/{name}", recursive=False, filter=_nobodys)
        info = pathlib.Path(sdist_directory) / "PKG-INFO"
        info.write_text(about)
        packed.add(info, f"{base}/PKG-INFO", filter=_nobodys)
        info.unlink()
    return f"{base}.tar.gz"


def _nobodys(entry):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
