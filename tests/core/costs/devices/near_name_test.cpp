// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/near_name.h"

#include <array>

#include <gtest/gtest.h>

namespace pipetwin {
namespace near_name_test {

const std::array<std::string, 5> clusters{
    "8x-a100-sxm-80", "8x-h100-sxm", "8x-h200-sxm", "8x-rtx-4090", "this-machine"};
const std::array<std::string, 4> devices{"a100-sxm-80", "b200", "h100-sxm", "h100-sxm-96"};
const std::array<std::string, 5> models{
    "gpt2-1.5b", "gpt2-124m", "llama-3-70b", "llama-3-8b", "tinyllama-1.1b"};

TEST(NearHardware, IsFoundByTheWordThatNamesIt) {
    for (const char* name :
         {"8xh100", "h100", "dgx-h100", "8x-H100", "H100-80GB", "2x-h100-pcie"}) {
        EXPECT_EQ(near_hardware(name, clusters), "8x-h100-sxm") << name;
    }
    EXPECT_EQ(near_hardware("8x4090", clusters), "8x-rtx-4090");
    EXPECT_EQ(near_hardware("h100", devices), "h100-sxm");
    EXPECT_EQ(near_hardware("this-mashine", clusters), "this-machine");
}

TEST(NearHardware, IsNotAnotherProductWithASimilarName) {
    EXPECT_EQ(near_hardware("8x-b200", clusters), "");
    EXPECT_EQ(near_hardware("b100", devices), "");
    EXPECT_EQ(near_hardware("8x-l40s", clusters), "");
    EXPECT_EQ(near_hardware("", clusters), "");
    const std::array<std::string, 2> links{"nvlink-3", "nvlink-4"};
    EXPECT_EQ(near_hardware("nvlnk-4", links), "nvlink-4");
    EXPECT_EQ(near_hardware("nvlink-6", links), "");
}

TEST(NearModel, HasTheSameFamilyAndNearlyTheSameSize) {
    EXPECT_EQ(near_model("Llama-3-70B", models), "llama-3-70b");
    EXPECT_EQ(near_model("llama3_8b", models), "llama-3-8b");
    EXPECT_EQ(near_model("lama-3-8b", models), "llama-3-8b");
    EXPECT_EQ(near_model("llama-3-80b", models), "llama-3-70b");
    EXPECT_EQ(near_model("llama-70b", models), "llama-3-70b");
    EXPECT_EQ(near_model("gpt2-1.6b", models), "gpt2-1.5b");
    EXPECT_EQ(near_model("gpt2-117m", models), "gpt2-124m");
    EXPECT_EQ(near_model("llama-3-70", models), "llama-3-70b");
    EXPECT_EQ(near_model("llama-3-8", models), "llama-3-8b");
    EXPECT_EQ(near_model("gpt2-124", models), "gpt2-124m");
}

TEST(NearModel, MayHaveWordsAroundIt) {
    const std::array<std::string, 5> hub{
        "deepseek-v3", "llama-3-70b", "llama-3.1-70b", "mixtral-8x7b", "qwen2.5-7b"};
    EXPECT_EQ(near_model("Meta-Llama-3-70B", hub), "llama-3-70b");
    EXPECT_EQ(near_model("Llama-3.1-70B-Instruct", hub), "llama-3.1-70b");
    EXPECT_EQ(near_model("Mixtral-8x7B-v0.1", hub), "mixtral-8x7b");
    EXPECT_EQ(near_model("Qwen2.5-7B-Instruct", hub), "qwen2.5-7b");
    EXPECT_EQ(near_model("DeepSeek-V3.1", hub), "");
}

TEST(NearModel, MayBeALaterNumberOfTheVersionInTheSameSize) {
    const std::array<std::string, 4> later{
        "llama-2-70b", "llama-3-70b", "llama-3.1-70b", "llama-3.1-405b"};
    EXPECT_EQ(near_model("llama-3-405b", later), "llama-3.1-405b");
    EXPECT_EQ(near_model("llama-3-70B", later), "llama-3-70b");
    EXPECT_EQ(near_model("llama-3-400b", later), "");
    EXPECT_EQ(near_model("llama-4-405b", later), "");
}

TEST(NearModel, IsNoOtherVersionAndNoOtherSize) {
    for (const char* name : {"llama-2-13B",
                             "llama-2-70b",
                             "llama-3-405b",
                             "mistral-7b",
                             "gpt3-175b",
                             "llama-2-70",
                             "llama-3-405",
                             "gpt2",
                             "70b",
                             ""}) {
        EXPECT_EQ(near_model(name, models), "") << name;
    }
}

}  // namespace near_name_test
}  // namespace pipetwin
