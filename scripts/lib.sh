# SPDX-License-Identifier: Apache-2.0

# Shared by the scripts of this folder; sourced, from bash with set -euo pipefail.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)
at_once=$((cores + 1))  # test processes: those that train in several processes wait most of the time

phase() { printf '\n== %s\n' "$*"; }

# build PRESET [TARGET...]: configures and builds; without targets everything.
build() {
    local preset=$1
    shift
    local targets=()
    if [ $# -gt 0 ]; then
        targets=(--target "$@")
    fi
    phase "build $preset: ${*:-everything}"
    cmake --preset "$preset" --log-level=WARNING
    cmake --build --preset "$preset" --parallel "$cores" "${targets[@]}"
}

cd "$root"
