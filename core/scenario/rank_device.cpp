// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/rank_device.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/estimate_source.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

namespace {

void require_one_per_rank(const SettledScenario& scenario,
                          std::string_view key,
                          std::size_t entries,
                          int ranks) {
    if (entries != 0 && std::cmp_not_equal(entries, ranks)) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("cluster.{} has {} entries for {} ranks", key, entries, ranks),
                    "give one for each rank")
            .about(fmt::format("cluster.{}", key));
    }
}

const std::string& device_name(const Scenario::ClusterPart& cluster, std::size_t rank) {
    return cluster.devices.empty() ? cluster.device : cluster.devices[rank];
}

/// The key that names the devices.
std::string key_of_device(const SettledScenario& scenario) {
    return scenario.cluster.devices.empty() ? "cluster.device" : "cluster.devices";
}

/// Whether the costs of the profile are of another device than `name`, as far as it says.
bool is_other_device(const Profile& profile, const std::string& name) {
    return name != this_machine && !profile.device.empty() && profile.device != name;
}

/// Costs that belong to no device fit one kind of device, but cannot tell two apart.
void require_a_device_to_scale_from(const SettledScenario& scenario, const Profile& profile) {
    const std::vector<std::string>& devices = scenario.cluster.devices;
    const std::set<std::string> kinds(devices.begin(), devices.end());
    if (kinds.size() < 2) {
        return;
    }
    if (profile.device.empty()) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("cluster.devices has {} kinds of devices, but the profile does not "
                                "say whose costs it has",
                                kinds.size()),
                    R"(write the device into the profile, as in "device": "a100-sxm-80")")
            .about("cluster.devices");
    }
    if (kinds.contains(this_machine)) {
        throw Error(
            ErrorKind::BadInput,
            scenario.file.string(),
            fmt::format("cluster.devices has '{}' beside devices with a profile", this_machine),
            "name all of them, or say how fast each is with cluster.speeds")
            .about("cluster.devices");
    }
}

/// How to come by costs of a device that those at hand cannot be scaled to.
std::string hint_for_costs_of(const SettledScenario& scenario, const std::string& name) {
    return scenario.model.kind == ModelKind::Profile
               ? fmt::format("profile the model on '{}'", name)
               : fmt::format(
                     "estimate them with pipetwin model {1} --device {0} --costs-out "
                     "{0}.profile.json, and add --profile {0}.profile.json",
                     name,
                     scenario.file.string());
}

[[noreturn]] void refuse_other_device(const SettledScenario& scenario,
                                      const Profile& profile,
                                      const std::string& name) {
    const std::vector<std::string> known = device_names();
    const bool can_be_scaled = std::ranges::find(known, profile.device) != known.end();
    throw Error(
        ErrorKind::BadInput,
        scenario.file.string(),
        fmt::format(
            "the costs are those of device '{}', but the scenario has '{}'", profile.device, name),
        can_be_scaled
            ? "profile the model there, or have the costs estimated with cluster.scale_costs = "
              "\"cautious\""
            : hint_for_costs_of(scenario, name))
        .about(key_of_device(scenario));
}

/// Device profiles, each read once.
class Devices {
  public:
    std::shared_ptr<const DeviceProfile> named(const std::string& name) {
        const auto found = known_.find(name);
        return found != known_.end() ? found->second
                                     : known_.emplace(name, shared_device(name)).first->second;
    }

  private:
    std::map<std::string, std::shared_ptr<const DeviceProfile>> known_;
};

/// Throws Error(BadInput) where nothing is known of the profile's device.
std::shared_ptr<const DeviceProfile> device_to_scale_from(const SettledScenario& scenario,
                                                          const Profile& profile,
                                                          const std::string& name,
                                                          Devices& devices) {
    if (profile.device.starts_with(this_machine)) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("the costs are those of '{}', whose rates are not known, so they "
                                "cannot be scaled to '{}'",
                                profile.device,
                                name),
                    hint_for_costs_of(scenario, name))
            .about(key_of_device(scenario));
    }
    try {
        return devices.named(profile.device);
    } catch (const Error& error) {
        throw error.at("the profile's device");
    }
}

