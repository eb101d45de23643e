// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>

#include "core/costs/calibration_json.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace calibrate_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two blocks on the host: forward 8 and 10 microseconds, backward 20 and 30.
constexpr std::string_view trace = R"({"traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "h.0", "pid": 1, "tid": 1, "ts": 0, "dur": 8},
 {"ph": "X", "cat": "user_annotation", "name": "h.1", "pid": 1, "tid": 1, "ts": 20, "dur": 10},
 {"ph": "X", "cat": "user_annotation", "name": "h.1 back", "pid": 1, "tid": 1, "ts": 40, "dur": 30},
 {"ph": "X", "cat": "user_annotation", "name": "h.0 back", "pid": 1, "tid": 1, "ts": 80, "dur": 20}]})";

class Calibrate : public InFolder {
  protected:
    Outcome calibrated(const std::vector<std::string>& more) const {
        return pipetwin(joined({"calibrate",
                                file("rank0.json", trace),
                                "--micro-batch-size",
                                "2",
                                "--out",
                                path("points.json")},
                               more));
    }
};

TEST_F(Calibrate, WritesPointsThatImportHfReads) {
    const Outcome outcome =
        calibrated({"--forward", "block=h.?", "--backward", "block=h.* back", "--json"});
    EXPECT_EQ(outcome.code, 3);  // ? is no pattern
    const Outcome good = calibrated(
        {"--forward", "block=h.{micro_batch}", "--backward", "block=h.* back", "--json"});
    ASSERT_EQ(good.code, 0) << good.err;
    EXPECT_THAT(parse_calibration(content_of(path("points.json")), "x", 1),
                ElementsAre(CalibrationPoint{"block", 2, Duration{9000}, Duration{25000}}));
    const nlohmann::json point = good.json()["points"][0];
    EXPECT_EQ(point["kind"], "block");
    EXPECT_EQ(point["forward_ms"], 0.009);
    EXPECT_EQ(point["backwards"], 2);
    EXPECT_THAT(good.err, HasSubstr("times of the CPU"));
    const std::vector<std::string> import{"import",
                                          "hf",
                                          "gpt2-124m",
                                          "--device",
                                          "a100-sxm-80",
                                          "--sequence",
                                          "1024",
                                          "--precision",
                                          "bf16",
                                          "--micro-batch-size",
                                          "2",
                                          "--calibrate",
                                          path("points.json"),
                                          "--out",
                                          path("gpt2.profile.json")};
    const Outcome imported = pipetwin(import);
    EXPECT_EQ(imported.code, 0) << imported.err;
    EXPECT_THAT(imported.err, HasSubstr("block: measured forward"));
}

TEST_F(Calibrate, WhatIsNotUnderstoodIsRefused) {
    EXPECT_EQ(calibrated({"--forward", "h.0"}).code, 2);
    EXPECT_THAT(calibrated({"--forward", "h.0"}).err, HasSubstr("KIND=PATTERN"));
    EXPECT_EQ(calibrated({"--forward", "a=h.0", "--backward", "b=h.0 back"}).code, 2);
    EXPECT_EQ(calibrated({}).code, 2);
    EXPECT_EQ(calibrated({"--forward", "block=h.0"}).code, 3);  // no numbers of autograd
    EXPECT_EQ(calibrated({"--forward", "block=h.0", "--set", "training.batch=1"}).code, 2);
    EXPECT_THAT(calibrated({"--forward", "atention=h.0", "--backward", "atention=h.0 back"}).err,
                HasSubstr("did you mean 'attention'?"));
    EXPECT_EQ(calibrated({"--forward", "block=h.0", "--backward", "block=h.0 back"}).code, 6);
}

}  // namespace calibrate_test
}  // namespace pipetwin::cli
