#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a desktop reads of the window: its entry, its icon, the types of its files and its description agree and are valid."""
import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DESKTOP = ROOT / "gui/desktop"
MIME = "{http://www.freedesktop.org/standards/shared-mime-info}"


def entry():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(DESKTOP / "pipetwin-gui.desktop")
    return parser["Desktop Entry"]


class Desktop(unittest.TestCase):
    def test_the_entry_opens_the_types_that_are_described(self):
        types = {one.get("type"): one for one in xml.parse(DESKTOP / "pipetwin-gui.xml").getroot()}
        self.assertEqual([one for one in entry()["MimeType"].split(";") if one], list(types))
        about = xml.parse(DESKTOP / "pipetwin-gui.metainfo.xml").getroot()
        self.assertEqual([one.text for one in about.iter("mediatype")], list(types))
        patterns = [glob.get("pattern") for one in types.values() for glob in one.iter(MIME + "glob")]
        self.assertEqual(patterns, ["*.trace.json", "*.profile.json"])

    def test_the_entry_names_files_that_are_installed(self):
        self.assertEqual(entry()["Exec"], "pipetwin-gui %F")
        self.assertTrue((DESKTOP / (entry()["Icon"] + ".svg")).is_file())
        rules = (ROOT / "gui/CMakeLists.txt").read_text()
        for file in DESKTOP.iterdir():
            if file.suffix not in (".qrc", ".1"):
                self.assertIn(f"install(FILES desktop/{file.name} ", rules)

    def test_the_description_is_of_this_version(self):
        version = re.search(r"project\(pipetwin VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        released = re.search(r"^date-released: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
        about = xml.parse(DESKTOP / "pipetwin-gui.metainfo.xml").getroot()
        newest = next(about.iter("release"))
        self.assertEqual((newest.get("version"), newest.get("date")), (version, released))
        self.assertEqual(about.find("categories/category").text, entry()["Categories"].split(";")[0])

    def test_the_page_of_the_manual_is_of_this_version_and_has_every_option(self):
        version = re.search(r"project\(pipetwin VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        released = re.search(r"^date-released: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
        text = (DESKTOP / "pipetwin-gui.1").read_text()
        self.assertIn(f' 1 {released} "pipetwin {version}" ', text)
        page = text.replace("\\-", "-")
        source = (ROOT / "gui/base/options.cpp").read_text()
        options = re.findall(r'"(--[a-z]+)",', source[source.index("parse_options"):])
        self.assertEqual(sorted(set(options) | {"--help"}), sorted(set(re.findall(r"^\\fB.*(--[a-z]+)\\fR", page, re.M))))
        views = re.search(r"names\{(.*?)\}", source, re.S)[1]
        for view in re.findall(r'"([a-z-]+)"', views):
            self.assertRegex(page, rf"[ \n]{view}\b")
        for words in (["groff", "-man", "-Tutf8", "-ww", "-z"], ["mandoc", "-T", "lint", "-W", "warning"]):
            if shutil.which(words[0]):
                done = subprocess.run([*words, str(DESKTOP / "pipetwin-gui.1")], capture_output=True, text=True)
                self.assertEqual(done.stdout + done.stderr, "")

    def test_the_readers_of_desktops_accept_them(self):
        with tempfile.TemporaryDirectory() as folder:
            packages = pathlib.Path(folder) / "packages"
            packages.mkdir()
            shutil.copy(DESKTOP / "pipetwin-gui.xml", packages)
            # The name of the component would begin with a domain, if the project had one.
            readers = [["desktop-file-validate", DESKTOP / "pipetwin-gui.desktop"], ["update-mime-database", folder],
                       ["appstreamcli", "validate", "--no-net", "--override=cid-desktopapp-is-not-rdns=info",
                        DESKTOP / "pipetwin-gui.metainfo.xml"]]
            there = [words for words in readers if shutil.which(words[0])]
            if not there:
                self.skipTest("desktop-file-validate, update-mime-database and appstreamcli are not installed")
            for words in there:
                done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
                if words[0] == "desktop-file-validate":
                    self.assertEqual(done.stdout + done.stderr, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
