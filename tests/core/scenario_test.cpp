#include "core/scenario.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/json_text.h"
#include "core/profile.h"
#include "tests/support/code_blocks.h"
#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr std::string_view gpt = R"([model]
kind = "gpt"
layers = 4
d_model = 32
heads = 4
context = 16
)";

constexpr std::string_view mlp = R"([model]
kind = "mlp"
sizes = [784, 64, 10]
)";

/// Every key of every table, away from its default.
constexpr std::string_view full = R"(# a comment
[model]
kind = "gpt"
layers = 4
d_model = 32
heads = 4
context = 16
vocabulary = 300
feed_forward = 48
tied = false
[data]
kind = "text"
path = "../texts/a b"
[training]
batch = 33
steps = 7
optimizer = "rmsprop"
learning_rate = 1e-3
precision = "fp64"
seed = 42
[pipeline]
stages = 2
micro_batches = 8
schedule = "1f1b"
chunks = 1
recompute = "except-last"
recompute_timing = "lazy"
group_size = 4
deferred_weights = 1
message_order = "lower-rank-first"
partition = [3, 7]
channel_capacity = 2
data_parallel = 3
all_reduce = "two-level"
overlap_reduction = true
tensor_parallel = 1
[cluster]
backend = "paced"
device = "h100-sxm"
scale_costs = "cautious"
speeds = [1, 0.5]
count = 6
per_node = 4
placement = "round-robin"
link = "nvlink-4"
node_link = "infiniband-ndr"
link_gbps = 400.5
node_link_gbps = 100
link_latency_us = 0.5
node_link_latency_us = 2
transfer = "hand-over"
cores = 3
interference = 0.25
link_sharing = "fair"
memory_limit = "4 GiB"
[output]
checkpoint_every = 0
)";

Scenario parse(std::string_view text, const std::vector<Override>& overrides = {}) {
    return parse_scenario(text, "/home/u/scenarios/s.toml", overrides);
}

Error refusal(std::string_view text, const std::vector<Override>& overrides = {}) {
    return error_of([&] { parse(text, overrides); });
}

std::string with(std::string_view base, std::string_view more) {
    return fmt::format("{}{}\n", base, more);
}

TEST(ParseScenario, ReadsEveryKey) {
    const Scenario s = parse(full);
    EXPECT_EQ(s.model.kind, ModelKind::Gpt);
    EXPECT_EQ(s.model.gpt,
              (GptSizes{.layers = 4,
                        .d_model = 32,
                        .heads = 4,
                        .context = 16,
                        .vocabulary = 300,
                        .feed_forward = 48}));
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(s.data.path, "/home/u/texts/a b");
    EXPECT_EQ(s.training.batch, 33);
    EXPECT_EQ(s.training.steps, 7);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::RmsProp);
    EXPECT_EQ(s.training.learning_rate, 1e-3);
    EXPECT_EQ(s.training.precision, Precision::Fp64);
    EXPECT_EQ(s.training.seed, 42U);
    EXPECT_EQ(s.pipeline.stages, 2);
    EXPECT_EQ(s.pipeline.micro_batches, 8);
    EXPECT_EQ(s.pipeline.schedule, "1f1b");
    EXPECT_EQ(s.pipeline.recompute, Recompute::ExceptLast);
    EXPECT_EQ(s.pipeline.recompute_timing, RecomputeTiming::Lazy);
    EXPECT_EQ(s.pipeline.partition, (std::vector<int>{3, 7}));
    EXPECT_EQ(s.pipeline.channel_capacity, 2);
    EXPECT_EQ(s.cluster.backend, Backend::Paced);
    EXPECT_EQ(s.pipeline.data_parallel, 3);
    EXPECT_EQ(s.pipeline.all_reduce, AllReduceKind::TwoLevel);
    EXPECT_TRUE(s.pipeline.overlap_reduction);
    EXPECT_EQ(s.cluster.device, "h100-sxm");
    EXPECT_EQ(s.cluster.scale_costs, ScaleCosts::Cautious);
    EXPECT_EQ(s.cluster.speeds, (std::vector<double>{1, 0.5}));
    EXPECT_EQ(s.cluster.placement, Placement::RoundRobin);
    EXPECT_EQ(s.cluster.link, "nvlink-4");
    EXPECT_EQ(s.cluster.node_link, "infiniband-ndr");
    EXPECT_EQ(s.cluster.count, 6);
    EXPECT_EQ(s.cluster.per_node, 4);
    EXPECT_EQ(s.cluster.link_gbps, 400.5);
    EXPECT_EQ(s.cluster.node_link_gbps, 100);
    EXPECT_EQ(s.cluster.link_latency_us, 0.5);
    EXPECT_EQ(s.cluster.node_link_latency_us, 2);
    EXPECT_EQ(s.cluster.memory_limit, Bytes{4LL << 30});
    EXPECT_EQ(s.cluster.transfer, TransferMode::HandOver);
    EXPECT_EQ(s.cluster.cores, 3);
    EXPECT_EQ(s.cluster.interference, 0.25);
    EXPECT_EQ(s.cluster.link_sharing, LinkSharing::Fair);
}