/// Process groups that each device is in: of its pipeline, of the replicas of its rank, and of the
/// devices that share its layers, its samples and its experts; one each unless the stack says more.
double process_groups(const SettledScenario& scenario, const Stack* stack) {
    const auto& pipeline = scenario.pipeline;
    Stack::Memory::ProcessGroups groups;
    if (stack != nullptr && stack->memory.process_groups) {
        groups = stack->memory.process_groups->value;
    }
    return groups.always + (pipeline.stages > 1 ? groups.stages : 0) +
           (pipeline.data_parallel > 1 ? groups.replicas : 0) +
           (pipeline.tensor_parallel > 1 ? groups.tensor : 0) +
           (pipeline.context_parallel > 1 ? 1 : 0) + (pipeline.expert_parallel > 1 ? 1 : 0);
}

/// Sets what is taken before a model is there, and what libraries take of it.
void set_context(RankDevice& device, const SettledScenario& scenario, const Stack* stack) {
    Bytes runtime;
    std::optional<Bytes> each = scenario.cluster.communicator_bytes;
    if (device.profile) {
        const auto& communication = device.profile->communication;
        device.parts.communication = communication ? communication->value : Bytes{};
        runtime = device.profile->context.value - device.parts.communication;
        if (stack != nullptr) {
            each = each.value_or(stack->memory.communicator.value);
            device.parts.product_workspace = stack->memory.products_workspace.value;
            runtime = stack->memory.runtime ? stack->memory.runtime->value : runtime;
        }
    }
    if (each) {
        device.parts.communication = Bytes{static_cast<std::int64_t>(
            process_groups(scenario, stack) * static_cast<double>(each->count))};
    }
    device.context = runtime + device.parts.total();
}

/// What is left of a limit for the context and the tensors of a memory pool that reserves more than
/// they take.
Bytes without_reserve(Bytes limit, Bytes context, double reserve) {
    const auto pool = static_cast<double>(std::max(Bytes{}, limit - context).count);
    return std::min(limit, context + Bytes{static_cast<std::int64_t>(pool / (1 + reserve))});
}

RankDevice device_of_rank(const SettledScenario& scenario,
                          const Profile& profile,
                          std::size_t rank,
                          const Stack* stack,
                          Devices& devices) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const std::string& name = device_name(cluster, rank);
    RankDevice device;
    device.speed.launch = profile.launch;
    device.memory_limit = cluster.memory_limits.empty()
                              ? cluster.memory_limit
                              : std::optional(cluster.memory_limits[rank]);
    device.speed.factor = 1.0 / scenario.pipeline.tensor_parallel;
    if (!cluster.speeds.empty()) {
        device.speed.factor /= cluster.speeds[rank];
    }
    if (name != this_machine) {
        device.profile = devices.named(name);
        device.memory_limit = device.memory_limit.value_or(device.profile->memory.value);
    }
    set_context(device, scenario, stack);
    const double reserve = allocator_reserve(cluster.allocator_reserve, stack);
    if (device.memory_limit && reserve > 0) {
        device.memory_limit = without_reserve(*device.memory_limit, device.context, reserve);
    }
    if (!device.profile) {
        return device;
    }
    device.scaled = is_other_device(profile, name);
    if (device.scaled) {
        if (cluster.scale_costs == ScaleCosts::None) {
            refuse_other_device(scenario, profile, name);
        }
        device.speed.factor *= time_ratio(*device_to_scale_from(scenario, profile, name, devices),
                                          *device.profile,
                                          profile.precision,
                                          cluster.scale_costs);
    }
    if (device.scaled || device.speed.launch == Duration{}) {
        device.speed.launch = device.profile->launch.value;
    }
    return device;
}

/// Warns of costs in another number type than the training's. A scenario that has costs in place of
/// a model, and says no type, trains in that of its costs.
std::optional<std::string> precision_note(const SettledScenario& scenario, const Profile& profile) {
    const std::string_view trained = to_string(scenario.training.precision);
    const bool is_said = scenario.model.kind != ModelKind::Profile || trained != "fp32";
    const bool are_equal = trained_as(profile.precision) == trained;
    if (!is_said || are_equal) {
        return std::nullopt;
    }
    return fmt::format(
        "warning: the costs are for {}, and training.precision is {}: times and memory are those "
        "of {}; estimate or measure the costs in {}",
        profile.precision,
        trained,
        profile.precision,
        trained);
}

