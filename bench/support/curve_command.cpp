// SPDX-License-Identifier: Apache-2.0
#include "bench/support/curve_command.h"

#include <cstdio>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin::bench {

int run_curve_command(int argc,
                      char** argv,
                      const std::set<std::string>& known,
                      const std::function<void(const CurveCommand&)>& run) {
    const std::span words(argv, static_cast<std::size_t>(argc));
    if (words.size() < 3) {
        fmt::print(stderr,
                   "usage: {} FOLDER SCENARIO.toml [{}] [key=value ...]\n",
                   words[0],
                   fmt::join(known, "] ["));
        return 2;
    }
    try {
        std::set<std::string> options;
        std::vector<Override> overrides;
        for (const std::string_view word : words.subspan(3)) {
            const std::size_t equals = word.find('=');
            if (known.contains(std::string(word))) {
                options.insert(std::string(word));
            } else if (equals != std::string_view::npos) {
                overrides.push_back({.key = std::string(word.substr(0, equals)),
                                     .value = std::string(word.substr(equals + 1))});
            } else {
                fmt::print(stderr, "{}: expected key=value\n", word);
                return 2;
            }
        }
        run({.folder = words[1],
             .scenario = settle(read_scenario(words[2], overrides)),
             .options = std::move(options)});
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}

}  // namespace pipetwin::bench