TEST(ParseScenario, FillsInTheDefaults) {
    const Scenario s = parse(gpt);
    EXPECT_EQ(s.model.gpt.vocabulary, 256);
    EXPECT_EQ(s.model.gpt.feed_forward, 128);
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(s.training.batch, 32);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::AdamW);
    EXPECT_EQ(s.training.learning_rate, 3e-4);
    EXPECT_EQ(s.pipeline.stages, 1);
    EXPECT_EQ(s.pipeline.micro_batches, 1);
    EXPECT_EQ(s.pipeline.schedule, "gpipe");
    EXPECT_EQ(s.pipeline.partition, std::nullopt);
    EXPECT_EQ(s.pipeline.channel_capacity, std::nullopt);
    EXPECT_EQ(s.cluster.backend, Backend::Cpu);
    EXPECT_EQ(s.cluster.memory_limit, std::nullopt);
    EXPECT_EQ(parse(mlp).data.kind, DataKind::Synthetic);
}

TEST(ParseScenario, RecomputesAlwaysByDefaultInGpipeAndElsewhereNot) {
    EXPECT_EQ(parse(gpt).pipeline.recompute, Recompute::Always);
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nschedule = \"1f1b\"")).pipeline.recompute,
              Recompute::None);
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nrecompute = \"none\"")).pipeline.recompute,
              Recompute::None);
    const Scenario planned = parse(with(gpt, "[pipeline]\nrecompute = \"auto\""));
    EXPECT_TRUE(planned.pipeline.recompute_auto);
    EXPECT_EQ(planned.pipeline.recompute, std::nullopt);
}

TEST(ParseScenario, ReadsHowTheOrderIsMade) {
    const Scenario s = parse(with(gpt,
                                  "[pipeline]\nschedule = \"interleaved-1f1b\"\nchunks = 2\n"
                                  "group_size = 3\ndeferred_weights = 2\n"
                                  "message_order = \"lower-rank-first\""));
    EXPECT_EQ(s.pipeline.chunks, 2);
    EXPECT_EQ(s.pipeline.group_size, 3);
    EXPECT_EQ(s.pipeline.deferred_weights, 2);
    EXPECT_EQ(s.pipeline.message_order, MessageOrder::LowerRankFirst);
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").pipeline, s.pipeline);
}

/// A schedule of two ranks and three micro-batches, beside the scenario.
class OwnSchedule : public ::testing::Test {
  protected:
    Scenario scenario(const std::string& keys) const {
        return parse(with(gpt, "[pipeline]\nschedule = \"" + csv.string() + "\"\n" + keys));
    }

    const tests::ScratchFolder folder;
    const std::filesystem::path csv =
        folder.write("own.csv", "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
};

TEST_F(OwnSchedule, SaysStagesChunksAndMicroBatches) {
    const Scenario s = scenario("");
    EXPECT_TRUE(has_schedule_file(s));
    EXPECT_EQ(s.pipeline.stages, 2);
    EXPECT_EQ(s.pipeline.chunks, 1);
    EXPECT_EQ(s.pipeline.micro_batches, 3);
    EXPECT_EQ(s.pipeline.recompute, Recompute::None);
    EXPECT_EQ(scenario_schedule(s).ranks[1].size(), 6U);
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").pipeline, s.pipeline);
}

TEST_F(OwnSchedule, RefusesKeysThatSaySomethingElse) {
    EXPECT_NO_THROW(scenario("stages = 2\nmicro_batches = \"auto\""));
    const Error error = error_of([this] { scenario("micro_batches = 4"); });
    EXPECT_THAT(error.what(), HasSubstr("micro_batches = 4, expected 3"));
    EXPECT_THAT(error.hint(), HasSubstr("leave the key out"));
}

TEST_F(OwnSchedule, NeedsASampleForEveryMicroBatch) {
    Scenario s = scenario("");
    s.training.batch = 2;
    const Error error = error_of([&s] { scenario_schedule(s); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.what(), HasSubstr("3 micro-batches, but a mini-batch has 2 samples"));
}

TEST(ParseScenario, TakesPyTorchsNamesOfSchedules) {
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nschedule = \"GPipe\"")).pipeline.schedule, "gpipe");
}

