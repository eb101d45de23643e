// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.h"
#include "core/costs/collectives/collective_table.h"
#include "core/costs/collectives/link_cost.h"
#include "core/costs/devices/cost_source.h"

namespace pipetwin {

/// A value, how it is known (measured, datasheet or estimated), and where from.
template <class T>
struct Stated {
    T value{};
    CostSource kind = CostSource::Estimated;
    std::string source{};

    bool operator==(const Stated&) const = default;
};

/// Rate and latency of a link in one direction, between two ends of it.
struct LinkFacts {
    Stated<double> bytes_per_second{};
    Stated<Duration> latency{};

    bool operator==(const LinkFacts&) const = default;
};

/// What matrix products reach of a device's dense rate. Small ones reach less: with m rows, n
/// columns and k products to each sum, on one device,
///
///     large * m / (m + half_size) * n / (n + half_size) * k / (k + half_size)
struct MatrixEfficiency {
    double large = 0;      ///< of a product of large matrices, as a share
    double half_size = 0;  ///< size of m, n or k that reaches half of that

    double at(double rows, double columns, double inner) const {
        return large * rows / (rows + half_size) * columns / (columns + half_size) * inner /
               (inner + half_size);
    }

    bool operator==(const MatrixEfficiency&) const = default;
};

/// What FlashAttention reaches of a device's dense rate, forward and backward, as shares: a half of
/// that for a sequence of `half_sequence` tokens.
struct AttentionEfficiency {
    double forward = 0;
    double backward = 0;
    double half_sequence = 0;

    bool operator==(const AttentionEfficiency&) const = default;
};

/// The known properties of a kind of device, each with its source.
struct DeviceProfile {
    std::string name{};  ///< as a scenario writes it: "a100-sxm-80"
    std::string description{};
    /// Operations per second in matrix products, dense, by precision ("bf16").
    std::map<std::string, Stated<double>, std::less<>> matrix_rates{};
    /// By precision; of one that is not listed: `matrix_efficiency`.
    std::map<std::string, Stated<MatrixEfficiency>, std::less<>> matrix_efficiencies{};
    std::optional<Stated<AttentionEfficiency>> attention_efficiency{};
    Stated<Bytes> memory{};
    Stated<double> memory_rate{};  ///< bytes per second
    /// What copies reach of `memory_rate`, as a share; none: what devices reach that were measured.
    std::optional<Stated<double>> copy_efficiency{};
    std::optional<Stated<int>> multiprocessors{};  ///< none: not known
    std::optional<LinkFacts> device_link{};        ///< none: devices talk over the host link
    LinkFacts host_link{};
    Stated<Duration> launch{};  ///< host time per kernel
    Stated<Bytes> context{};    ///< what the runtime takes before a model is there
    /// Part of `context` in buffers of the library that sends messages; none: not known.
    std::optional<Stated<Bytes>> communication{};
    /// Measured collectives among the devices of a node; none: not known.
    std::optional<Stated<CollectiveTable>> collectives{};

    bool operator==(const DeviceProfile&) const = default;
};

/// A class of links, as `cluster.link` names it.
struct LinkProfile {
    std::string name{};
    std::string description{};
    LinkFacts facts{};
    Stated<Bytes> half_bandwidth{};  ///< message size that reaches half the rate

    bool operator==(const LinkProfile&) const = default;
};

/// What matrix products of a precision reach: as the device says, for "fp8" else as it says of
/// "bf16", or what devices reach that were measured (docs/devices.md).
MatrixEfficiency matrix_efficiency(const DeviceProfile& device, std::string_view precision);

/// What FlashAttention reaches: as the device says, or what devices reach that were measured.
AttentionEfficiency attention_efficiency(const DeviceProfile& device);

/// The link between two neighbouring devices of this kind.
LinkCost neighbour_link(const DeviceProfile& device);

/// The cost of a message over a link of this class, without the sources of its values.
LinkCost link_cost(const LinkProfile& link);

/// Way in which the times of a profile that belong to one device become those of another.
enum class ScaleCosts {
    None,      ///< not at all: costs of another device are refused
    Compute,   ///< by the ratio of their matrix rates
    Memory,    ///< by the ratio of their memory rates
    Cautious,  ///< by whichever of the two makes the longer time
};

/// The word in scenarios: "none", "compute", "memory" or "cautious".
std::string_view to_string(ScaleCosts how);

/// The time of a layer on `to` divided by its time on `from`, at a precision. Throws
/// Error(BadInput), naming device and precisions known, if a device has no matrix rate at that
/// precision.
double time_ratio(const DeviceProfile& from,
                  const DeviceProfile& to,
                  std::string_view precision,
                  ScaleCosts how);

/// Operations per second of a device's dense matrix products. Throws Error(BadInput) with `hint`,
/// naming the device and the precisions that it knows, where this is none of them.
double matrix_rate(const DeviceProfile& device, std::string_view precision, std::string hint);

}  // namespace pipetwin
