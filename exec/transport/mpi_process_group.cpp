// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/mpi_process_group.h"

#include <stdexcept>

#include <fmt/format.h>

#include "core/base/error.h"
#include "exec/base/run_time_module.h"
#include "exec/transport/mpi_module.h"

namespace pipetwin::exec {
namespace {

constexpr const char* module_file = "pipetwin_mpi.so";
constexpr const char* mpi_library = "libmpi.so.40";  // Open MPI 3 to 5; its parts look for symbols

struct Module {
    decltype(&pipetwin_mpi_interface_version) interface_version = nullptr;
    decltype(&pipetwin_mpi_join) join = nullptr;
};

Module load_module() {
    const auto file = find_module(module_file);
    if (!file) {
        throw Error(ErrorKind::Unavailable,
                    "MPI",
                    fmt::format("no {} beside the program or in PIPETWIN_MODULE_PATH", module_file),
                    "build pipetwin where MPI is installed: apt-get install libopenmpi-dev "
                    "openmpi-bin");
    }
    try {
        load_library_for_all(mpi_library);
        void* const library = load_library(*file);
        Module module;
        look_up(library, "pipetwin_mpi_interface_version", module.interface_version);
        expect_interface(*file, module.interface_version(), pipetwin_mpi_interface);
        look_up(library, "pipetwin_mpi_join", module.join);
        return module;
    } catch (const std::runtime_error& error) {
        throw Error(ErrorKind::Unavailable,
                    "MPI",
                    error.what(),
                    "install it: apt-get install openmpi-bin libopenmpi3");
    }
}

}  // namespace

std::unique_ptr<ProcessGroup> join_mpi() {
    ProcessGroup* group = nullptr;
    load_module().join(&group);
    return std::unique_ptr<ProcessGroup>(group);
}

void require_mpi() {
    static_cast<void>(load_module());
}

}  // namespace pipetwin::exec
