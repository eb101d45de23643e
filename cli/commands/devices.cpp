// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/text/gpu_text.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "core/base/number_text.h"
#include "core/base/units.h"
#include "core/costs/devices/device_json.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/shipped_profiles.h"
#include "exec/gpu/cuda_module.h"

namespace pipetwin::cli {

namespace {

/// Options of `devices`.
struct DevicesOptions {
    CommonOptions common;
    bool measure = false;  ///< how fast the GPUs are
    int matrix = 8192;     ///< rows of the matrices; copies take 16 matrix^2 bytes
};

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

std::vector<DeviceProfile> shipped_devices() {
    std::vector<DeviceProfile> devices;
    for (const std::string& name : device_names()) {
        devices.push_back(find_device(name));
    }
    return devices;
}

/// The fastest precision below fp32 that is not fp8: what training uses.
std::pair<std::string, double> training_rate(const DeviceProfile& device) {
    for (const char* precision : {"bf16", "fp16", "tf32", "fp32"}) {
        if (const auto found = device.matrix_rates.find(precision);
            found != device.matrix_rates.end()) {
            return {found->first, found->second.value};
        }
    }
    return {device.matrix_rates.begin()->first, device.matrix_rates.begin()->second.value};
}

/// The names that are known, in lines of at most `width` characters, and the command that takes
/// one.
std::string names_text(std::string_view what,
                       const std::vector<std::string>& names,
                       std::string_view use,
                       int width) {
    constexpr std::size_t indent = 10;
    std::string text;
    std::string line = fmt::format("{:<{}}", what, indent);
    for (std::size_t index = 0; index < names.size(); ++index) {
        const bool is_last = index + 1 == names.size();
        const std::string word =
            is_last ? fmt::format("{}  ({})", names[index], use) : names[index] + ",";
        const bool is_first_of_line = line.size() <= indent;
        if (!is_first_of_line &&
            line.size() + 1 + word.size() > static_cast<std::size_t>(std::max(width, 0))) {
            text += line + "\n";
            line.assign(indent, ' ');
        }
        line += (line.size() <= indent ? "" : " ") + word;
    }
    return names.empty() ? "" : text + line + "\n";
}

/// The table with a text behind each of its lines.
std::string with_descriptions(std::string_view table,
                              const std::vector<std::string>& descriptions) {
    std::string text;
    for (const std::string& description : descriptions) {
        const std::size_t end = table.find('\n');
        text += table.substr(0, end);
        text += description.empty() ? "\n" : fmt::format("  {}\n", description);
        table.remove_prefix(end + 1);
    }
    return text;
}

std::string profiles_text(const std::vector<DeviceProfile>& devices) {
    std::vector<std::vector<std::string>> rows{
        {"profile", "dense rate", "memory", "memory rate", "to a neighbour", "host link"}};
    const auto rate = [](double bytes_per_second) {
        return fmt::format("{:.0f} GB/s", bytes_per_second / 1e9);
    };
    for (const DeviceProfile& device : devices) {
        const auto [precision, flops] = training_rate(device);
        rows.push_back({device.name,
                        fmt::format("{:.4g} TFLOP/s {}", flops / 1e12, precision),
                        format_bytes(device.memory.value),
                        rate(device.memory_rate.value),
                        device.device_link ? rate(device.device_link->bytes_per_second.value) : "-",
                        rate(device.host_link.bytes_per_second.value)});
    }
    return devices.empty() ? fmt::format("no device profiles in {}\n", profiles_folder().string())
                           : fmt::format(
                                 "\n{}  read from {}; rates of links are per direction; --json "
                                 "lists the source of each value\n",
                                 text_table(rows),
                                 profiles_folder().string());
}

/// Classes of links; none where the folder of profiles has no such file.
std::vector<LinkProfile> shipped_links() {
    std::error_code ignored;
    return std::filesystem::exists(profiles_folder() / "links.json", ignored)
               ? all_links()
               : std::vector<LinkProfile>();
}

std::string links_text(const std::vector<LinkProfile>& links) {
    if (links.empty()) {
        return "";
    }
    std::vector<std::vector<std::string>> rows{{"link", "rate", "latency", "rate is"}};
    std::vector<std::string> descriptions{""};
    for (const LinkProfile& link : links) {
        const LinkFacts& facts = link.facts;
        rows.push_back({link.name,
                        fmt::format("{:.4g} Gbit/s", facts.bytes_per_second.value * 8 / 1e9),
                        fmt::format("{:.4g} us", to_milliseconds(facts.latency.value) * 1e3),
                        std::string(to_string(facts.bytes_per_second.kind))});
        descriptions.push_back(link.description);
    }
    return fmt::format(
        "\n{}  for cluster.link, cluster.node_link and cluster.host_link; rates are per "
        "direction; --json lists sources\n",
        with_descriptions(text_table(rows), descriptions));
}

/// By device of the probe; empty: not asked for.
using Measured = std::vector<MeasuredDevice>;

Measured measure(const exec::CudaProbe& cuda, const DevicesOptions& options) {
    Measured measured;
    const exec::CudaRateSizes sizes{.matrix = options.matrix,
                                    .copy = Bytes{16} * options.matrix * options.matrix};
    for (int index = 0; options.measure && index < std::ssize(cuda.devices); ++index) {
        const exec::CudaMemory memory = exec::cuda_memory(index);
        measured.push_back({.memory = memory, .rates = exec::measure_cuda(index, sizes)});
    }
    return measured;
}

/// Training software, and the precisions that are known of each of its devices.
Json stacks_json() {
    Json stacks = Json::array();
    for (const std::string& name : stack_names()) {
        const auto stack = find_stack(name);
        Json& line = stacks.emplace_back(Json{{"name", name},
                                              {"description", stack->description},
                                              {"year", stack->year},
                                              {"frameworks", stack->frameworks},
                                              {"devices", Json::object()}});
        for (const std::string& device : stack->devices()) {
            line["devices"][device] = stack->precisions_of(device);
        }
    }
    return stacks;
}

Json devices_json(const Machine& machine,
                  const exec::CudaProbe& cuda,
                  const Measured& measured,
                  const std::vector<DeviceProfile>& devices,
                  const std::vector<LinkProfile>& links) {
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
    for (std::size_t index = 0; index < cuda.devices.size(); ++index) {
        const exec::CudaDevice& device = cuda.devices[index];
        Json& line = json["cuda"]["devices"].emplace_back(
            Json{{"name", device.name},
                 {"compute_capability", device.compute_capability},
                 {"memory_bytes", device.memory_bytes},
                 {"multiprocessors", device.multiprocessors},
                 {"free_bytes", nullptr},
                 {"rates", nullptr}});
        if (!measured.empty()) {
            line["free_bytes"] = measured[index].memory.free.count;
            line["rates"] = rates_json(measured[index].rates);
        }
    }
    json["profiles"] = Json::array();
    for (const DeviceProfile& device : devices) {
        json["profiles"].push_back(Json::parse(print_device_profile(device)));
    }
    json["links"] = Json::parse(print_link_profiles(links))["links"];
    json["clusters"] = cluster_names();
    json["models"] = model_names();
    json["stacks"] = stacks_json();
    return json;
}

std::string devices_text(const Machine& machine,
                         const exec::CudaProbe& cuda,
                         const Measured& measured,
                         const std::vector<DeviceProfile>& devices,
                         const std::vector<LinkProfile>& links,
                         int width) {
    std::string text = fmt::format("this-machine  {}, {}  {}\n",
                                   counted(machine.cores, "core"),
                                   format_bytes(machine.memory),
                                   machine.processor);
    const bool says_state = cuda.detail.starts_with(state_word(cuda.state));
    text += fmt::format("cuda          {}", says_state ? cuda.detail : state_word(cuda.state));
    for (const std::string& more : {says_state ? std::string() : cuda.detail, cuda.versions}) {
        text += more.empty() ? "" : "; " + more;
    }
    text += '\n';
    for (std::size_t index = 0; index < cuda.devices.size(); ++index) {
        const exec::CudaDevice& device = cuda.devices[index];
        text += fmt::format("              {}, {}, {}, compute capability {}.{}\n",
                            device.name,
                            format_bytes(Bytes{device.memory_bytes}),
                            counted(device.multiprocessors, "multiprocessor"),
                            device.compute_capability / 10,
                            device.compute_capability % 10);
        for (const std::string& line :
             measured.empty() ? std::vector<std::string>() : measured_text(measured[index])) {
            text += fmt::format("              {}\n", line);
        }
    }
    return text + profiles_text(devices) + links_text(links) + "\n" +
           names_text("clusters", cluster_names(), "pipetwin plan MODEL --cluster NAME", width) +
           names_text("models", model_names(), "pipetwin plan NAME --cluster CLUSTER", width) +
           names_text("stacks",
                      stack_names(),
                      "pipetwin plan MODEL --cluster CLUSTER --stack NAME",
                      width);
}

void execute_devices(const DevicesOptions& options, Console& console) {
    const Machine machine = this_machine();
    const exec::CudaProbe cuda = exec::probe_cuda();
    const Measured measured = measure(cuda, options);
    const std::vector<DeviceProfile> devices = shipped_devices();
    const std::vector<LinkProfile> links = shipped_links();
    const std::string json = json_text(devices_json(machine, cuda, measured, devices, links));
    write_result(json, options.common, console);
    console.result(options.common.json
                       ? json
                       : devices_text(machine, cuda, measured, devices, links, console.width()));
}

Command declare_devices(CLI::App& app) {
    const auto options = std::make_shared<DevicesOptions>();
    takes_out_file(app);
    reads_no_scenario(app);
    CLI::Option* const measure = app.add_flag(
        "--measure",
        options->measure,
        "Also measure on each GPU the free memory, and the speed of matrix products and copies");
    app.add_option(
           "--matrix",
           options->matrix,
           "Size N of the N x N matrices to multiply (default 8192); the copy test needs 16 N^2 "
           "bytes of memory")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 15))
        ->needs(measure);
    return command_with(options, execute_devices);
}

}  // namespace

CommandRow devices_command() {
    return {
        .name = "devices",
        .help =
            "List the devices of this machine, and the names of known devices, clusters and models",
        .declare = declare_devices};
}

}  // namespace pipetwin::cli
