// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/run.h"

#include <charconv>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string_view>

#include <fmt/format.h>

/// Predicted against measured over the grid of bench/accuracy/grid.h:
///
///     accuracy --store FILE.jsonl [--share 0.1] [--minutes 25] [--seed 1] [--precision fp32]
///              [--rounds N] [--width N] [--context N] [--grid divided]
///
/// --grid divided: of layers that devices or replicas divide, and no others.
/// Every cell is stored when it is done; the same command goes on where it ended.
/// --share takes so much of the cells, chosen by the seed; after --minutes no further cell begins.
/// To be run on an idle machine: the gate says whether it was. Exit code 1: it was not.
namespace {

using pipetwin::accuracy::GridOptions;

template <class Number>
bool read(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

bool set(GridOptions& options, std::string_view name, std::string_view value) {
    if (name == "--store") {
        options.store = value;
        return true;
    }
    if (name == "--precision") {
        options.precisions = {value == "bf16" ? pipetwin::Precision::Bf16
                                              : pipetwin::Precision::Fp32};
        return value == "bf16" || value == "fp32";
    }
    if (name == "--grid") {
        options.divided = value == "divided";
        return options.divided || value == "plain";
    }
    return (name == "--share" && read(value, options.share)) ||
           (name == "--minutes" && read(value, options.minutes)) ||
           (name == "--seed" && read(value, options.seed)) ||
           (name == "--rounds" && read(value, options.most_rounds)) ||
           (name == "--width" && read(value, options.model.d_model)) ||
           (name == "--context" && read(value, options.model.context));
}

std::optional<GridOptions> parse(int argc, char** argv) {
    GridOptions options;
    for (int index = 1; index < argc; index += 2) {
        if (index + 1 >= argc || !set(options, argv[index], argv[index + 1])) {
            return std::nullopt;
        }
    }
    return options.store.empty() ? std::nullopt : std::optional(options);
}

}  // namespace

int main(int argc, char** argv) {
    const std::optional<GridOptions> options = parse(argc, argv);
    if (!options) {
        fmt::print(
            stderr,
            "usage: accuracy --store FILE.jsonl [--share 0.1] [--minutes 25] [--seed 1]\n"
            "                [--precision fp32|bf16] [--rounds N] [--width N] [--context N]\n"
            "                [--grid plain|divided]\n");
        return 2;
    }
    try {
        return pipetwin::accuracy::run_grid(*options, std::cout) ? 0 : 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
