# SPDX-License-Identifier: Apache-2.0
"""Plan pipeline-parallel training and predict its time and memory.

    import pipetwin
    found = pipetwin.plan("config.json", "8x-h100-sxm", nodes=8)
    print(found.ranked[0]["schedule"], found.step_ms)

The answers are those of the command line `pipetwin`, to the byte. docs/python.md is the reference. `pipetwin.torch` runs
plans in PyTorch.
"""

import importlib

from ._errors import (BadInputError, Cancelled, FileError, InfeasibleError, PipetwinError, UnavailableError,
                      UsageError)
from ._inputs import Action, Cluster, Model, Scenario, Schedule
from ._library import Answer, ask
from ._questions import (check, clusters, compare, devices, draw, export, import_file, models, plan, profile, shipped,
                         simulate, sweep, version)
from ._results import Check, Comparison, Imported, Picture, Plan, Prediction, Result, Timeline

__all__ = ["Action", "Answer", "BadInputError", "Cancelled", "Check", "Cluster", "Comparison", "FileError", "Imported",
           "InfeasibleError", "Model", "Picture", "PipetwinError", "Plan", "Prediction", "Result", "Scenario",
           "Schedule", "Timeline", "UnavailableError", "UsageError", "ask", "check", "clusters", "compare", "devices",
           "draw", "export", "import_file", "models", "plan", "profile", "shipped", "simulate", "sweep", "version"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version()
    if name == "torch":  # loaded when it is asked for
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'pipetwin' has no attribute {name!r}")