/// Throws Error(BadInput) for a device of the scenario that the stack says nothing of, or nothing
/// in the narrow precision of the costs.
void expect_devices_of(const Stack& stack, const ScenarioParts& scenario, const Profile& profile) {
    std::vector<std::string> names = scenario.cluster.devices;
    names.push_back(scenario.cluster.devices.empty() ? scenario.cluster.device : this_machine);
    for (const std::string& name : names) {
        if (name == this_machine) {
            continue;
        }
        try {
            expect_products(stack,
                            name,
                            has_narrow_products(profile.precision) ? profile.precision : "bf16",
                            scenario.file.string());
        } catch (const Error& error) {
            throw error.about("cluster.stack");
        }
    }
}

/// Throws Error(BadInput) where the stack's file that costs were estimated with is not there.
void expect_file_of_costs(const std::string& file) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
        throw Error(ErrorKind::BadInput,
                    "the profile's stack",
                    fmt::format("the costs were estimated with {}, which is not there", file),
                    "put the file back, or write its path into the profile, as in \"stack\": "
                    "\"my-stack.toml\", or estimate the costs again with --stack FILE.toml");
    }
}

}  // namespace

std::shared_ptr<const Stack> stack_of(const ScenarioParts& scenario, const Profile& profile) {
    const bool has_own = !profile.stack.empty();
    const std::string& name = has_own ? profile.stack : scenario.cluster.stack;
    if (name.empty() || name == no_stack) {
        return nullptr;
    }
    // A search asks thousands of times, so the stack of an estimate is not looked for again.
    const EstimateSource* const source = has_own ? profile.estimated_from.get() : nullptr;
    if (source != nullptr && source->stack && source->stack->name == name) {
        return source->stack;
    }
    if (has_own && is_stack_file(name)) {
        expect_file_of_costs(name);
    }
    return find_stack(name, has_own ? "the profile's stack" : "cluster.stack");
}

void expect_stack_of_costs(const ScenarioParts& scenario, const Profile& profile) {
    const std::string& stack = scenario.cluster.stack;
    if (stack.empty() || stack == profile.stack) {
        return;
    }
    if (!profile.stack.empty()) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("the costs are those of the stack '{}', but the scenario has '{}'",
                                profile.stack,
                                stack),
                    fmt::format("import the model again with --stack {}, or leave the scenario's "
                                "stack out",
                                stack))
            .about("cluster.stack");
    }
    if (stack != no_stack) {
        expect_devices_of(*find_stack(stack, "cluster.stack"), scenario, profile);
    }
}

double allocator_reserve(const std::optional<double>& written, const Stack* stack) {
    constexpr double per_cent = 100;
    return written            ? *written / per_cent
           : stack != nullptr ? stack->memory.allocator_reserve.value
                              : 0;
}

bool has_fp32_gradients(const ScenarioParts& scenario, const Profile& profile, const Stack* stack) {
    if (const std::optional<GradientType>& written = scenario.training.gradients) {
        return *written == GradientType::Fp32;
    }
    // Stacks that sum gradients in 16 bits do so in bf16: sums in fp16 would overflow.
    return stack == nullptr || stack->stored.fp32_gradients || profile.precision == "fp16";
}

bool has_fp32_gradients(const ScenarioParts& scenario, const Profile& profile) {
    return has_fp32_gradients(scenario, profile, stack_of(scenario, profile).get());
}

bool has_gradients_beside_sums(const SettledScenario& scenario, const Profile& profile) {
    const std::shared_ptr<const Stack> stack = stack_of(scenario, profile);
    const StateShards shards = state_shards(scenario, profile);
    switch (stack ? stack->stored.beside_sums : GradientsBesideSums::None) {
        case GradientsBesideSums::None:
            return false;
        case GradientsBesideSums::Parameters:
            return shards.gradients == 1;
        case GradientsBesideSums::Buckets:
            return scenario.pipeline.data_parallel > 1 && shards.optimizer == 1;
    }
    return false;
}

