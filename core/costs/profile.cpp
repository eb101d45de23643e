// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/base/suggest.h"
#include "core/costs/devices/number_type.h"

namespace pipetwin {

namespace {

/// Adds modules to a list of others, each of which is there once.
void add(std::vector<ModuleBytes>& modules, const std::vector<ModuleBytes>& others) {
    for (const ModuleBytes& other : others) {
        const auto own = std::ranges::find(modules, other.module, &ModuleBytes::module);
        if (own == modules.end()) {
            modules.push_back(other);
        } else {
            own->bytes += other.bytes;
            own->forward += other.forward;
        }
    }
}

}  // namespace

LayerModules& LayerModules::operator+=(const LayerModules& other) {
    add(made, other.made);
    add(inputs, other.inputs);
    return *this;
}

namespace {

/// A fraction of small whole numbers (micro-batch sizes).
struct Ratio {
    std::int64_t numerator = 0;
    std::int64_t denominator = 1;
};

/// value * ratio, rounded to the nearest integer. Whole multiples of the denominator are taken out
/// first, so nothing overflows that the result would not.
std::int64_t scaled(std::int64_t value, Ratio ratio) {
    const std::int64_t whole = value / ratio.denominator * ratio.numerator;
    const std::int64_t rest = value % ratio.denominator * ratio.numerator;
    const std::int64_t half = (rest < 0 ? -1 : 1) * (ratio.denominator / 2);
    return whole + (rest + half) / ratio.denominator;
}

/// Calls `change(member of a, member of b)` for every time and size; the result has `a` with what
/// it returned.
template <class Change>
LayerSample combine(LayerSample a, const LayerSample& b, Change change) {
    for (const auto time : times_of_sample) {
        a.*time = Duration{change((a.*time).count(), (b.*time).count())};
    }
    for (const auto size : sizes_of_sample) {
        a.*size = Bytes{change((a.*size).count, (b.*size).count)};
    }
    for (const auto modules : {&LayerModules::made, &LayerModules::inputs}) {
        std::vector<ModuleBytes>& own = a.modules.*modules;
        const std::vector<ModuleBytes>& other = b.modules.*modules;
        PIPETWIN_EXPECT(own.size() == other.size(), "one layer has the same modules at any size");
        for (std::size_t i = 0; i < own.size(); ++i) {
            own[i].bytes = Bytes{change(own[i].bytes.count, other[i].bytes.count)};
            own[i].forward = Duration{change(own[i].forward.count(), other[i].forward.count())};
        }
    }
    for (const auto time : times_of_traffic) {
        a.traffic.*time = Duration{change((a.traffic.*time).count(), (b.traffic.*time).count())};
    }
    for (const auto size : sizes_of_traffic) {
        a.traffic.*size = Bytes{change((a.traffic.*size).count, (b.traffic.*size).count)};
    }
    return a;
}

/// The point of the straight line through two samples; a.micro_batch_size < size <
/// b.micro_batch_size.
LayerSample between(const LayerSample& a, const LayerSample& b, int size) {
    const Ratio ratio{size - a.micro_batch_size, b.micro_batch_size - a.micro_batch_size};
    LayerSample sample = combine(a, b, [ratio](std::int64_t low, std::int64_t high) {
        return low + scaled(high - low, ratio);
    });
    sample.spread = std::max(a.spread, b.spread);
    sample.forward_kernels = std::max(a.forward_kernels, b.forward_kernels);
    sample.backward_input_kernels = std::max(a.backward_input_kernels, b.backward_input_kernels);
    sample.backward_weight_kernels = std::max(a.backward_weight_kernels, b.backward_weight_kernels);
    return sample;
}

LayerSample in_proportion(const LayerSample& known, int size) {
    const Ratio ratio{size, known.micro_batch_size};
    LayerSample sample = combine(
        known, known, [ratio](std::int64_t value, std::int64_t) { return scaled(value, ratio); });
    sample.accumulation = known.accumulation;  // of the weights, however many samples there are
    return sample;
}

/// Sizes at which a layer with these samples has costs.
SizesWithCosts sizes_with_costs(const std::vector<LayerSample>& samples) {
    return {.smallest = (std::int64_t{samples.front().micro_batch_size} + 1) / 2,
            .largest = 2 * std::int64_t{samples.back().micro_batch_size}};
}

[[noreturn]] void refuse_size(const LayerCost& layer,
                              const std::vector<LayerSample>& samples,
                              int micro_batch_size) {
    const int smallest = samples.front().micro_batch_size;
    const int largest = samples.back().micro_batch_size;
    const SizesWithCosts sizes = sizes_with_costs(samples);
    throw Error(
        ErrorKind::BadInput,
        fmt::format("profile, layer '{}'", layer.name),
        fmt::format("costs are known for micro-batches of {}, but these have {}",
                    smallest == largest ? counted(smallest, "sample")
                                        : fmt::format("{} to {} samples", smallest, largest),
                    micro_batch_size),
        fmt::format("profile it at that size, or choose a size from {} to {}",
                    sizes.smallest,
                    sizes.largest))
        .because(ErrorReason::NoCosts);
}

}  // namespace

const std::vector<LayerSample>* LayerCost::shared_by(int devices) const {
    if (devices == 1) {
        return &samples;
    }
    const auto found = shared.find(devices);
    return found == shared.end() ? nullptr : &found->second;
}

LayerSample cost_at(const LayerCost& layer, int micro_batch_size, int devices) {
    const std::vector<LayerSample>* const samples = layer.shared_by(devices);
    PIPETWIN_EXPECT(samples != nullptr && !samples->empty(),
                    "a layer of the profile has no sample");
    const auto above = std::lower_bound(
        samples->begin(),
        samples->end(),
        micro_batch_size,
        [](const LayerSample& sample, int size) { return sample.micro_batch_size < size; });
    LayerSample sample;
    if (above != samples->end() && above->micro_batch_size == micro_batch_size) {
        sample = *above;
    } else if (above != samples->begin() && above != samples->end()) {
        sample = between(*std::prev(above), *above, micro_batch_size);
    } else {
        const SizesWithCosts sizes = sizes_with_costs(*samples);
        if (micro_batch_size < sizes.smallest || micro_batch_size > sizes.largest) {
            refuse_size(layer, *samples, micro_batch_size);
        }
        const LayerSample& nearest = above == samples->end() ? samples->back() : samples->front();
        sample = in_proportion(nearest, micro_batch_size);
    }
    sample.micro_batch_size = micro_batch_size;
    return sample;
}

SizesWithCosts sizes_with_costs(const Profile& profile, int devices) {
    SizesWithCosts all{.smallest = 1, .largest = std::numeric_limits<int>::max()};
    for (const LayerCost& layer : profile.layers) {
        const std::vector<LayerSample>* const shared = layer.shared_by(devices);
        const std::vector<LayerSample>& samples = shared == nullptr ? layer.samples : *shared;
        if (!samples.empty()) {
            const SizesWithCosts own = sizes_with_costs(samples);
            all.smallest = std::max(all.smallest, own.smallest);
            all.largest = std::min(all.largest, own.largest);
        }
    }
    return all;
}

namespace {

/// Three times what the forwards of all layers have; none if a layer does not say it.
std::optional<double> forward_and_backward(const Profile& profile,
                                           std::optional<double> LayerCost::*of_forward) {
    double forward = 0;
    for (const LayerCost& layer : profile.layers) {
        if (!(layer.*of_forward)) {
            return std::nullopt;
        }
        forward += *(layer.*of_forward);
    }
    return 3 * forward;
}

}  // namespace

std::optional<double> model_operations(const Profile& profile) {
    return forward_and_backward(profile, &LayerCost::operations);
}

std::optional<double> masked_model_operations(const Profile& profile) {
    return forward_and_backward(profile, &LayerCost::masked_operations);
}

std::int64_t all_parameters(const Profile& profile) {
    std::int64_t sum = 0;
    for (const LayerCost& layer : profile.layers) {
        sum += layer.parameter_count;
    }
    return sum;
}

bool has_routed_experts(const Profile& profile) {
    const auto tokens = static_cast<double>(profile.tokens_per_sample);
    return std::ranges::any_of(profile.layers, [tokens](const LayerCost& layer) {
        const double operations = layer.operations.value_or(0);
        const double of_all_weights = 2 * tokens * static_cast<double>(layer.parameter_count);
        return operations > 0 && operations < of_all_weights * 2 / 3;
    });
}

LayerSamples samples_at(const Profile& profile, int micro_batch_size, int devices) {
    LayerSamples samples;
    samples.reserve(profile.layers.size());
    for (const LayerCost& layer : profile.layers) {
        samples.push_back(cost_at(layer, micro_batch_size, devices));
    }
    return samples;
}

bool knows_shares(const Profile& profile, int devices) {
    return std::ranges::all_of(profile.layers, [devices](const LayerCost& layer) {
        return layer.shared_by(devices) != nullptr;
    });
}

bool knows_core_attention(const Profile& profile) {
    return std::ranges::any_of(profile.layers, [](const LayerCost& layer) {
        return std::ranges::any_of(
            layer.samples, [](const LayerSample& sample) { return sample.core_saved > Bytes{}; });
    });
}

LayerSample with_launches(LayerSample sample, Duration launch) {
    sample.forward = std::max(sample.forward, sample.forward_kernels * launch);
    sample.backward_input = std::max(sample.backward_input, sample.backward_input_kernels * launch);
    sample.backward_weight =
        std::max(sample.backward_weight, sample.backward_weight_kernels * launch);
    return sample;
}

bool is_outside_samples(const LayerCost& layer, int micro_batch_size) {
    return micro_batch_size < layer.samples.front().micro_batch_size ||
           micro_batch_size > layer.samples.back().micro_batch_size;
}

namespace {

/// The largest time and size that a profile may state: 104 days, 8 PiB. Sums over layers keep to
/// it, too, so that no later sum overflows.
constexpr std::int64_t largest_number = std::int64_t{1} << 53;
constexpr std::size_t most_profile_layers = 100'000;

/// A layer of microseconds that waits for a core once differs by seconds, a million times its
/// median: our own profiler may measure that. More is no measurement.
constexpr double largest_spread = 1e6;

/// So that all launches of a layer stay far below the largest time.
constexpr int most_kernels = 1'000'000;
constexpr Duration longest_launch = std::chrono::seconds(1);
constexpr double largest_interference = 100;  ///< as of the scenario's cluster.interference

/// Checks one profile; remembers where in it the check is.
class ProfileCheck {
  public:
    ProfileCheck(const Profile& profile,
                 std::string_view place,
                 std::span<const std::size_t> entry_of_layer)
        : profile_(profile), place_(place), entry_of_layer_(entry_of_layer) {}