TEST(ParseScenario, NamesTheNearestKnownKeyOfAnUnknownOne) {
    const Error error = refusal(with(gpt, "[pipeline]\nmicrobatches = 4"));
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:8:1");
    EXPECT_EQ(error.text(), "unknown key 'microbatches' in 'pipeline'");
    EXPECT_EQ(error.hint(), "did you mean 'micro_batches'?");

    const Error table = refusal(with(gpt, "[pipelin]\nstages = 4"));
    EXPECT_EQ(table.place(), "/home/u/scenarios/s.toml:7:2");
    EXPECT_EQ(table.text(), "unknown key 'pipelin'");
    EXPECT_EQ(table.hint(), "did you mean 'pipeline'?");
}

TEST(ParseScenario, ReportsTheFirstUnknownKeyOfTheText) {
    EXPECT_EQ(refusal(with(gpt, "[pipeline]\nzz = 1\naa = 2")).place(),
              "/home/u/scenarios/s.toml:8:1");
}

TEST(ParseScenario, AMisspelledKeyComesBeforeTheKeyThatIsThereforeMissing) {
    EXPECT_EQ(refusal("[model]\nkind = \"mlp\"\nsises = [2, 2]\n").hint(), "did you mean 'sizes'?");
}

struct Refusal {
    std::string_view base;
    std::string_view more;
    std::string_view text;  ///< part of the error
};

