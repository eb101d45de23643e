// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cli/processes/several_processes.h"
#include "tests/support/places.h"

/// Trainings of several processes with a GPU each, which is emulated, as NCCL is.
namespace pipetwin::cli {

struct PipelineSettings {
    int stages = 2;
    std::vector<std::string> more{};

    std::vector<std::string> words() const {
        return joined({"--set", "pipeline.stages=" + std::to_string(stages)},
                      joined(more, even_partition(stages, more)));
    }
};
inline void PrintTo(const PipelineSettings& settings, std::ostream* out) {
    *out << "K=" << settings.stages;
    for (const std::string& word : settings.more) {
        *out << ' ' << word;
    }
}

class GpuProcesses : public SeveralProcesses {
  protected:
    GpuProcesses() {
        ::setenv("PIPETWIN_MODULE_PATH", places::emulated_module_folder().c_str(), 1);
    }
    ~GpuProcesses() override { ::unsetenv("PIPETWIN_MODULE_PATH"); }

    static inline const std::vector<std::string> on_gpus{"--set", "cluster.backend=cuda"};

    std::vector<std::string> launch(int ranks,
                                    const std::string& out,
                                    const std::vector<std::string>& more = {}) const {
        return SeveralProcesses::launch(ranks, out, joined(on_gpus, more));
    }

    /// Each process sees as many as that.
    static std::vector<std::string> gpus(int count) {
        return {"PIPETWIN_EMULATED_GPUS=" + std::to_string(count)};
    }

    /// On one GPU, with a thread for each rank; what layers cost is measured on the CPU.
    void train_in_one_process(const std::vector<std::string>& settings) const {
        train_in_threads(settings);
        const Outcome one = pipetwin(joined({"train",
                                             file("gpt.toml", scenario_),
                                             "--profile",
                                             path("threads/profile.json"),
                                             "--out",
                                             path("one")},
                                            joined(on_gpus, settings)));
        ASSERT_EQ(one.code, 0) << one.err;
    }

    /// Whoever sums gradients in another order is this far away at most.
    void expect_losses_of_threads(const std::string& run, const char* name = "loss") const {
        const std::vector<double> expected = losses("threads", name);
        const std::vector<double> found = losses(run, name);
        ASSERT_FALSE(expected.empty());
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t step = 0; step < found.size(); ++step) {
            EXPECT_NEAR(found[step], expected[step], 1e-6 * expected[step]);
        }
    }

    /// The losses of a run's steps, or the numbers that its metrics have under another name.
    std::vector<double> losses(const std::string& run, const char* name = "loss") const {
        std::vector<double> found;
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        for (std::string line; std::getline(metrics, line);) {
            const nlohmann::json step = nlohmann::json::parse(line);
            if (step.contains(name) && step[name].is_number()) {
                found.push_back(step[name].get<double>());
            }
        }
        return found;
    }
};

}  // namespace pipetwin::cli