    void run() {
        const std::size_t layers = profile_.layers.size();
        if (layers == 0 || layers > most_profile_layers) {
            refuse("/layers",
                   fmt::format("{} layers, expected 1 to {}", layers, most_profile_layers));
        }
        number("", "dispatch_ns", profile_.dispatch.count());
        precision();
        if (profile_.launch < Duration{} || profile_.launch > longest_launch) {
            refuse("/launch_ns",
                   fmt::format(
                       "{}, expected 0 to {}", profile_.launch.count(), longest_launch.count()));
        }
        for (std::size_t i = 0; i < layers; ++i) {
            const std::size_t entry = entry_of_layer_.empty() ? i : entry_of_layer_[i];
            layer(fmt::format("/layers/{}", entry), profile_.layers[i]);
        }
        tied();
        halves();
        if (profile_.tokens_per_sample < 0) {
            refuse("/tokens_per_sample",
                   fmt::format("{}, expected 0 or more", profile_.tokens_per_sample));
        }
        for (std::size_t i = 0; i < profile_.links.size(); ++i) {
            link(fmt::format("/links/{}", i), profile_.links[i]);
        }
        for (std::size_t i = 0; i < profile_.ranks.size(); ++i) {
            const double share = profile_.ranks[i].interference;
            if (!(share >= 0 && share <= largest_interference)) {
                refuse(fmt::format("/ranks/{}/interference", i),
                       fmt::format("{}, expected 0 to {}", share, largest_interference),
                       "0.05 means 5 % longer");
            }
        }
    }