TEST(ParseScenario, RefusesWrongValuesNamingFoundAndExpected) {
    const std::vector<Refusal> cases{
        {gpt,
         "[pipeline]\nstages = \"two\"",
         "stages = \"two\", expected a whole number from 1 to 4096"},
        {gpt, "[pipeline]\nstages = 2.5", "pipeline.stages = 2.5, expected a whole number"},
        {gpt, "[pipeline]\nstages = 0", "pipeline.stages = 0, expected a whole number from 1"},
        {gpt, "[pipeline]\nstages = 4097", "pipeline.stages = 4097"},
        {gpt, "[pipeline]\nstages = true", "pipeline.stages = true"},
        {gpt, "[pipeline]\nstages = [1]", "pipeline.stages = [a list]"},
        {gpt, "[pipeline]\nmicro_batches = 65537", "pipeline.micro_batches = 65537"},
        {gpt, "[pipeline]\nmicro_batches = -1", "pipeline.micro_batches = -1"},
        {gpt, "[pipeline]\nchunks = 65", "pipeline.chunks = 65"},
        {gpt, "[pipeline]\nschedule = 1", "pipeline.schedule = 1, expected a string"},
        {gpt, "[pipeline]\nrecompute = \"some\"", "one of none, always, except-last"},
        {gpt, "[pipeline]\nrecompute_timing = \"auto\"", "one of eager, lazy"},
        {gpt, "[pipeline]\npartition = \"equal\"", "expected a list of whole numbers"},
        {gpt, "[pipeline]\npartition = [1, \"x\"]", "pipeline.partition[1] = \"x\""},
        {gpt, "[pipeline]\npartition = [0]", "pipeline.partition[0] = 0"},
        {gpt, "[pipeline]\nchannel_capacity = -1", "pipeline.channel_capacity = -1"},
        {gpt, "[training]\nbatch = 0", "training.batch = 0"},
        {gpt, "[training]\nbatch = 1979-05-27", "training.batch = a date or time"},
        {gpt, "[training]\nlearning_rate = nan", "training.learning_rate = nan"},
        {gpt, "[training]\nlearning_rate = inf", "training.learning_rate = inf"},
        {gpt, "[training]\nlearning_rate = -0.1", "training.learning_rate = -0.1"},
        {gpt, "[training]\nlearning_rate = \"fast\"", "expected a number"},
        {gpt, "[training]\noptimizer = \"adamm\"", "optimizer = \"adamm\", expected one of sgd"},
        {gpt, "[training]\nseed = -1", "training.seed = -1"},
        {gpt, "[training]\nseed = 9223372036854775807", "training.seed = 9223372036854775807"},
        {gpt, "[cluster]\nbackend = \"gpu\"", "one of cpu, paced, cuda"},
        {gpt, "[cluster]\nmemory_limit = \"4 gigs\"", "'4 gigs' is not an amount of memory"},
        {gpt, "[cluster]\nmemory_limit = 0", "cluster.memory_limit = 0"},
        {gpt, "[cluster]\nmemory_limit = 1.5", "expected an amount of memory"},
        {gpt, "[cluster]\nlink_gbps = -1", "cluster.link_gbps = -1"},
        {gpt, "[cluster]\nper_node = 0", "cluster.per_node = 0"},
        {gpt, "[cluster]\ndevice = \"h100\"", "this-machine, a100-sxm-80, b200, h100-sxm"},
        {gpt, "[cluster]\ndevice = \"../x\"", "expected devices out of this-machine"},
        {gpt, "[cluster]\ndevices = [\"b201\"]", "expected devices out of this-machine"},
        {gpt, "[cluster]\ndevices = \"b200\"", "expected a list of strings"},
        {gpt, "[cluster]\ndevices = [1]", "cluster.devices[0] = 1, expected a string in quotes"},
        {gpt, "[cluster]\ndevices = [\"b200\", \"b200\"]", "expected 1 entries, one for each rank"},
        {gpt, "[cluster]\ndevice = \"b200\"\ndevices = [\"b200\"]", "either device or devices"},
        {gpt, "[cluster]\nspeeds = [1]\ndevices = [\"b200\"]", "either speeds or devices"},
        {gpt, "[cluster]\nspeeds = [0]", "expected speeds from 0.000001 to 1000000"},
        {gpt, "[cluster]\nspeeds = [-1]", "cluster.speeds[0] = -1"},
        {gpt, "[cluster]\nspeeds = [nan]", "cluster.speeds[0] = nan, expected a number"},
        {gpt, "[cluster]\nspeeds = [inf]", "cluster.speeds[0] = inf, expected a number"},
        {gpt, "[cluster]\nspeeds = [\"x\"]", "cluster.speeds[0] = \"x\""},
        {gpt, "[cluster]\nspeeds = [1, 1]", "expected 1 entries, one for each rank"},
        {gpt, "[cluster]\nscale_costs = true", "expected a string"},
        {gpt, "[cluster]\nscale_costs = \"roofline\"", "one of none, compute, memory, cautious"},
        {gpt, "[cluster]\nplacement = \"random\"", "one of fill, round-robin"},
        {gpt, "[cluster]\nplacement = [0, 1]", "expected 1 entries, one for each rank"},
        {gpt, "[cluster]\nplacement = [-1]", "cluster.placement[0] = -1"},
        {gpt, "[cluster]\nlink = \"nvlink\"", "no link 'nvlink'; known: nvlink-2"},
        {gpt, "[cluster]\nnode_link = 3", "expected a string"},
        {gpt, "[cluster]\nmemory_limit = [\"1 GB\", \"1 GB\"]", "expected 1 entries"},
        {gpt, "[cluster]\nmemory_limit = [\"1 gig\"]", "cluster.memory_limit[0] = \"1 gig\""},
        {gpt, "[cluster]\nmemory_limit = [0]", "cluster.memory_limit[0] = 0"},
        {gpt, "[pipeline]\ndata_parallel = 0", "pipeline.data_parallel = 0"},
        {gpt, "[pipeline]\nall_reduce = \"butterfly\"", "one of ring, tree, two-level"},
        {gpt, "[pipeline]\noverlap_reduction = 1", "expected true or false"},
        {gpt, "[data]\nkind = \"text\"", "data.path is missing"},
        {gpt, "[data]\nkind = \"txt\"\npath = \"x\"", "one of text, mnist, synthetic"},
        {gpt, "[data]\nkind = \"mnist\"\npath = \"x\"", "expected text"},
        {mlp, "[data]\nkind = \"text\"\npath = \"x\"", "expected mnist or synthetic"},
        {"", "", "model is missing"},
        {"model = 3", "", "model = 3, expected a table"},
        {"[model]", "", "model.kind is missing"},
        {"[model]\nkind = \"gpt\"", "", "model.layers is missing"},
        {"[model]\nkind = \"mlp\"", "", "model.sizes is missing"},
        {"[model]\nkind = \"mlp\"\nsizes = [3]", "", "expected 2 to"},
        {"[model]\nkind = \"profile\"", "", "model.file is missing"},
        {"[model]\nkind = \"profile\"\nfile = \"\"", "", "model.file is missing"},
        {"[model]\nkind = \"layers\"\ninput = 4", "", "model.layer is missing"},
        {"[model]\nkind = \"layers\"\nlayer = 4", "", "expected a list of tables"},
        {"[model]\nkind = \"layers\"\nlayer = [4]", "", "expected tables only"},
    };
    for (const Refusal& one : cases) {
        const Error error = refusal(with(one.base, one.more));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << one.more;
        EXPECT_TRUE(error.place().starts_with("/home/u/scenarios/s.toml")) << error.place();
        EXPECT_NE(error.text().find(one.text), std::string::npos) << error.text();
    }
}

TEST(ParseScenario, RefusesWhatIsNotBuiltYetNamingWhatIs) {
    const std::vector<Refusal> cases{
        {"[model]\nkind = \"resnet\"", "", "expected one of gpt, mlp, layers, profile"},
        {"[model]\nkind = \"amoebanet-d\"", "", "expected one of gpt, mlp, layers, profile"},
        {gpt, "tied = true", "model.tied = true, expected false"},
        {gpt, "[data]\nkind = \"tokens\"", "one of text, mnist, synthetic"},
        {gpt, "[data]\nkind = \"cifar10\"", "one of text, mnist, synthetic"},
        {gpt, "[training]\nprecision = \"bf16\"", "one of fp32, fp64"},
        {gpt, "[pipeline]\ntensor_parallel = 2", "pipeline.tensor_parallel = 2, expected 1"},
        {gpt, "[output]\ncheckpoint_every = 10", "output.checkpoint_every = 10, expected 0"},
    };
    for (const Refusal& one : cases) {
        const Error error = refusal(with(one.base, one.more));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(error.text().find(one.text), std::string::npos) << error.text();
        EXPECT_NE(error.hint().find("not built yet"), std::string::npos) << error.what();
    }
}

