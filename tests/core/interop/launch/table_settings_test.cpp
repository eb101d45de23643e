// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/table_settings.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace table_settings_test {

using testing::error_of;
using ::testing::HasSubstr;

std::string filled(std::string_view json, const LaunchVariables& given) {
    return with_filled_blanks(with_marked_blanks(json), "x.json", given);
}

TEST(JsonBlanks, AreFilledByTheGivenValues) {
    EXPECT_EQ(
        nlohmann::json::parse(filled(
            R"({"train_batch_size" : GB_SIZE, "zero": {"stage": ${stage}}, "on": LTD_ON, "least": CL_1st_MIN,
                      "type": $KIND, "path": "${ROOT}/a"})",
            {{"GB_SIZE", "16"},
             {"stage", "2"},
             {"LTD_ON", "false"},
             {"CL_1st_MIN", "8"},
             {"KIND", "Adam"},
             {"ROOT", "/data"}})),
        nlohmann::json::parse(
            R"({"train_batch_size": 16, "zero": {"stage": 2}, "on": false, "least": 8,
                      "type": "Adam", "path": "/data/a"})"));
}

TEST(JsonBlanks, AreNotInStringsNumbersAndWordsOfJson) {
    constexpr std::string_view plain =
        R"({"TYPE": "ADAM \" GB", "a": [true, null, 1E5, -2E+3], "x": "A$", "$": "${}"})";
    EXPECT_EQ(filled(plain, {}), plain);
}

TEST(JsonBlanks, WithoutAValueAreAskedForAllAtOnce) {
    const Error error =
        error_of([] { filled("{\n\"a\": GB_SIZE,\n\"b\": ${mb}, \"c\": GB_SIZE}", {}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "x.json:2:6");
    EXPECT_THAT(error.hint(), HasSubstr("--variable GB_SIZE=VALUE --variable mb=VALUE"));
}

}  // namespace table_settings_test
}  // namespace pipetwin
