#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the Python package together, and with --wheel packs it.

    python/build.py BUILD FOLDER [--wheel]

BUILD is a build folder that has lib/libpipetwin.so and planner/pipetwin. FOLDER/pipetwin becomes the package: the modules,
and in native/ the library, the program, what both need of Debian's libraries, and the profiles. Debian's libraries get
names of their own of the same length, so that another package's of the same name are never taken in their place. Prints
the newest symbol of glibc and of libstdc++ that is needed. --wheel writes FOLDER/pipetwin-VERSION-py3-none-linux_x86_64.whl,
with the licence texts of all that is in it, from Debian's packages.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What every Linux system has, libstdc++ among them: two copies of it in a process do not share their exceptions.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux.*|linux-vdso)\.so\b")
# Headers of libraries that are compiled into the binaries. Boost's licence asks for no text beside machine code.
HEADERS = ("/usr/include/nlohmann/json.hpp", "/usr/include/CLI/CLI.hpp")
SHIPPED = ("profiles", "scenarios")
METADATA = """Metadata-Version: 2.1
Name: pipetwin
Version: {version}
Summary: Plan pipeline-parallel training and predict its time and memory
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
"""
WHEEL = """Wheel-Version: 1.0
Generator: pipetwin
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""
ENTRY_POINTS = "[console_scripts]\npipetwin = pipetwin._command:main\n"


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(file):
    """Names of the libraries that a file is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", file))


def places(file):
    """{name: path} of all libraries that a file is started with."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", file), re.MULTILINE))


def own_name(name):
    """Another name of the same length: "libfmt.so.9" is "ptwfmt.so.9"."""
    return "ptw" + name[3:]


def newest_symbols(files):
    """The newest version of glibc and of libstdc++ that a symbol asks for."""
    newest = {}
    for file in files:
        for family, version in re.findall(r"(GLIBC|GLIBCXX)_([0-9.]+)", output_of("objdump", "-T", file)):
            numbers = tuple(map(int, version.split(".")))
            newest[family] = max(newest.get(family, (0,)), numbers)
    return {family: ".".join(map(str, numbers)) for family, numbers in sorted(newest.items())}


def licences(files):
    """{package of Debian: its licence text} of the packages that own the files."""
    owners = output_of("dpkg", "-S", *(pathlib.Path(file).resolve() for file in files)).splitlines()
    return {owner: pathlib.Path("/usr/share/doc", owner, "copyright").read_bytes()
            for owner in sorted({line.split(":")[0] for line in owners})}


def stage(build, package):
    """The package as a folder; returns its binaries, and the files of Debian that are among them."""
    shutil.rmtree(package, ignore_errors=True)
    native = package / "native"
    (native / "lib").mkdir(parents=True)
    (native / "bin").mkdir()
    for module in sorted((ROOT / "python/pipetwin").glob("*")):
        if module.is_file():
            shutil.copy(module, package / module.name)
    shutil.copy(ROOT / "tools/profile_torch.py", package / "_profile_torch.py")
    library = native / "lib/libpipetwin.so"
    program = native / "bin/pipetwin"
    shutil.copy((build / "lib/libpipetwin.so").resolve(), library)
    shutil.copy(build / "planner/pipetwin", program)
    found = {**places(library), **places(program)}
    renamed = {name: own_name(name) for name in found if not SYSTEM.match(name)}
    for name, other in renamed.items():
        shutil.copy(pathlib.Path(found[name]).resolve(), native / "lib" / other)
    binaries = [library, program, *(native / "lib" / other for other in renamed.values())]
    for file in binaries:
        subprocess.run(["strip", "--strip-unneeded", str(file)], check=True)
        content = file.read_bytes()
        for name, other in renamed.items():  # of the same length: every place in the file stays
            content = content.replace(b"\0" + name.encode() + b"\0", b"\0" + other.encode() + b"\0")
        file.write_bytes(content)
        foreign = [name for name in needed(file) if not SYSTEM.match(name) and name not in renamed.values()]
        if foreign:
            raise SystemExit(f"{file}: needs {', '.join(foreign)}, which the package does not have")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, native / "share/pipetwin" / name)
    return binaries, [found[name] for name in renamed]


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def pack(package, version, texts):
    """The wheel, with the same bytes for the same content. `texts`: licences of others."""
    wheel = package.parent / f"pipetwin-{version}-py3-none-linux_x86_64.whl"
    about = f"pipetwin-{version}.dist-info"
    record = ""
    files = [(file.relative_to(package.parent).as_posix(), file.read_bytes(), os.access(file, os.X_OK))
             for file in sorted(package.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    files += [(f"{about}/METADATA", METADATA.format(version=version).encode(), False),
              (f"{about}/WHEEL", WHEEL.encode(), False), (f"{about}/entry_points.txt", ENTRY_POINTS.encode(), False),
              (f"{about}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), False)]
    files += [(f"{about}/licenses/{name}.txt", text, False) for name, text in sorted(texts.items())]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content, is_program in [*files, (f"{about}/RECORD", None, False)]:
            if content is None:
                content = (record + f"{about}/RECORD,,\n").encode()
            else:
                record += record_line(name, content)
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--wheel", action="store_true")
    asked = parser.parse_args()
    package = asked.folder.resolve() / "pipetwin"
    binaries, theirs = stage(asked.build.resolve(), package)
    print("newest symbols:", ", ".join(f"{family} {version}" for family, version in newest_symbols(binaries).items()))
    if asked.wheel:
        version = re.search(r"project\(pipetwin VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        wheel = pack(package, version, licences([*theirs, *HEADERS]))
        installed = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB, installed {installed / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