TEST(ParseScenario, TextNeedsAVocabularyOfAllBytes) {
    const Error error =
        refusal(with(gpt, "vocabulary = 255\n[data]\nkind = \"text\"\npath = \"x\""));
    EXPECT_NE(error.text().find("at least 256"), std::string::npos) << error.text();
}

TEST(ParseScenario, C26RefusesMoreStagesThanDevicesNamingBoth) {
    const Error error = refusal(with(gpt, "[pipeline]\nstages = 4\n[cluster]\ncount = 2"));
    EXPECT_EQ(error.text(), "cluster.count = 2, expected at least the 4 of pipeline.stages");
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:10:9");
}

TEST(ParseScenario, C26RefusesMoreStagesOfReplicasThanDevices) {
    const Error error =
        refusal(with(gpt, "[pipeline]\nstages = 2\ndata_parallel = 2\n[cluster]\ncount = 3"));
    EXPECT_EQ(error.text(),
              "cluster.count = 3, expected at least 4, for the 2 stages of 2 replicas");
}

TEST(ParseScenario, ListsOfRanksArePrintedAndReadAgain) {
    Scenario s = parse(with(gpt,
                            "[pipeline]\nstages = 2\n[cluster]\n"
                            "devices = [\"b200\", \"tpu-v5e\"]\nplacement = [1, 0]\n"
                            "memory_limit = [\"4 GiB\", 1024]"));
    EXPECT_EQ(s.cluster.devices, (std::vector<std::string>{"b200", "tpu-v5e"}));
    EXPECT_EQ(s.cluster.nodes, (std::vector<int>{1, 0}));
    EXPECT_EQ(s.cluster.memory_limits, (std::vector<Bytes>{Bytes{4LL << 30}, Bytes{1024}}));
    EXPECT_EQ(parse(print_scenario(s)).cluster, s.cluster);
}

TEST(ParseScenario, RefusesSyntaxErrorsWithLineAndColumn) {
    const Error error = refusal("[model]\nkind = \"gpt\nlayers = 2\n");
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_TRUE(error.place().starts_with("/home/u/scenarios/s.toml:2:")) << error.place();
    EXPECT_THROW(parse("[model]\nkind = 1\nkind = 2\n"), Error);
    EXPECT_THROW(parse("[model]\n[model]\n"), Error);
    EXPECT_THROW(parse("\xff\xfe"), Error);
    EXPECT_THROW(parse(std::string_view("a\0b = 1", 7)), Error);
}

TEST(ParseScenario, SurvivesTextsMadeToExhaustTheStack) {
    const std::size_t million = 1'000'000;
    std::string dotted = "a";
    for (int i = 0; i < 200'000; ++i) {
        dotted += ".a";
    }
    std::string alternating = "a = ";
    for (int i = 0; i < 100'000; ++i) {
        alternating += "[{a=";
    }
    for (const std::string& text : {std::string(4 * million, '['),
                                    "a = " + std::string(4 * million, '['),
                                    "a = " + std::string(million, '{'),
                                    dotted + " = 1",
                                    "[" + dotted + "]",
                                    alternating}) {
        EXPECT_EQ(refusal(text).kind(), ErrorKind::BadInput);
    }
    EXPECT_EQ(refusal(dotted + " = 1").text(), "nested deeper than 64");
    EXPECT_THROW(parse(gpt, {{dotted, "1"}}), Error);
    EXPECT_THROW(parse(gpt, {{"a", std::string(million, '[')}}), Error);
}

TEST(ParseScenario, CountsNestingOutsideStringsAndCommentsOnly) {
    const std::string dots(200, '.');
    EXPECT_NO_THROW(parse(with(gpt, "# " + dots + std::string(200, '['))));
    EXPECT_NO_THROW(parse(with(gpt, "[data]\nkind = \"text\"\npath = \"a" + dots + "\\\"[[[\"")));
    EXPECT_NO_THROW(parse(with(gpt, "[data]\nkind = \"text\"\npath = '" + dots + "'")));
    EXPECT_NO_THROW(
        parse(with(gpt, "[data]\nkind = \"text\"\npath = \"\"\"a\"" + dots + "\n\"\"\"")));
}

TEST(ParseScenario, RefusesAFileAboveTheLimit) {
    EXPECT_EQ(refusal(std::string((std::size_t{16} << 20) + 1, '#')).kind(), ErrorKind::BadInput);
}

