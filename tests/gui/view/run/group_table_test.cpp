// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/group_table.h"

#include <string>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"

namespace pipetwin::gui {
namespace group_table_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GroupTable table_with(const std::string& training, const std::string& pipeline) {
    const std::filesystem::path file = find_model("mixtral-8x7b");
    DecoderModel decoder = parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    decoder.blocks = 4;
    const Profile profile = estimated_profile(
        decoder, find_device("h100-sxm"), {.sequence = 4096, .precision = "bf16"});
    const SettledScenario scenario =
        settle(parse_scenario("[model]\nkind = \"profile\"\nfile = \"none.json\"\n"
                              "[training]\noptimizer = \"adamw\"\nbatch = 64\n" +
                                  training +
                                  "[cluster]\ndevice = \"h100-sxm\"\nper_node = 8\n"
                                  "stack = \"none\"\n"
                                  "[pipeline]\nschedule = \"1f1b\"\nmicro_batches = 8\n" +
                                  pipeline,
                              "s.toml"));
    const Model model = scenario_model(scenario, &profile);
    return group_table(make_plan(scenario, model, profile), scenario, model, profile);
}

TEST(GroupTable, HasARowForEachAxisAndTheMemoryOfExperts) {
    const GroupTable table = table_with("", "stages = 1\ndata_parallel = 8\nexpert_parallel = 8\n");
    ASSERT_EQ(table.groups.rows.size(), 2U);
    EXPECT_THAT(table.groups.headers,
                ElementsAre("groups", "devices", "messages", "sent", "time", "beside"));
    // Four exchanges of 4096 x 2 rows of 8 KiB in each of 4 blocks and 8 micro-batches, 7 of 8.
    EXPECT_THAT(
        table.groups.rows[0],
        ElementsAre("experts", "8 on 1 node", "all-to-all", "7.00 GiB", ::testing::_, "nothing"));
    EXPECT_EQ(table.groups.rows[1][0], "data");
    ASSERT_EQ(table.experts.rows.size(), 1U);
    EXPECT_EQ(table.experts.rows[0][1], "1.31 GiB");
    EXPECT_EQ(table.load, "All devices have as many rows of experts.");
}

TEST(GroupTable, SaysWhatAnEvenLoadWouldGive) {
    const GroupTable table =
        table_with("expert_load = 1.5\n", "stages = 1\ndata_parallel = 8\nexpert_parallel = 8\n");
    EXPECT_THAT(table.load, HasSubstr("The fullest device has 1.5 times the mean of rows"));
    EXPECT_THAT(table.load, HasSubstr("a step would take"));
    const GroupTable capped = table_with("expert_capacity = 1.25\n",
                                         "stages = 1\ndata_parallel = 8\nexpert_parallel = 8\n");
    EXPECT_THAT(capped.load, HasSubstr("filled up to 1.25 times the mean"));
}

TEST(GroupTable, IsEmptyForOneDevice) {
    const GroupTable table = table_with("", "stages = 1\n");
    EXPECT_TRUE(table.groups.rows.empty());
    EXPECT_EQ(table.experts.rows.size(), 1U) << "a device has all experts";
}

}  // namespace group_table_test
}  // namespace pipetwin::gui