namespace {

double slowest_device(const SettledScenario& scenario, const Stack* stack, int ranks) {
    const double spread = scenario.cluster.device_spread.value_or(
        stack != nullptr ? stack->collectives.straggler.value : 0);
    const double devices = static_cast<double>(ranks) * scenario.pipeline.data_parallel *
                           scenario.pipeline.rank_devices();
    return 1 + spread * std::sqrt(2 * std::log(devices));
}

}  // namespace

double slowest_device(const SettledScenario& scenario, const Profile& profile, int ranks) {
    return slowest_device(scenario, stack_of(scenario, profile).get(), ranks);
}

std::vector<RankDevice> rank_devices(const SettledScenario& scenario,
                                     const Profile& profile,
                                     int ranks) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    require_one_per_rank(scenario, "devices", cluster.devices.size(), ranks);
    require_one_per_rank(scenario, "speeds", cluster.speeds.size(), ranks);
    require_one_per_rank(scenario, "memory_limit", cluster.memory_limits.size(), ranks);
    require_a_device_to_scale_from(scenario, profile);
    expect_stack_of_costs(scenario, profile);
    Devices known;
    const std::shared_ptr<const Stack> stack = stack_of(scenario, profile);
    const double slowest = slowest_device(scenario, stack.get(), ranks);
    std::vector<RankDevice> devices;
    for (std::size_t rank = 0; std::cmp_less(rank, ranks); ++rank) {
        devices.push_back(device_of_rank(scenario, profile, rank, stack.get(), known));
        devices.back().speed.factor *= slowest;
    }
    return devices;
}

std::vector<std::string> device_notes(const SettledScenario& scenario,
                                      const Profile& profile,
                                      const std::vector<RankDevice>& devices) {
    std::vector<std::string> notes;
    if (std::optional<std::string> note = precision_note(scenario, profile)) {
        notes.push_back(*std::move(note));
    }
    const std::string& stack = scenario.cluster.stack;
    if (!stack.empty() && stack != no_stack && profile.stack.empty() &&
        profile.source == CostSource::Estimated) {
        notes.push_back(
            fmt::format("the costs were estimated without a stack: --stack {} of 'import hf' or "
                        "'plan MODEL' estimates those of the scenario's",
                        stack));
    }
    const double slowest = slowest_device(scenario, profile, static_cast<int>(devices.size()));
    std::set<std::string> told;
    const bool names_none =
        scenario.cluster.devices.empty() && scenario.cluster.device == this_machine;
    if (names_none && !profile.device.empty() && profile.device != this_machine) {
        notes.push_back(
            fmt::format("the times are those of the device in the profile, '{}', because no "
                        "cluster.device is given",
                        profile.device));
    }
    for (const RankDevice& device : devices) {
        if (!device.profile || !told.insert(device.profile->name).second) {
            continue;
        }
        const std::string& name = device.profile->name;
        if (device.scaled) {
            notes.push_back(
                fmt::format("estimated: times of '{}' x {:.4g} stand for '{}' "
                            "(scale_costs = \"{}\")",
                            profile.device,
                            device.speed.factor / slowest * scenario.pipeline.tensor_parallel,
                            name,
                            to_string(scenario.cluster.scale_costs)));
        } else if (profile.device.empty()) {
            notes.push_back(fmt::format(
                "the profile does not say whose costs it has: they are taken for those of '{}'",
                name));
        }
    }
    return notes;
}

LayerSample on_device(LayerSample sample, const DeviceSpeed& speed) {
    if (speed.factor != 1) {
        for (const auto time : times_of_sample) {
            sample.*time = scaled(sample.*time, speed.factor);
        }
        for (ModuleBytes& module : sample.modules.made) {
            module.forward = scaled(module.forward, speed.factor);
        }
        for (const auto time : times_of_traffic) {
            sample.traffic.*time = scaled(sample.traffic.*time, speed.factor);
        }
    }
    return with_launches(sample, speed.launch);
}

}  // namespace pipetwin