TEST(Overrides, ReplaceAndAddKeys) {
    const Scenario s = parse(full,
                             {{"pipeline.stages", "1"},
                              {"cluster.speeds", "[2]"},
                              {"pipeline.partition", "auto"},
                              {"training.learning_rate", "0.5"},
                              {"data.path", "/abs/text"},
                              {"cluster.memory_limit", "2 GiB"},
                              {"pipeline.schedule", "1f1b"}});
    EXPECT_EQ(s.pipeline.stages, 1);
    EXPECT_EQ(s.pipeline.partition, std::nullopt);
    EXPECT_EQ(s.training.learning_rate, 0.5);
    EXPECT_EQ(s.data.path, "/abs/text");
    EXPECT_EQ(s.cluster.memory_limit, Bytes{2LL << 30});
    EXPECT_EQ(s.pipeline.schedule, "1f1b");
    const Scenario added = parse(gpt, {{"pipeline.partition", "[4, 6]"}, {"pipeline.stages", "2"}});
    EXPECT_EQ(added.pipeline.partition, (std::vector<int>{4, 6}));
}

TEST(Overrides, TheLastOfOneKeyWins) {
    EXPECT_EQ(parse(gpt, {{"training.steps", "3"}, {"training.steps", "4"}}).training.steps, 4);
}

TEST(Overrides, CanSetAWholeTable) {
    EXPECT_EQ(parse(full, {{"training", "{steps = 3}"}}).training.steps, 3);
}

TEST(Overrides, RelativePathsAreRelativeToTheScenario) {
    EXPECT_EQ(
        parse(with(gpt, "[data]\nkind = \"text\"\npath = \"x\""), {{"data.path", "y/z"}}).data.path,
        "/home/u/scenarios/y/z");
}

TEST(Overrides, AreThePlaceOfTheirErrors) {
    EXPECT_EQ(refusal(full, {{"pipeline.stagse", "2"}}).place(), "--set pipeline.stagse");
    EXPECT_EQ(refusal(full, {{"pipeline.stagse", "2"}}).hint(), "did you mean 'stages'?");
    EXPECT_EQ(refusal(full, {{"pipelin.stages", "2"}}).place(), "--set pipelin.stages");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "x"}}).place(), "--set pipeline.stages");
    EXPECT_EQ(refusal(full, {{"training", "{batch = 0}"}}).place(), "--set training");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "[1"}}).place(), "--set pipeline.stages");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "1\nx = 2"}}).text(),
              "more than one value, expected one");
    EXPECT_EQ(refusal(full, {{"pipeline.stages.x", "1"}}).text(), "'stages' is no table");
    EXPECT_EQ(refusal(full, {{"", "1"}}).text(), "no key, expected one as in pipeline.stages");
    EXPECT_THROW(parse(full, {{"pipeline.", "1"}}), Error);
    // An error elsewhere keeps its place in the file.
    EXPECT_EQ(refusal(with(gpt, "[training]\nbatch = 0"), {{"training.steps", "3"}}).place(),
              "/home/u/scenarios/s.toml:8:9");
}

constexpr std::string_view layers_text = R"([model]
kind = "layers"
input = 8
[[model.layer]]
type = "linear"
outputs = 4
repeat = 2
bias = false
[[model.layer]]
type = "residual"
name = "block"
repeat = 3
[[model.layer.layer]]
type = "layer_norm"
[[model.layer.layer]]
type = "linear"
outputs = 4
[[model.layer]]
type = "cross_entropy"
)";

TEST(LayersModel, ExpandsRepeatsAndNests) {
    const Scenario s = parse(layers_text);
    ASSERT_EQ(s.model.layers.size(), 6U);
    EXPECT_EQ(s.model.input, (SampleShape{.positions = 1, .width = 8}));
    EXPECT_FALSE(s.model.layers[1].bias);
    EXPECT_EQ(s.model.layers[4].name, "block2");
    const Model model = scenario_model(s);
    EXPECT_EQ(model.layer(0).spec.name, "linear0");
    EXPECT_EQ(model.layer(1).spec.name, "linear1");
    EXPECT_EQ(model.layer(2).parameter_count, 2 * 4 + 4 * 4 + 4);
    EXPECT_EQ(model.layer(5).spec.type, LayerType::CrossEntropy);
}

TEST(LayersModel, ReadsTokensWhereItBeginsWithAnEmbedding) {
    const Scenario s = parse(R"([model]
kind = "layers"
layer = [{type = "embedding", outputs = 8, context = 4}, {type = "attention", heads = 2},
         {type = "gelu"}, {type = "linear", outputs = 256}, {type = "cross_entropy"}]
)");
    EXPECT_EQ(s.model.input, (SampleShape{.token_ids = true, .positions = 4}));
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(scenario_model(s).layer(0).parameter_count, 256 * 8 + 4 * 8);
}

