#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loader of schedule files in docs/formats.md, run by PyTorch on two processes.

    MODERN_TORCH=FOLDER page_loader_test.py PROGRAM

Each file that 'pipetwin export torch-csv --compute-only' writes is trained for one step; the loss has to be that of the same
matrices in one piece. Exits with 77 where MODERN_TORCH (bench/peers/torch_schedules.py) is not set."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from torch_schedules import python_of  # noqa: E402

SCENARIO = """model = {{kind = "mlp", sizes = [8, 8, 8, 8, 8]}}
data = {{kind = "synthetic"}}
training = {{batch = 16}}
pipeline = {{stages = 2, chunks = {chunks}, schedule = "{schedule}", micro_batches = 4}}
"""
WHOLE = """import sys, torch, torch.nn as nn
torch.manual_seed(1)
modules, batch = [nn.Linear(8, 8) for _ in range(int(sys.argv[1]))], None
batch = torch.randn(16, 8)
print(f"loss {nn.functional.mse_loss(nn.Sequential(*modules)(batch), batch).item():.6f}")
"""


def main():
    if "MODERN_TORCH" not in os.environ:
        print("skipped: MODERN_TORCH is not set")
        return 77
    page = (ROOT / "docs" / "formats.md").read_text()
    loader = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "_load_csv" in block)
    command, environment = python_of(pathlib.Path(os.environ["MODERN_TORCH"]))
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "loader.py").write_text(loader)
        (folder / "whole.py").write_text(WHOLE)
        for schedule, chunks in (("1f1b", 1), ("zb-v", 2)):
            (folder / "plan.toml").write_text(SCENARIO.format(schedule=schedule, chunks=chunks))
            subprocess.run([sys.argv[1], "export", "torch-csv", str(folder / "plan.toml"), "--compute-only", "--force",
                            "--out", str(folder / "schedule.csv")], check=True, stdout=subprocess.DEVNULL)
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            ranks = [subprocess.Popen([*command, str(folder / "loader.py"), str(folder / "schedule.csv")],
                                      env={**environment, "RANK": str(rank), "WORLD_SIZE": "2", "USE_LIBUV": "0",
                                           "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)},
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
            printed = [rank.communicate(timeout=240) for rank in ranks]
            losses = [line for out, _ in printed for line in out.splitlines() if line.startswith("loss ")]
            whole = subprocess.run([*command, str(folder / "whole.py"), str(2 * chunks)], env=environment, text=True,
                                   capture_output=True, check=True).stdout.strip()
            if any(rank.returncode for rank in ranks) or losses != [whole]:
                raise SystemExit(f"{schedule}: {losses}, expected {whole}\n" + "\n".join(err for _, err in printed))
            print(f"{schedule}: {whole}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