  private:
    [[noreturn]] void refuse(std::string_view pointer,
                             std::string_view text,
                             Hint hint = {}) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: {}", place_, pointer),
                    printable(text),
                    std::move(hint));
    }

    void precision() const {
        if (std::ranges::find(precision_words, profile_.precision) == precision_words.end()) {
            refuse("/precision",
                   fmt::format("\"{}\", expected one of {}",
                               profile_.precision.substr(0, 60),
                               fmt::join(precision_words, ", ")),
                   suggestion_of_listed(profile_.precision, precision_words));
        }
    }

    void number(std::string_view pointer, std::string_view key, std::int64_t value) const {
        if (value < 0 || value > largest_number) {
            refuse(fmt::format("{}/{}", pointer, key),
                   fmt::format(
                       "{}, expected a whole number from 0 to 2^53 ({})", value, largest_number));
        }
    }

    void kernels(std::string_view pointer, std::string_view key, int value) const {
        if (value < 0 || value > most_kernels) {
            refuse(fmt::format("{}/{}", pointer, key),
                   fmt::format("{}, expected 0 to {}", value, most_kernels));
        }
    }

    void rate(std::string_view pointer, std::string_view key, double value) const {
        if (!std::isfinite(value) || value < 0) {
            refuse(fmt::format("{}/{}", pointer, key),
                   fmt::format("{}, expected a finite number that is not negative", value));
        }
    }

