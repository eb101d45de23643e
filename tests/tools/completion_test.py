#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What 'pipetwin completion' prints: shells complete commands, options, names and files by it; pages of the manual have every option.

Each shell that is installed is asked itself; the others are left out, and said.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
SCRATCH = tempfile.TemporaryDirectory()
FOLDER = pathlib.Path(SCRATCH.name)
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def script(shell):
    file = FOLDER / f"pipetwin.{shell}"
    if not file.exists():
        file.write_text(run(PROGRAM, "completion", shell))
    return file


def commands():
    """Of the help: [name]."""
    text = run(PROGRAM, "--help").split("Commands:\n")[1]
    return re.findall(r"^  ([a-z]+)  ", text, re.M)


def options(command):
    return sorted(set(re.findall(r"^  (?:-h,)?(--[a-z-]+)", run(PROGRAM, command, "--help"), re.M)))


def names(kind):
    """Clusters, models or stacks, as 'devices' lists them."""
    listed = json.loads(run(PROGRAM, "devices", "--json"))[kind]
    return [one["name"] if isinstance(one, dict) else one for one in listed]


class Bash(unittest.TestCase):
    def answers(self, *words):
        """What bash offers behind these words, of which the last may be empty. Bash itself divides words at '='."""
        divided = [part for word in words for part in (re.split("(=)", word) if word else [""]) if part or not word]
        quoted = " ".join("'" + word + "'" for word in divided)
        text = (f"set -u; source '{script('bash')}'; COMP_WORDS=({quoted}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                "_pipetwin; for answer in \"${COMPREPLY[@]}\"; do echo \"$answer\"; done")
        return sorted(run("bash", "--norc", "-c", text, cwd=FOLDER / "work").split("\n")[:-1])

    @classmethod
    def setUpClass(cls):
        work = FOLDER / "work"
        (work / "more files").mkdir(parents=True, exist_ok=True)
        for name in ("one.toml", "two words.toml", "plan.json", "costs.profile.json", "costs.csv"):
            (work / name).touch()

    def test_knows_every_command_and_the_words_beside_them(self):
        self.assertEqual(self.answers("pipetwin", ""), sorted(commands() + ["help", "version", "--version", "--help"]))
        self.assertEqual(self.answers("pipetwin", "pl"), ["plan"])
        self.assertEqual(self.answers("pipetwin", "help", "comple"), ["completion"])

    def test_knows_every_option_of_every_command(self):
        for command in commands():
            with self.subTest(command=command):
                self.assertEqual(self.answers("pipetwin", command, "--"), options(command))

    def test_completes_names(self):
        self.assertEqual(self.answers("pipetwin", "plan", "m", "--cluster", ""), sorted(names("clusters") + [
            "costs.csv", "costs.profile.json", "more files", "one.toml", "plan.json", "two words.toml"]))
        self.assertEqual(self.answers("pipetwin", "plan", "llama-3-"),
                         sorted(name for name in names("models") if name.startswith("llama-3-")))
        self.assertEqual(self.answers("pipetwin", "simulate", "--stack", "non"), ["none"])
        self.assertEqual(self.answers("pipetwin", "import", "hf", "x", "--device", "h100-s"), ["h100-sxm", "h100-sxm-96"])

    def test_leaves_out_names_that_a_shell_would_read_otherwise(self):
        profiles = FOLDER / "odd profiles"
        shutil.copytree(SOURCE / "profiles", profiles)
        source = next((profiles / "clusters").glob("*.toml"))
        shutil.copy(source, source.with_name("it's $(touch here).toml"))
        for shell in ("bash", "zsh", "fish"):
            text = run(PROGRAM, "completion", shell, env={**os.environ, "PIPETWIN_PROFILES": str(profiles)})
            self.assertNotIn("touch here", text, shell)
            self.assertIn(source.stem, text, shell)

    def test_knows_words_of_every_value_that_is_one_of_some(self):
        for command in commands():
            text = run(PROGRAM, command, "--help")
            for option, value in re.findall(r"^  (--[a-z-]+) ([A-Z]+)(?:\s|$)", text, re.M):
                if value in ("NAME", "KIND", "FORMAT", "WHEN", "COUNT"):
                    with self.subTest(command=command, option=option):
                        self.assertNotEqual(self.answers("pipetwin", command, option, ""), [])

    def test_completes_words_with_and_without_an_equals_sign(self):
        self.assertEqual(self.answers("pipetwin", "plan", "--color", ""), ["always", "auto", "never"])
        self.assertEqual(self.answers("pipetwin", "plan", "--color="), ["always", "auto", "never"])
        self.assertEqual(self.answers("pipetwin", "plan", "--color=al"), ["always"])
        self.assertEqual(self.answers("pipetwin", "import", "hf", "--loss", ""), ["fused", "standard"])
        self.assertEqual(self.answers("pipetwin", "completion", ""), ["bash", "fish", "man", "zsh"])

    def test_completes_the_last_entry_of_a_list(self):
        self.assertEqual(self.answers("pipetwin", "simulate", "--schedule", "gpi"), ["gpipe"])
        self.assertEqual(self.answers("pipetwin", "simulate", "--schedule", "1f1b,gpi"), ["1f1b,gpipe"])

    def test_completes_keys_of_scenarios(self):
        self.assertEqual(self.answers("pipetwin", "simulate", "--set", "pipeline.stag"), ["pipeline.stages="])
        self.assertEqual(self.answers("pipetwin", "simulate", "--set", "pipeline.stages="), [])

    def test_completes_files_of_the_kind_that_is_read(self):
        scenarios = ["more files", "one.toml", "two words.toml"]
        self.assertEqual(self.answers("pipetwin", "run", ""), scenarios)
        self.assertEqual(self.answers("pipetwin", "run", "--quiet", "--seed", "1", "t"), ["two words.toml"])
        self.assertEqual(self.answers("pipetwin", "sweep", "one.toml", "two words.toml", ""), scenarios)
        self.assertEqual(self.answers("pipetwin", "run", "one.toml", "--out", ""), ["more files"])
        self.assertEqual(self.answers("pipetwin", "plan", "one.toml", "--order-out", "c"), ["costs.profile.json"])

    def test_leaves_out_files_whose_names_have_a_newline(self):
        odd = FOLDER / "work" / "more files"
        for name in ("line\nbreak.toml", "line.toml", "it's.toml"):
            (odd / name).touch()
        (odd / "fold\ner").mkdir()
        self.assertEqual(self.answers("pipetwin", "run", "more files/"), ["more files/it's.toml", "more files/line.toml"])
        self.assertEqual(self.answers("pipetwin", "plan", "one.toml", "--out", "more files/"), [])

    def test_runs_under_set_u(self):
        text = f"set -u; source '{script('bash')}'; COMP_WORDS=(pipetwin); COMP_CWORD=0; _pipetwin"
        self.assertEqual(subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True).stderr, "")

    def test_a_format_comes_before_the_file(self):
        self.assertIn("torch-csv", self.answers("pipetwin", "import", ""))
        self.assertIn("plan.json", self.answers("pipetwin", "import", "csv", ""))
        self.assertEqual(self.answers("pipetwin", "import", "torch-trace", "--forward", "x*", "plan.json", "costs.c"), ["costs.csv"])

    def test_is_silent_where_nothing_is_known(self):
        self.assertEqual(self.answers("pipetwin", "plan", "m", "--nodes", ""), [])
        self.assertEqual(self.answers("pipetwin", "unknown", "--"), [])


