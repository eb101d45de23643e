// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/base/console.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::cli {

/// What a command line gave.
struct Outcome {
    int code = -1;
    std::string out;
    std::string err;

    /// stdout, which must be one JSON value and nothing else.
    nlohmann::json json() const;
};

/// Runs the program in this process.
Outcome pipetwin(const std::vector<std::string>& args, const Terminal& terminal = {});

std::vector<std::string> joined(std::vector<std::string> args,
                                const std::vector<std::string>& more);

/// A plan of equal stages from plain numbers, in milliseconds.
struct Numbers {
    int stages = 1;
    int micro_batches = 1;
    std::string forward = "1";
    std::string backward = "2";
};

/// The command line that simulates it, with more options.
std::vector<std::string> simulate_args(const Numbers& plan,
                                       const std::vector<std::string>& more = {});

/// A test with a folder of its own, which is removed afterwards.
class InFolder : public ::testing::Test {
  protected:
    const std::filesystem::path& folder() const { return folder_.path(); }
    /// Writes a file into the folder and returns its path.
    std::string file(std::string_view name, std::string_view content) const;
    std::string path(std::string_view name) const { return (folder_ / name).string(); }

  private:
    tests::ScratchFolder folder_;
};

std::string content_of(const std::filesystem::path& path);

/// The program as a process of its own.
class Child {
  public:
    /// Starts it. Its output goes to files that begin with `log`; `environment` is added to that of
    /// the test: "NAME=value".
    Child(const std::vector<std::string>& args,
          const std::string& log,
          const std::vector<std::string>& environment = {});
    Child(Child&& other) noexcept;
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    /// Kills it where it still runs.
    ~Child();

    pid_t id() const { return process_; }
    /// Waits for its end. The exit code of one that a signal ended is 1000 and the signal.
    Outcome end();

  private:
    pid_t process_ = -1;
    std::string log_;
};

/// Waits until the text of a file has at least so many lines; false after 20 seconds.
bool has_lines(const std::filesystem::path& file, int lines);

/// A multi-layer perceptron on synthetic data in two stages, three steps: milliseconds to train.
extern const std::string_view small_scenario;
/// Costs for it, so that nothing has to be measured.
extern const std::string_view small_profile;

/// A multi-layer perceptron of three layers on synthetic data in two stages, one step.
extern const std::string_view three_layers;
/// Costs for it.
extern const std::string_view three_layers_costs;

}  // namespace pipetwin::cli
