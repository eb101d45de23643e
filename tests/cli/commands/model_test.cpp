// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/costs/profile.h"
#include "core/costs/profile_json.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

namespace pipetwin::cli {
namespace model_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view branches = R"([model]
kind = "layers"
input = 8
layer = [{type = "linear", name = "stem", outputs = 16},
         {type = "linear", name = "left", outputs = 6},
         {type = "linear", name = "right", outputs = 10, inputs = ["stem"], bias = false},
         {type = "concat", name = "both", inputs = ["right", "left"]},
         {type = "add", name = "sum", inputs = ["both", "stem"]},
         {type = "linear", name = "classes", outputs = 4},
         {type = "cross_entropy", name = "loss"}]
[training]
batch = 8
[pipeline]
stages = 3
micro_batches = 4
partition = [2, 2, 3]
)";

class ModelCommand : public InFolder {};

TEST_F(ModelCommand, SaysOfEveryUnitWhatItReadsItsShapeParametersBytesAndOperations) {
    const std::string scenario = file("branches.toml", branches);
    const auto json = pipetwin({"model", scenario, "--json"}).json();
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_EQ(json["input"]["width"], 8);
    EXPECT_EQ(json["stages"], 3);
    EXPECT_EQ(json["parameters"], (8 + 1) * 16 + (16 + 1) * 6 + 16 * 10 + (16 + 1) * 4);
    EXPECT_EQ(json["operations"], 2 * (8 * 16 + 16 * 6 + 16 * 10 + 16 * 4));
    ASSERT_EQ(json["units"].size(), 7U);
    const auto& both = json["units"][3];
    EXPECT_EQ(both["name"], "both");
    EXPECT_EQ(both["type"], "concat");
    EXPECT_EQ(both["inputs"], (std::vector<std::string>{"right", "left"}));
    EXPECT_EQ(both["output"]["width"], 16);
    EXPECT_EQ(both["output_bytes"], 4 * 16);
    EXPECT_EQ(both["parameters"], 0);
    EXPECT_EQ(both["operations"], 0);
    EXPECT_EQ(both["stage"], 1);
    EXPECT_TRUE(json["units"][0]["inputs"].empty()) << "the model's input";
    EXPECT_EQ(json["units"][5]["saved_bytes"], 4 * 16) << "a product keeps what it reads";
    EXPECT_EQ(json["units"][5]["operations"], 2 * 16 * 4);
    EXPECT_TRUE(json["units"][6]["output"].is_null());
    EXPECT_EQ(json["units"][6]["stage"], 2);
}

TEST_F(ModelCommand, PrintsARowForEachUnitAndTheirSum) {
    const std::string scenario = file("branches.toml", branches);
    const Outcome outcome = pipetwin({"model", scenario});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("branches.toml: 7 units in 3 stages, one sample is 1 x 8\n"),
                      HasSubstr("right, left"),
                      HasSubstr("the input")));
    const Outcome open = pipetwin({"model", scenario, "--set", "pipeline.partition=auto"});
    EXPECT_EQ(open.code, 0);
    EXPECT_THAT(open.err, HasSubstr("stages are not shown: they follow from the costs"));
    EXPECT_THAT(open.out, Not(HasSubstr("stage")));
}

TEST_F(ModelCommand, BytesAreThoseOfThePrecision) {
    const std::string scenario = file("branches.toml", branches);
    const auto json =
        pipetwin({"model", scenario, "--json", "--set", "training.precision=bf16"}).json();
    EXPECT_EQ(json["precision"], "bf16");
    EXPECT_EQ(json["units"][3]["output_bytes"], 2 * 16);
}

TEST_F(ModelCommand, ParametersOfATiedGptCountOnce) {
    // GPT-2 small has 124,439,808 parameters (Radford et al., 2019, as published).
    const std::string scenario =
        file("gpt2.toml",
             "[model]\nkind = \"gpt\"\nlayers = 12\nd_model = 768\nheads = "
             "12\ncontext = 1024\nvocabulary = 50257\ntied = true\n");
    EXPECT_EQ(pipetwin({"model", scenario, "--json"}).json()["parameters"], 124'439'808);
}

TEST_F(ModelCommand, DrawsTheGraphWithItsStages) {
    const std::string scenario = file("branches.toml", branches);
    const std::string picture = path("graph.svg");
    EXPECT_EQ(pipetwin({"model", scenario, "--svg", picture}).code, 0);
    EXPECT_THAT(content_of(picture),
                AllOf(HasSubstr("branches.toml: 7 units"),
                      HasSubstr("stage 2: 3 units"),
                      HasSubstr("<title>stem to sum</title>")));
    const Outcome again = pipetwin({"model", scenario, "--svg", picture});
    EXPECT_EQ(again.code, 6);
    EXPECT_EQ(pipetwin({"model", scenario, "--svg", picture, "--force"}).code, 0);
    const Outcome other = pipetwin({"model", scenario, "--svg", path("graph.png")});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("ends in .png, but the picture is an SVG"));
}

