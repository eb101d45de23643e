// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/support.h"

namespace pipetwin::cli {

/// A file that a command reads.
struct Reader {
    std::string name;               ///< "the plan of a run folder"
    std::string file;               ///< its path in the test's folder
    std::vector<std::string> args;  ///< the command line
    /// Codes that may end the command where the file is not what it should be.
    std::set<int> codes{3, 6};
};

/// A test with a folder in which every file that a command reads is there and good.
class Readers : public InFolder {
  protected:
    void SetUp() override;

    /// All readers.
    std::vector<Reader> readers() const;

    /// Runs the command of a reader; what it wrote before is gone.
    Outcome run(const Reader& reader) const;

    /// Content of the file that the command of a reader wrote with --out; empty where it has none.
    std::string written(const Reader& reader) const;

  private:
    void make_run() const;
    void make_weights() const;
    std::vector<Reader> of_simulations() const;
    std::vector<Reader> of_imports() const;
    std::vector<Reader> of_trainings() const;
};

}  // namespace pipetwin::cli
