// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cli/support.h"

namespace pipetwin::cli {

/// Whole blocks of a gpt on two ranks; nothing of it is ever computed.
inline constexpr std::string_view gpt_scenario = R"toml([model]
kind = "gpt"
layers = 6
d_model = 16
heads = 2
context = 8
vocabulary = 32
[training]
batch = 8
[pipeline]
stages = 2
chunks = 2
micro_batches = 4
schedule = "interleaved-1f1b"
partition = [2, 1, 2, 1]
)toml";

/// What `import hf` calls the layers of a model of two blocks.
inline constexpr std::string_view transformer_profile =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
    "embedding,1,2,8,8,8\nblock0.attention,1,2,8,8,8\nblock0.feed_forward,1,2,8,8,8\n"
    "block1.attention,1,2,8,8,8\nblock1.feed_forward,1,2,8,8,8\nhead,1,2,0,8,8\n";
inline constexpr std::string_view transformer_scenario =
    "[model]\nkind = \"profile\"\nfile = \"costs.csv\"\n[training]\nbatch = 4\n"
    "[pipeline]\nstages = 2\nmicro_batches = 4\nschedule = \"1f1b\"\npartition = [3, 3]\n";

class Exchange : public InFolder {
  protected:
    /// The content that `args` and "--out FILE" write.
    std::string written(std::vector<std::string> args) const {
        const std::string out = path("written");
        args.insert(args.end(), {"--force", "--out", out});
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? content_of(out) : "";
    }

    /// The outcome of `args` and "--out FILE", which must leave no file behind.
    Outcome refused(std::vector<std::string> args) const {
        args.insert(args.end(), {"--out", path("refused")});
        const Outcome outcome = pipetwin(args);
        EXPECT_FALSE(std::filesystem::exists(path("refused")));
        EXPECT_EQ(outcome.out, "");
        return outcome;
    }
};

/// Error text of an export that succeeds.
inline std::string said_of(std::vector<std::string> args, const std::string& out) {
    args.insert(args.end(), {"--out", out, "--force"});
    const Outcome outcome = pipetwin(args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
}

}  // namespace pipetwin::cli