TEST_F(ModelCommand, OfAProfileShowsWhatItsCostsSay) {
    const std::string costs = file("own.csv",
                                   "name,forward_ms,backward_ms,output_bytes,saved_bytes,"
                                   "parameter_bytes,inputs\na,1,2,400,800,4000,\nb,1,2,100,50,0,\n"
                                   "c,1,2,0,30,8,a;b\n");
    const std::string scenario =
        file("own.toml", "model = {kind = \"profile\", file = \"own.csv\"}\n");
    const auto json = pipetwin({"model", scenario, "--json"}).json();
    EXPECT_TRUE(json["parameters"].is_null()) << "only their bytes are known";
    EXPECT_TRUE(json["input"].is_null());
    EXPECT_EQ(json["units"][2]["inputs"], (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(json["units"][0]["output_bytes"], 400);
    EXPECT_TRUE(json["units"][0]["output"].is_null());
    EXPECT_EQ(pipetwin({"model", scenario}).code, 0);
    const Outcome estimated = pipetwin(
        {"model", scenario, "--device", "h100-sxm", "--costs-out", path("x.profile.json")});
    EXPECT_EQ(estimated.code, 3);
    EXPECT_THAT(estimated.err, HasSubstr("its layers have only costs"));
}

TEST_F(ModelCommand, EstimatesCostsThatSimulateAndPlanTake) {
    const std::string scenario = places::source_folder() + "/scenarios/two-branch-mlp.toml";
    const std::string costs = path("two.profile.json");
    EXPECT_EQ(pipetwin({"model", scenario, "--device", "a100-sxm-80", "--costs-out", costs}).code,
              0);
    const Profile profile = read_profile(costs);
    EXPECT_EQ(profile.source, CostSource::Estimated);
    EXPECT_EQ(profile.layers.at(6).inputs, (std::vector<std::string>{"left2", "right1"}));
    for (const char* const command : {"simulate", "plan"}) {
        const Outcome outcome = pipetwin({command, scenario, "--profile", costs, "--json"});
        EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    }
    const Outcome alone = pipetwin({"model", scenario, "--device", "a100-sxm-80"});
    EXPECT_EQ(alone.code, 2);
    const Outcome unknown = pipetwin(
        {"model", scenario, "--device", "a100-sxm", "--costs-out", path("y.profile.json")});
    EXPECT_EQ(unknown.code, 3);
    EXPECT_THAT(unknown.err, HasSubstr("a100-sxm-80"));
}

/// The costs of seven layers are not those of a model of two, also where nothing but the search
/// reads them.
TEST_F(ModelCommand, APlanByTheCostsOfAnotherModelIsRefused) {
    const std::string costs = path("other.profile.json");
    const std::string other = file("branches.toml", branches);
    ASSERT_EQ(pipetwin({"model", other, "--device", "a100-sxm-80", "--costs-out", costs}).code, 0);
    const std::string scenario = file("two.toml", R"([model]
kind = "mlp"
sizes = [16, 12, 4]
[training]
batch = 8
[pipeline]
stages = "auto"
micro_batches = "auto"
schedule = "auto"
[cluster]
count = 2
)");
    const Outcome outcome = pipetwin({"plan", scenario, "--profile", costs});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("but the model has 2"));
}

TEST_F(ModelCommand, BranchesAreMeasuredTrainedAndRun) {
    const std::string scenario = file("branches.toml", branches);
    for (const char* const command : {"profile", "train", "run"}) {
        const Outcome outcome = pipetwin({command, scenario, "--out", path(command)});
        EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    }
}

TEST_F(ModelCommand, EveryFaultOfItsGraphIsSaidAtOnceWithItsPlace) {
    const std::string scenario = file("wrong.toml", R"([model]
kind = "layers"
input = 8
[[model.layer]]
type = "linear"
name = "a"
outputs = 4
[[model.layer]]
type = "linear"
name = "b"
outputs = 6
[[model.layer]]
type = "add"
inputs = ["a", "b"]
[[model.layer]]
type = "gelu"
inputs = ["nowhere"]
[[model.layer]]
type = "cross_entropy"
)");
    const Outcome outcome = pipetwin({"model", scenario});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("wrong.toml:14:10: model, layer 'add2': no layer reads its output"),
                      HasSubstr("wrong.toml:14:10: model, layer 'add2': 'a' makes 1 x 4 and 'b' 1 "
                                "x 6, expected outputs of one shape"),
                      HasSubstr("wrong.toml:17:10: model, layer 'gelu3': reads 'nowhere', which is "
                                "no layer")));
}

}  // namespace model_test
}  // namespace pipetwin::cli