    void masked_operations(const std::string& pointer, const LayerCost& cost) {
        constexpr std::string_view key = "masked_operations_per_sample";
        const double masked = cost.masked_operations.value_or(0);
        rate(pointer, key, masked);
        if (cost.operations && masked > *cost.operations) {
            refuse(fmt::format("{}/{}", pointer, key),
                   fmt::format("{}, expected at most operations_per_sample, of which it is a part",
                               masked));
        }
    }

    void layer(const std::string& pointer, const LayerCost& cost) {
        names(pointer, cost);
        number(pointer, "parameter_count", cost.parameter_count);
        number(pointer, "parameter_bytes", cost.parameter_bytes.count);
        bytes_of_parameters(pointer, cost);
        number(pointer, "expert_bytes", cost.expert_bytes.count);
        if (cost.expert_bytes > cost.parameter_bytes) {
            refuse(pointer + "/expert_bytes",
                   fmt::format("{}, expected at most parameter_bytes, of which it is a part",
                               cost.expert_bytes.count));
        }
        number(pointer, "whole_bytes", cost.whole_bytes.count);
        if (cost.whole_bytes > cost.parameter_bytes - cost.expert_bytes) {
            refuse(
                pointer + "/whole_bytes",
                fmt::format("{}, expected at most parameter_bytes, of which it is a part that is "
                            "no expert's",
                            cost.whole_bytes.count));
        }
        number(pointer, "running_bytes", cost.running_bytes.count);
        number(pointer, "frozen_bytes", cost.frozen_bytes.count);
        number(pointer, "frozen_expert_bytes", cost.frozen_expert_bytes.count);
        if (cost.frozen_expert_bytes > cost.frozen_bytes) {
            refuse(pointer + "/frozen_expert_bytes",
                   fmt::format("{}, expected at most frozen_bytes, of which it is a part",
                               cost.frozen_expert_bytes.count));
        }
        number(pointer, "optimizer_ns", cost.optimizer.count());
        number(pointer, "weight_cast_ns", cost.weight_cast.count());
        number(pointer, "weight_copy_bytes", cost.weight_copies.count);
        rate(pointer, "operations_per_sample", cost.operations.value_or(0));
        masked_operations(pointer, cost);
        add(pointer, "parameter_bytes", parameter_bytes_, cost.parameter_bytes.count);
        add(pointer, "optimizer_ns", time_, cost.optimizer.count());
        add(pointer, "weight_cast_ns", time_, cost.weight_cast.count());
        add(pointer, "weight_copy_bytes", parameter_bytes_, cost.weight_copies.count);
        add(pointer, "frozen_bytes", parameter_bytes_, cost.frozen_bytes.count);
        if (cost.samples.empty()) {
            refuse(pointer + "/samples", "no sample, expected at least one");
        }
        samples(pointer + "/samples", cost.samples);
        int entry = 0;  // of the file's list, which ascends as the map does
        for (const auto& [devices, of_one] : cost.shared) {
            const std::string shared = fmt::format("{}/shared/{}", pointer, entry++);
            if (devices < 2) {
                refuse(shared + "/devices", fmt::format("{}, expected 2 or more devices", devices));
            }
            if (of_one.empty()) {
                refuse(shared + "/samples", "no sample, expected at least one");
            }
            samples(shared + "/samples", of_one);
        }
        const LayerSample& largest = cost.samples.back();
        add(pointer, "forward_ns", time_, largest.forward.count());
        add(pointer, "backward_input_ns", time_, largest.backward_input.count());
        add(pointer, "backward_weight_ns", time_, largest.backward_weight.count());
        add(pointer, "saved_bytes", saved_bytes_, largest.saved.count);
    }