TEST(LayersModel, RefusesWhatIsNoModel) {
    const std::string head = "[model]\nkind = \"layers\"\n";
    const std::vector<Refusal> cases{
        {head, "layer = [{type = \"gelu\"}]", "model.input is missing"},
        {head, "input = 4\nlayer = [{type = \"gelu\"}]", "no cross_entropy"},
        {head,
         "input = 4\nlayer = [{type = \"lineer\"}]",
         "layer[0].type = \"lineer\", expected one"},
        {head, "input = 4\nlayer = [{outputs = 4}]", "model.layer[0].type is missing"},
        {head, "input = 4\nlayer = [{type = \"gelu\", heads = 2}]", "unknown key 'heads'"},
        {head, "input = 4\nlayer = [{type = \"linear\"}]", "model.layer[0].outputs is missing"},
        {head, "input = 4\nlayer = [{type = \"linear\", outputs = 4, bias = 1}]", "true or false"},
        {head, "input = 4\nlayer = [{type = \"gelu\", repeat = 0}]", "model.layer[0].repeat = 0"},
        {head, "input = 4\nlayer = [{type = \"residual\"}]", "model.layer[0].layer is missing"},
        {head,
         "input = 4\nlayer = [{type = \"sequence\", repeat = 1000, layer = [{type = \"gelu\", "
         "repeat = 1000}]}]",
         "at most 100000 layers"},
        {head,
         "input = 4\nlayer = [{type = \"embedding\", outputs = 2, context = 2}]",
         "model.input = 4, expected no such key"},
        {head,
         "input = 4\nlayer = [{type = \"gelu\", name = \"a\"}, {type = \"gelu\", name = \"a\"}, "
         "{type = \"cross_entropy\"}]",
         "two layers have this name"},
    };
    for (const Refusal& one : cases) {
        const Error error = refusal(with(one.base, one.more));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(error.text().find(one.text), std::string::npos) << error.what();
    }
    EXPECT_EQ(refusal(with(head, "input = 4\nlayer = [{type = \"lineer\"}]")).hint(),
              "did you mean 'linear'?");
}

TEST(ParseScenario, ReadsEveryExampleOfItsDocumentation) {
    const std::vector<std::string> blocks = testing::code_blocks("docs/scenario.md", "toml");
    EXPECT_EQ(blocks.size(), 2U);
    for (const std::string& block : blocks) {
        EXPECT_NO_THROW(parse(block)) << block;
    }
}

TEST(PrintScenario, ParsesBackToTheSame) {
    const std::vector<std::string> texts{
        std::string(gpt),
        std::string(mlp),
        std::string(full),
        std::string(layers_text),
        with(gpt,
             "[pipeline]\nstages = \"auto\"\nmicro_batches = \"auto\"\nschedule = \"auto\"\n"
             "chunks = \"auto\"\nrecompute = \"auto\"\npartition = \"auto\"\n"
             "data_parallel = \"auto\"\ntensor_parallel = \"auto\"\n"
             "channel_capacity = \"auto\""),
        with(gpt, "[pipeline]\nschedule = \"auto\""),
        with(gpt, "[data]\nkind = \"synthetic\""),
        with(mlp, "[data]\nkind = \"mnist\"\npath = \"a\\\"\\\\\\u0007\\u00e4\""),
        with(mlp, "[training]\nlearning_rate = 1e-300\nseed = 9007199254740992"),
        "[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n",
        "[model]\nkind = \"layers\"\nlayer = [{type = \"embedding\", outputs = 8, context = 4}, "
        "{type = \"attention\", heads = 2}, {type = \"cross_entropy\"}]\n"};
    for (const std::string& text : texts) {
        const Scenario scenario = parse(text);
        const std::string printed = print_scenario(scenario);
        EXPECT_EQ(parse(printed), scenario) << printed;
        EXPECT_EQ(print_scenario(parse(printed)), printed);
    }
}

TEST(PrintScenario, MeansTheSameInAnotherFolder) {
    const Scenario scenario = parse(full);
    const Scenario moved = parse_scenario(print_scenario(scenario), "/elsewhere/scenario.toml");
    EXPECT_EQ(moved.data.path, scenario.data.path);
}

TEST(ReadScenario, ReadsAFileAndRefusesWhatIsNone) {
    const tests::ScratchFolder folder;
    folder.write("s.toml", mlp);
    EXPECT_EQ(read_scenario(folder / "s.toml").model.sizes, (std::vector<int>{784, 64, 10}));
    EXPECT_EQ(error_of([&] { read_scenario(folder.path()); }).kind(), ErrorKind::BadInput);
    EXPECT_EQ(error_of([&] { read_scenario(folder / "none.toml"); }).kind(), ErrorKind::Io);
    EXPECT_EQ(error_of([&] { read_scenario("/dev/zero"); }).text(), "not a regular file");
}

