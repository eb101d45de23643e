#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "cli/text_output.h"
#include "core/units.h"
#include "exec/cuda_module.h"

namespace pipetwin::cli {

namespace {

struct Machine {
    std::string processor;
    int cores = 1;  ///< that this process may use
    Bytes memory;
};

/// "Intel(R) Xeon(R) ..." from /proc/cpuinfo; empty where it says nothing.
std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return {};
}

Machine this_machine() {
    Machine machine;
    machine.processor = processor_name();
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        machine.cores = CPU_COUNT(&set);
    }
    machine.memory = Bytes{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
    return machine;
}

std::string_view state_word(exec::CudaState state) {
    switch (state) {
        case exec::CudaState::Available:
            return "available";
        case exec::CudaState::NoDriver:
            return "no driver";
        case exec::CudaState::NoDevice:
            return "no device";
        case exec::CudaState::LibrariesMissing:
            return "libraries missing";
        case exec::CudaState::NotBuilt:
            return "not built";
    }
    return "unknown";
}

Json devices_json(const Machine& machine, const exec::CudaProbe& cuda) {
    const auto text_or_null = [](const std::string& text) {
        return text.empty() ? Json(nullptr) : Json(text);
    };
    Json json = json_head();
    json["machine"] = {{"processor", text_or_null(machine.processor)},
                       {"cores", machine.cores},
                       {"memory_bytes", machine.memory.count}};
    json["cuda"] = {{"state", std::string(state_word(cuda.state))},
                    {"detail", text_or_null(cuda.detail)},
                    {"versions", text_or_null(cuda.versions)},
                    {"devices", Json::array()}};
    for (const exec::CudaDevice& device : cuda.devices) {
        json["cuda"]["devices"].push_back({{"name", device.name},
                                           {"compute_capability", device.compute_capability},
                                           {"memory_bytes", device.memory_bytes},
                                           {"multiprocessors", device.multiprocessors}});
    }
    return json;
}

std::string devices_text(const Machine& machine, const exec::CudaProbe& cuda) {
    std::string text = fmt::format("this-machine  {} cores, {}  {}\n",
                                   machine.cores,
                                   format_bytes(machine.memory),
                                   machine.processor);
    text += fmt::format("cuda          {}", state_word(cuda.state));
    for (const std::string& more : {cuda.detail, cuda.versions}) {
        text += more.empty() ? "" : "; " + more;
    }
    text += '\n';
    for (const exec::CudaDevice& device : cuda.devices) {
        text += fmt::format("              {}, {}, {} multiprocessors, compute capability {}.{}\n",
                            device.name,
                            format_bytes(Bytes{device.memory_bytes}),
                            device.multiprocessors,
                            device.compute_capability / 10,
                            device.compute_capability % 10);
    }
    return text;
}

}  // namespace

void execute(const DevicesOptions& options, Console& console) {
    const Machine machine = this_machine();
    const exec::CudaProbe cuda = exec::probe_cuda();
    console.result(options.common.json ? json_text(devices_json(machine, cuda))
                                       : devices_text(machine, cuda));
}

}  // namespace pipetwin::cli
