// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Published training runs beside what estimates with a stack say of them: profiles/stacks
/// /evidence.json. The program `bench/published` writes it from scenarios/published.
namespace pipetwin {

/// One published run. Rates are tokens per second of each device.
struct PublishedRun {
    std::string set;  ///< a file of scenarios/published
    std::string stack;
    std::string device;
    std::string precision;
    std::string model;  ///< "Llama 3 70B"
    std::int64_t parameters = 0;
    bool experts = false;  ///< routed ones
    int devices = 1;
    std::string layout;  ///< "8 stages of 5 chunks x 4 devices x 2 replicas"
    int year = 0;
    std::string source;
    double measured = 0;
    double predicted = 0;

    bool operator==(const PublishedRun&) const = default;
};

/// Between what factors on the predicted step nine of ten measured ones lie, where the numbers that
/// were fitted to runs were fitted without the run's own source. Every source weighs the same.
struct PublishedRange {
    std::string stack{};   ///< empty: runs of all stacks
    std::string device{};  ///< empty: runs on all devices
    bool experts = false;  ///< runs of models with routed experts; false: of all others
    double low = 1;
    double high = 1;
    int runs = 0;
    int sources = 0;
    int largest_devices = 0;  ///< of the runs
    /// Steps of one source on as many devices that are predicted to be further apart than this
    /// share are in the right order in nine of ten cases; none where too few pairs are known.
    std::optional<double> order_error{};

    bool operator==(const PublishedRange&) const = default;
};

/// What published runs say of estimates with stacks.
struct Evidence {
    std::vector<PublishedRun> runs{};
    std::vector<PublishedRange> ranges{};

    /// The range of the runs of a stack on a device, either of which may be empty, of models with
    /// routed experts or without; null: there is none.
    const PublishedRange* range_of(std::string_view stack,
                                   std::string_view device,
                                   bool experts = false) const;

    bool operator==(const Evidence&) const = default;
};

/// Reads a file of evidence. Throws Error(BadInput) with `place` and JSON pointer.
Evidence parse_evidence(std::string_view text, std::string_view place);

/// The text of a file of evidence, a line for each run and range.
std::string print_evidence(const Evidence& evidence);

/// What a run is like that published ones are compared with.
struct RunLike {
    std::string stack{};
    std::string device{};
    std::string precision{};
    double parameters = 1;
    bool experts = false;  ///< routed ones
    int devices = 1;
};

/// A published run near to another, and what of it is different: "device", "precision", "stack",
/// "kind of model" (with routed experts, or without).
struct NearRun {
    PublishedRun run;
    std::vector<std::string_view> differs{};
};

/// The nearest published runs, at most `most`, the nearest first: |ln| of the ratio of parameters,
/// |ln| of that of devices, 0.5 each for another device, precision and stack, and 1 for another
/// kind of model.
std::vector<NearRun> nearest_runs(const Evidence& evidence,
                                  const RunLike& like,
                                  std::size_t most = 3);

}  // namespace pipetwin