    /// Refuses a count of parameters that no number format stores in so many bytes: from two bits
    /// each, with what a packed format adds, to 16 bytes.
    void bytes_of_parameters(const std::string& pointer, const LayerCost& cost) const {
        constexpr std::int64_t most_bytes = 16;
        constexpr std::int64_t most_to_a_byte = 4;
        const std::int64_t count = cost.parameter_count;
        const std::int64_t bytes = cost.parameter_bytes.count;
        const std::int64_t own = bytes - std::min(bytes, profile_.tied_bytes.count);
        if (count == 0) {
            return;
        }
        if (bytes < count / most_to_a_byte || own / most_bytes > count) {
            refuse(
                pointer + "/parameter_bytes",
                fmt::format(
                    "{} bytes for a parameter_count of {}, which no precision has", bytes, count),
                "one of the two has a digit too many or too few; leave parameter_count out "
                "where it is not known");
        }
    }

    void samples(const std::string& pointer, const std::vector<LayerSample>& of) const {
        for (std::size_t i = 0; i < of.size(); ++i) {
            sample(fmt::format("{}/{}", pointer, i), of[i]);
            if (i > 0 && of[i].micro_batch_size <= of[i - 1].micro_batch_size) {
                refuse(fmt::format("{}/{}/micro_batch_size", pointer, i),
                       fmt::format("{} after {}, expected ascending sizes, each once",
                                   of[i].micro_batch_size,
                                   of[i - 1].micro_batch_size));
            }
        }
    }

    /// Both ends have the weights that they share.
    void tied() const {
        number("", "tied_bytes", profile_.tied_bytes.count);
        if (profile_.tied_bytes == Bytes{}) {
            return;
        }
        const Bytes first = profile_.layers.front().parameter_bytes;
        const Bytes last = profile_.layers.back().parameter_bytes;
        if (profile_.layers.size() < 2 || profile_.tied_bytes > std::min(first, last)) {
            refuse(
                "/tied_bytes",
                fmt::format("{}, but the first layer has {} bytes of parameters and the last {}, "
                            "expected no more than either",
                            profile_.tied_bytes.count,
                            first.count,
                            last.count),
                "both layers count the weights that they share; leave the key out where they "
                "share none");
        }
    }

    void halves() const {
        if (!profile_.halves_over_whole) {
            return;
        }
        const double factor = *profile_.halves_over_whole;
        if (!(factor >= 1 && factor <= largest_halves_over_whole)) {
            refuse("/halves_over_whole",
                   fmt::format("{}, expected 1 to {}", factor, largest_halves_over_whole),
                   "1.05 means that the two halves of a backward take 5 % longer than the whole");
        }
        if (!profile_.whole_backwards) {
            refuse("/halves_over_whole",
                   "a factor for costs of whole backwards, which whole_backwards does not say",
                   "add whole_backwards: true if the costs are those of whole backwards; else "
                   "leave halves_over_whole out");
        }
    }

    void names(const std::string& pointer, const LayerCost& cost) {
        if (cost.name.empty()) {
            refuse(pointer + "/name", "empty, expected a name");
        }
        for (std::size_t i = 0; i < cost.inputs.size(); ++i) {
            const auto earlier = cost.inputs.begin() + static_cast<std::ptrdiff_t>(i);
            if (std::find(cost.inputs.begin(), earlier, cost.inputs[i]) != earlier) {
                refuse(fmt::format("{}/inputs/{}", pointer, i),
                       fmt::format("'{}' a second time, expected each layer once", cost.inputs[i]));
            }
            if (!known_.contains(cost.inputs[i])) {
                refuse(fmt::format("{}/inputs/{}", pointer, i),
                       fmt::format("'{}', expected the name of an earlier layer", cost.inputs[i]),
                       "list the layers in an order in which each comes after those it reads");
            }
        }
        if (!known_.insert(cost.name).second) {
            refuse(pointer + "/name",
                   fmt::format("'{}' names two layers, expected a name of its own", cost.name));
        }
    }

