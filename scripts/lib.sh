# Shared by the scripts of this folder; sourced, from bash with set -euo pipefail.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)

phase() { printf '\n== %s\n' "$*"; }

# Compiler cache and fast linker where they are installed, unless the caller has chosen already.
use_fast_tools() {
    if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
        export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
        export CCACHE_SLOPPINESS=pch_defines,time_macros  # what precompiled headers need
        export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true  # another checkout finds the same, too
        export CCACHE_IGNOREOPTIONS='-DQT_TESTCASE_*'  # of Qt's test library; nobody reads them here
    fi
    if [ -z "${LDFLAGS:-}" ] && command -v mold >/dev/null; then
        export LDFLAGS=-fuse-ld=mold
    fi
}

# build PRESET [TARGET...]: configures and builds; without targets everything.
build() {
    local preset=$1
    shift
    local targets=()
    if [ $# -gt 0 ]; then
        targets=(--target "$@")
    fi
    use_fast_tools  # packages may have come meanwhile
    phase "build $preset: ${*:-everything}"
    cmake --preset "$preset" --log-level=WARNING
    cmake --build --preset "$preset" --parallel "$cores" "${targets[@]}"
}

cd "$root"
use_fast_tools