TEST(RequireSettled, PassesWhatIsPlannedHere) {
    EXPECT_NO_THROW(require_settled(
        parse(with(gpt, "[pipeline]\npartition = \"auto\"\nchannel_capacity = \"auto\""))));
}

TEST(RequireSettled, NamesEveryOtherAutoAndAValueToSet) {
    const Scenario s = parse(with(gpt,
                                  "[pipeline]\nstages = \"auto\"\nrecompute = \"auto\"\n"
                                  "micro_batches = \"auto\"\n[cluster]\ncount = 2"));
    const Error error = error_of([&] { require_settled(s); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.text(),
              "\"auto\" is not planned yet for pipeline.stages, pipeline.micro_batches, "
              "pipeline.recompute");
    EXPECT_EQ(error.hint(),
              "in [pipeline] set stages = 2, micro_batches = 8, recompute = \"always\"");
    for (const char* key : {"stages",
                            "micro_batches",
                            "schedule",
                            "chunks",
                            "recompute",
                            "data_parallel",
                            "tensor_parallel"}) {
        const Scenario one = parse(gpt, {{fmt::format("pipeline.{}", key), "auto"}});
        EXPECT_NE(error_of([&] { require_settled(one); }).text().find(key), std::string::npos);
    }
}

std::vector<int> partition_of(std::string_view list, int stages) {
    const Scenario s = parse(
        gpt,
        {{"pipeline.partition", std::string(list)}, {"pipeline.stages", std::to_string(stages)}});
    return scenario_partition(s, scenario_model(s))->layers_per_stage();
}

TEST(ScenarioPartition, CountsWholeBlocksOfAGptOrItsUnits) {
    EXPECT_EQ(partition_of("[2, 2]", 2), (std::vector<int>{5, 5}));
    EXPECT_EQ(partition_of("[1, 2, 1]", 3), (std::vector<int>{3, 4, 3}));
    EXPECT_EQ(partition_of("[4]", 1), (std::vector<int>{10}));
    EXPECT_EQ(partition_of("[3, 7]", 2), (std::vector<int>{3, 7}));
    EXPECT_EQ(scenario_partition(parse(gpt), scenario_model(parse(gpt))), std::nullopt);
}

TEST(ScenarioPartition, C26RefusesAWrongSumOrLengthNamingBothNumbersAndTheBalancer) {
    const auto refused = [](std::string_view base, std::string_view list, int stages) {
        return refusal(base,
                       {{"pipeline.partition", std::string(list)},
                        {"pipeline.stages", std::to_string(stages)}});
    };
    const Error sum = refused(gpt, "[2, 3]", 2);
    EXPECT_EQ(sum.kind(), ErrorKind::BadInput);
    EXPECT_NE(sum.text().find("[2, 3] sums to 5, expected 4 (whole blocks) or 10 (units"),
              std::string::npos)
        << sum.text();
    EXPECT_EQ(sum.hint(), "let the balancer choose: partition = \"auto\"");
    EXPECT_EQ(refused(gpt, "[2, 2]", 3).text(),
              "2 pieces for 3 stages, expected one entry per stage");
    EXPECT_EQ(refused(mlp, "[1, 2]", 2).text(), "[1, 2] sums to 3, but the model has 2 layers");
}

TEST(ScenarioModel, TakesTheLayersOfAProfile) {
    const Scenario s = parse("[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n");
    EXPECT_EQ(s.model.profile, "/home/u/scenarios/x.profile.json");
    const Profile profile{.layers = {{.name = "a"}, {.name = "b"}, {.name = "c", .inputs = {"a"}}}};
    const Model model = scenario_model(s, &profile);
    EXPECT_EQ(model.layer_count(), 3);
    EXPECT_EQ(model.inputs_of(2), (std::vector<int>{0}));
    EXPECT_FALSE(model.is_executable());
    EXPECT_THROW(scenario_model(s), InternalError);
}

TEST(ParseScenario, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    const std::vector<std::string> texts{
        std::string(full), std::string(layers_text), std::string(mlp)};
    for (int round = 0; round < tests::soaked(2000); ++round) {
        const std::string text = testing::mutated(texts[random() % texts.size()], random);
        try {
            const Scenario scenario = parse(text);
            ASSERT_EQ(parse(print_scenario(scenario)), scenario) << text;
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << text;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << text;
        }
    }
}

TEST(ParseScenario, ReadsNoShorterTextAsIfItWereWhole) {
    // Cut at any byte the text is refused, or what it lacks is a whole line.
    const std::string text(layers_text);
    for (std::size_t length = 0; length < text.size(); ++length) {
        try {
            const Scenario scenario = parse(text.substr(0, length));
            EXPECT_GE(length, text.rfind('"')) << length;
        } catch (const Error&) {
            continue;
        }
    }
}

}  // namespace
}  // namespace pipetwin