class OtherShells(unittest.TestCase):
    def test_zsh_reads_the_script(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        self.assertEqual(run("zsh", "-n", str(script("zsh"))), "")

    def test_fish_reads_the_script_and_completes(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        self.assertEqual(run("fish", "--no-execute", str(script("fish"))), "")

        def answers(line):
            text = run("fish", "--no-config", "-c", f"source '{script('fish')}'; complete -C '{line}'")
            return sorted(one.split("\t")[0] for one in text.splitlines())
        self.assertEqual(answers("pipetwin pl"), ["plan"])
        self.assertEqual(answers("pipetwin plan --clust"), ["--cluster"])
        self.assertEqual(answers("pipetwin simulate --color "), ["always", "auto", "never"])
        self.assertEqual(answers("pipetwin simulate --schedule 1f1b,gpi"), ["1f1b,gpipe"])
        self.assertEqual(answers("pipetwin help completio"), ["completion"])


class ManualPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = FOLDER / "man1"
        run(PROGRAM, "completion", "man", "--out", str(cls.folder), "--force")

    def test_there_is_one_for_the_program_and_one_for_each_command(self):
        self.assertEqual(sorted(file.name for file in self.folder.iterdir()),
                         sorted(["pipetwin.1"] + [f"pipetwin-{command}.1" for command in commands()]))
        page = (self.folder / "pipetwin.1").read_text()
        for command in commands():
            self.assertIn(f"\\fB{command}\\fR", page)
            self.assertIn(f"pipetwin\\-{command} (1)", page)

    def test_every_option_of_every_command_is_in_its_page(self):
        for command in commands():
            page = (self.folder / f"pipetwin-{command}.1").read_text()
            for option in options(command):
                with self.subTest(command=command, option=option):
                    self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", page)

    def test_every_page_has_the_day_of_the_release(self):
        day = re.search(r"^date-released: (.*)$", (SOURCE / "CITATION.cff").read_text(), re.M)[1]
        for file in self.folder.iterdir():
            self.assertRegex(file.read_text(), rf"\n\.TH \S+ 1 {day} ", file.name)

    def test_every_page_names_the_exit_codes(self):
        for file in self.folder.iterdir():
            self.assertIn(".SH EXIT STATUS\n0 success", file.read_text(), file.name)

    def test_groff_and_mandoc_have_nothing_to_say(self):
        readers = [words for words in (["groff", "-man", "-Tutf8", "-ww", "-z"],
                                       ["mandoc", "-T", "lint", "-W", "warning"]) if shutil.which(words[0])]
        if not readers:
            self.skipTest("neither groff nor mandoc is installed")
        for words in readers:
            for file in sorted(self.folder.iterdir()):
                with self.subTest(reader=words[0], file=file.name):
                    done = subprocess.run([*words, str(file)], capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


class Mistakes(unittest.TestCase):
    def refused(self, *words):
        done = subprocess.run([PROGRAM, "completion", *words], capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_are_refused_with_what_to_do(self):
        for near in ("bsh", "sh"):
            code, text = self.refused(near)
            self.assertEqual(code, 2)
            self.assertIn("did you mean 'bash'?", text)
        code, text = self.refused()
        self.assertEqual(code, 2)
        self.assertIn("hint: pipetwin completion bash\n", text)
        code, text = self.refused("bash", "--out", "-")
        self.assertEqual(code, 2)
        self.assertIn("hint: leave it out, or write --out FILE\n", text)
        code, text = self.refused("man")
        self.assertEqual(code, 2)
        self.assertIn("--out", text)
        taken = FOLDER / "taken"
        taken.touch()
        code, text = self.refused("bash", "--out", str(taken))
        self.assertEqual(code, 6)
        self.assertIn("--force", text)
        pages = FOLDER / "pages"
        run(PROGRAM, "completion", "man", "--out", str(pages))
        code, text = self.refused("man", "--out", str(pages))
        self.assertEqual(code, 6)
        self.assertIn("name another folder with --out FOLDER", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
