// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace key_place_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class KeyPlace : public InFolder {
  protected:
    /// A multi-layer perceptron, with these lines in [pipeline] from line 8 on.
    std::string scenario(const std::string& pipeline) const {
        return file("x.toml",
                    "[model]\nkind = \"mlp\"\nsizes = [8, 8, 8]\n\n[training]\nbatch = 8\n"
                    "[pipeline]\n" +
                        pipeline);
    }
};

// What follows from several keys was refused with the file's name alone, or with a key's.
TEST_F(KeyPlace, EveryRefusalOfAScenarioHasTheLineAndColumnOfAKeyThatItNames) {
    struct Case {
        std::string pipeline;
        std::string place;
    };
    for (const Case& one : {
             Case{"stages = 2\npartition = [7, 7]\n", ":9:13: "},
             Case{"stages = 2\n  partition = [1, 1, 1]\n", ":9:15: "},
             Case{"stages = 2\nrecompute = [\"none\", \"none\", \"always\"]\n", ":9:13: "},
             Case{"stages = 2\nchunks = 3\nschedule = \"dualpipe-v\"\n", ":10:12: "},
         }) {
        const std::string path = scenario(one.pipeline);
        const Outcome outcome = pipetwin({"check", path});
        EXPECT_TRUE(outcome.code == 3 || outcome.code == 4) << one.pipeline;
        EXPECT_THAT(outcome.err, HasSubstr("error: " + path + one.place)) << one.pipeline;
        EXPECT_THAT(outcome.err, ::testing::ContainsRegex("x.toml:[0-9]+:[0-9]+: "));
    }
}

TEST_F(KeyPlace, IsThatOfTheKeyOfItsTableOrOfTheOption) {
    const std::string wrong = scenario("stages = 2\npartition = [7, 7]\n");
    EXPECT_THAT(pipetwin({"check", wrong}).err, StartsWith("error: " + wrong + ":9:13: "));
    const std::string right = scenario("stages = 2\n");
    EXPECT_THAT(pipetwin({"check", right, "--set", "pipeline.partition=[7, 7]"}).err,
                StartsWith("error: --set pipeline.partition: "));
}

}  // namespace key_place_test
}  // namespace pipetwin::cli