    void sample(const std::string& pointer, const LayerSample& values) const {
        if (values.micro_batch_size < 1) {
            refuse(pointer + "/micro_batch_size",
                   fmt::format("{}, expected at least 1", values.micro_batch_size));
        }
        number(pointer, "forward_ns", values.forward.count());
        number(pointer, "backward_input_ns", values.backward_input.count());
        number(pointer, "backward_weight_ns", values.backward_weight.count());
        number(pointer, "accumulation_ns", values.accumulation.count());
        number(pointer, "input_bytes", values.input.count);
        number(pointer, "output_bytes", values.output.count);
        number(pointer, "saved_bytes", values.saved.count);
        number(pointer, "workspace_bytes", values.workspace.count);
        number(pointer, "split_bytes", values.split.count);
        part(pointer, "input_saved_bytes", values.input_saved.count, values.saved.count);
        part(pointer, "unread_gradient_bytes", values.unread_gradient.count, values.output.count);
        part(pointer, "core_forward_ns", values.core_forward.count(), values.forward.count());
        part(pointer, "tail_forward_ns", values.tail_forward.count(), values.forward.count());
        part(pointer, "core_saved_bytes", values.core_saved.count, values.saved.count);
        part(pointer, "whole_forward_ns", values.whole_forward.count(), values.forward.count());
        part(pointer,
             "whole_backward_ns",
             values.whole_backward.count(),
             values.backward_input.count());
        part(pointer, "whole_saved_bytes", values.whole_saved.count, values.saved.count);
        const std::int64_t forward = values.forward.count();
        const std::int64_t input = values.backward_input.count();
        part(pointer, "first_forward_ns", values.first_forward.count(), forward);
        part(pointer, "last_forward_ns", values.last_forward.count(), forward);
        part(pointer, "first_input_ns", values.first_input.count(), input);
        part(pointer, "last_input_ns", values.last_input.count(), input);
        part(pointer,
             "first_weight_ns",
             values.first_weight.count(),
             values.backward_weight.count());
        rate(pointer, "spread", values.spread);
        if (values.spread > largest_spread) {
            refuse(pointer + "/spread",
                   fmt::format("{}, expected (p90 - p10) / median of the measurement, which is at "
                               "most {:.0f}",
                               values.spread,
                               largest_spread),
                   "0.05 means 5 %; measure again if the machine was that restless");
        }
        kernels(pointer, "forward_kernels", values.forward_kernels);
        kernels(pointer, "backward_input_kernels", values.backward_input_kernels);
        kernels(pointer, "backward_weight_kernels", values.backward_weight_kernels);
    }

    /// A number that is part of another.
    void part(const std::string& pointer,
              std::string_view field,
              std::int64_t value,
              std::int64_t whole) const {
        number(pointer, field, value);
        if (value > whole) {
            refuse(
                fmt::format("{}/{}", pointer, field),
                fmt::format("{}, expected no more than the {} that it is part of", value, whole));
        }
    }

    void link(const std::string& pointer, const LinkCost& cost) const {
        number(pointer, "latency_ns", cost.latency.count());
        rate(pointer, "bytes_per_second", cost.bytes_per_second);
        number(pointer, "half_bandwidth_bytes", cost.half_bandwidth.count);
    }

    void add(const std::string& pointer,
             std::string_view field,
             std::int64_t& sum,
             std::int64_t value) const {
        sum += value;
        if (sum > largest_number) {
            refuse(fmt::format("{}/{}", pointer, field),
                   "the sum over the layers up to this one is above 2^53");
        }
    }

    const Profile& profile_;
    std::string_view place_;
    std::span<const std::size_t> entry_of_layer_;
    std::unordered_set<std::string_view> known_;
    std::int64_t time_ = 0;
    std::int64_t parameter_bytes_ = 0;
    std::int64_t saved_bytes_ = 0;
};

}  // namespace

void check_profile(const Profile& profile,
                   std::string_view place,
                   std::span<const std::size_t> entry_of_layer) {
    ProfileCheck(profile, place, entry_of_layer).run();
}

}  // namespace pipetwin
