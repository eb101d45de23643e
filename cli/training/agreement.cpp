// SPDX-License-Identifier: Apache-2.0
#include "cli/training/agreement.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/run_folder/run_folder.h"
#include "core/base/content_hash.h"
#include "core/base/number_text.h"
#include "core/base/version.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"
#include "exec/data/batch.h"
#include "exec/executor/backend.h"
#include "exec/gpu/cuda_module.h"
#include "exec/transport/link_ladder.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_program_bytes = std::size_t{4} << 30U;

}  // namespace

void agree_on_inputs(Processes& processes, const Scenario& scenario) {
    if (processes.is_alone()) {
        return;
    }
    const Model model = scenario_model(scenario);
    const std::unique_ptr<exec::DataSource> data = exec::open_data(scenario, model);
    const exec::Batch batch = data->batch(0, scenario.training.batch);
    ContentHash samples;
    data->add_content(samples);
    samples.add(std::as_bytes(std::span(batch.tokens)));
    samples.add(std::as_bytes(std::span(batch.values)));
    samples.add(std::as_bytes(std::span(batch.targets)));
    processes.agree_on(
        {{"scenario", print_scenario(scenario)},
         {"data", fmt::format("{}, content {}", data->description(), samples.digits())},
         {"build",
          fmt::format("{} {}",
                      program_version(),
                      content_hash(read_file("/proc/self/exe", most_program_bytes)))}});
}

Profile shared_profile(Profile profile, const SettledScenario& scenario, Processes& processes) {
    if (processes.is_alone()) {
        return profile;
    }
    // On GPUs, for the time of measuring.
    std::vector<std::unique_ptr<exec::Device>> gpu;
    if (exec::traits(scenario.cluster.backend).has_memory) {
        gpu = exec::make_cuda_devices({.device = processes.gpu(),
                                       .ranks = 1,
                                       .own_multiprocessors = false,
                                       .memory = exec::ladder_memory});
    }
    const exec::MeasuredLinks links = exec::measured_links(
        processes.group(),
        {.ranks = scenario.pipeline.stages, .devices = scenario.pipeline.tensor_parallel},
        processes.hosts(),
        gpu.empty() ? nullptr : &gpu.front()->memory());
    if (links.inside || links.between) {
        std::erase_if(profile.links, [](const LinkCost& old) {
            return old.between == "ranks" || old.between == "nodes";
        });
    }
    if (links.devices) {
        std::erase_if(profile.links, [](const LinkCost& old) { return old.between == "devices"; });
    }
    if (links.devices || links.between) {  // messages of groups were measured on one machine
        profile.groups.reset();
    }
    for (const auto& link : {links.devices, links.between, links.inside}) {
        if (link) {
            profile.links.insert(profile.links.begin(), *link);
        }
    }
    // What all plan with is what is written, to the last digit.
    return parse_profile(processes.from_first([&] { return print_profile(profile); }),
                         std::string(run_file::profile));
}

void place_on_hosts(SettledScenario& scenario, const Processes& processes) {
    const std::vector<int>& hosts = processes.hosts();
    if (std::ranges::max(hosts) == 0) {
        return;
    }
    scenario.cluster.placement = Placement::Written;
    scenario.cluster.nodes.clear();
    const std::size_t devices = as_index(scenario.pipeline.tensor_parallel);
    for (std::size_t first = 0; first < hosts.size(); first += devices) {
        const std::span<const int> of_rank = std::span(hosts).subspan(first, devices);
        if (std::ranges::adjacent_find(of_rank, std::ranges::not_equal_to()) != of_rank.end()) {
            throw Error(ErrorKind::Unavailable,
                        "processes",
                        fmt::format("processes {} to {} are the devices of one rank, but on "
                                    "different hosts",
                                    first,
                                    first + devices - 1),
                        fmt::format("start {} neighbours on each host, as with mpirun --map-by "
                                    "ppr:{}:node",
                                    devices,
                                    devices));
        }
        scenario.cluster.nodes.push_back(of_rank.front());
    }
}

void note_links(const Profile& profile, const Processes& processes, Console& console) {
    if (processes.is_alone()) {
        return;
    }
    const auto ends_of = [](const LinkCost& link) -> std::string {
        return link.between == "ranks"     ? "processes"
               : link.between == "nodes"   ? "hosts"
               : link.between == "devices" ? "devices of a rank"
                                           : link.between;
    };
    for (const LinkCost& link : profile.links) {
        if (link.between == "host") {
            continue;
        }
        const std::string rate =
            link.bytes_per_second > 0
                ? fmt::format(" and {:.3g} Gbit/s", link.bytes_per_second * 8 / 1e9)
                : "";
        console.note(fmt::format(
            "link between {}: {}{}", ends_of(link), format_duration(link.latency), rate));
    }
}

void agree_on_plan(Processes& processes, const Plan& plan) {
    if (processes.is_alone()) {
        return;
    }
    processes.agree_on({{"schedule", plan.hash()}});
    constexpr int messages = 10;
    for (std::size_t pair = 0; pair < plan->links.size(); ++pair) {
        processes.monitor().allow(
            messages * exec::message_time(plan->links[pair],
                                          plan.message_bytes(static_cast<int>(2 * pair), 0)));
    }
}

}  // namespace pipetwin::cli
