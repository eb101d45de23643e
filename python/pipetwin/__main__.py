# SPDX-License-Identifier: Apache-2.0
from ._command import main

main()
