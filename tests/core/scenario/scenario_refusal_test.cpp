// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/scenario/scenario.h"
#include "tests/core/scenario/scenario_texts.h"
#include "tests/support/mutate.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace scenario_refusal_test {

using testing::expect_refused;
using testing::full;
using testing::gpt;
using testing::layers_text;
using testing::mlp;
using testing::parse;
using testing::refusal;
using testing::Refusal;
using testing::translation;
using testing::with;

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

struct OtherWord {
    std::string line;
    std::string hint;
};

/// Each is refused with one suggestion, which the key takes.
TEST(ParseScenario, WordsOfOtherSystemsLeadToTheRightOne) {
    const std::vector<OtherWord> cases{
        {"recompute = \"full\"", "block"},
        {"recompute = \"uniform\"", "block"},
        {"recompute = \"checkpoint\"", "block"},
        {"recompute = true", "block"},
        {"recompute = \"selective_block\"", "selective"},
        {"recompute = \"core_attn\"", "selective"},
        {"recompute = false", "none"},
        {"shard = 1", "optimizer"},
        {"shard = 2", "gradients"},
        {"shard = 3", "weights"},
        {"shard = \"fsdp\"", "weights"},
        {"shard = \"optim_grads\"", "gradients"},
        {"shard = false", "none"},
    };
    for (const OtherWord& other : cases) {
        const Error error = refusal(with(gpt, "[pipeline]\n" + other.line));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << other.line;
        EXPECT_EQ(error.hint(), "did you mean '" + other.hint + "'?") << other.line;
        const std::string key = other.line.substr(0, other.line.find(' '));
        parse(with(gpt, "[pipeline]\n" + key + " = \"" + other.hint + "\""));
    }
    EXPECT_EQ(refusal(with(gpt, "[training]\ngradients = \"bf16\"")).hint(),
              "did you mean 'same'?");
    EXPECT_EQ(refusal(with(gpt, "[pipeline]\nstages = 2\nrecompute = [\"full\", \"none\"]")).hint(),
              "did you mean 'always'?");
}

TEST(ParseScenario, RefusesWrongValuesNamingFoundAndExpected) {
    const std::vector<Refusal> cases{
        {gpt,
         "[pipeline]\nstages = \"two\"",
         "stages = \"two\", expected a whole number from 1 to 4096, or \"auto\""},
        {gpt,
         "[pipeline]\ntensor_overlap = 1",
         "tensor_overlap = 1, expected true or false, or \"auto\""},
        {gpt, "[pipeline]\nshard = \"zero\"", "optimizer, gradients, weights, or \"auto\""},
        {gpt, "[pipeline]\nrecompute = \"zero\"", "selective, block, or \"auto\""},
        {gpt, "[pipeline]\npartition = 3", "a list of whole numbers, or \"auto\""},
        {gpt, "[pipeline]\nstages = 2.5", "pipeline.stages = 2.5, expected a whole number"},
        {gpt, "[pipeline]\nstages = 0", "pipeline.stages = 0, expected a whole number from 1"},
        {gpt, "[pipeline]\nstages = 4097", "pipeline.stages = 4097"},
        {gpt, "[pipeline]\nstages = true", "pipeline.stages = true"},
        {gpt, "[pipeline]\nstages = [1]", "pipeline.stages = [1]"},
        {gpt,
         "[pipeline]\nstages = 3\nrecompute = [\"always\", \"none\"]",
         "pipeline.recompute: 2 entries for 3 stages, expected one entry per stage"},
        {gpt,
         "[pipeline]\nstages = 3\nrecompute = [\"always\"]",
         "pipeline.recompute: 1 entry for 3 stages"},
        {gpt, "[pipeline]\nrecompute = []", "pipeline.recompute: 0 entries for 1 stage,"},
        {gpt,
         "[pipeline]\nstages = \"auto\"\nrecompute = []",
         "pipeline.recompute = [], expected one entry per stage"},
        {gpt,
         "[pipeline]\nstages = 2\nrecompute = [\"always\", \"sometimes\"]",
         "pipeline.recompute[1] = \"sometimes\", expected one of none, always, except-last"},
        {gpt,
         "[pipeline]\nstages = 2\nrecompute = [\"auto\", \"none\"]",
         "pipeline.recompute[0] = \"auto\", expected one of none, always, except-last"},
        {gpt,
         "[pipeline]\nstages = 2\nrecompute = [1, 0]",
         "pipeline.recompute[0] = 1, expected one of none, always, except-last"},
        {gpt, "[pipeline]\nmicro_batches = 65537", "pipeline.micro_batches = 65537"},
        {gpt, "[pipeline]\nmicro_batches = -1", "pipeline.micro_batches = -1"},
        {gpt, "[pipeline]\nchunks = 65", "pipeline.chunks = 65"},
        {gpt, "[pipeline]\nschedule = 1", "pipeline.schedule = 1, expected a string"},
        {gpt, "[pipeline]\nrecompute = \"some\"", "one of none, always, except-last"},
        {gpt,
         "[pipeline]\nrecompute_blocks = 2",
         "pipeline.recompute_blocks = 2, expected 1 where no blocks are recomputed"},
        {gpt,
         "[pipeline]\nrecompute = \"selective\"\nrecompute_blocks = 2",
         "recompute_blocks = 2, expected 1"},
        {gpt, "[pipeline]\nrecompute = \"block\"\nrecompute_blocks = 0", "recompute_blocks = 0"},
        {gpt,
         "[pipeline]\nrecompute_only = 2",
         "pipeline.recompute_only = 2, expected 0 where no blocks are recomputed"},
        {gpt,
         "[pipeline]\nrecompute = \"block\"\nrecompute_only = 2\nrecompute_blocks = 2",
         "recompute_only = 2, expected 0 beside groups"},
        {gpt, "[pipeline]\nrecompute_timing = \"auto\"", "one of eager, lazy"},
        {gpt, "[pipeline]\npartition = \"equal\"", "expected a list of whole numbers"},
        {gpt, "[pipeline]\npartition = [1, \"x\"]", "pipeline.partition[1] = \"x\""},
        {gpt, "[pipeline]\npartition = [-1]", "pipeline.partition[0] = -1"},
        {gpt, "[pipeline]\npartition = [0]", "[0] sums to 0, expected 4 (whole blocks"},
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
        {gpt,
         "[cluster]\ndevice = \"h100\"",
         "this-machine, a100-sxm-80, b200, b300, gb200, gb300, h100-sxm"},
        {gpt, "[cluster]\ndevice = \"../x\"", "expected devices out of this-machine"},
        {gpt, "[cluster]\ndevices = [\"b201\"]", "expected devices out of this-machine"},
        {gpt, "[cluster]\ndevices = \"b200\"", "expected a list of strings"},
        {gpt, "[cluster]\ndevices = [1]", "cluster.devices[0] = 1, expected a string in quotes"},
        {gpt, "[cluster]\ndevices = [\"b200\", \"b200\"]", "expected 1 entry, one for each rank"},
        {gpt, "[cluster]\ndevice = \"b200\"\ndevices = [\"b200\"]", "either device or devices"},
        {gpt, "[cluster]\nspeeds = [1]\ndevices = [\"b200\"]", "either speeds or devices"},
        {gpt, "[cluster]\nspeeds = [0]", "expected speeds from 0.000001 to 1000000"},
        {gpt, "[cluster]\nspeeds = [-1]", "cluster.speeds[0] = -1"},
        {gpt, "[cluster]\nspeeds = [nan]", "cluster.speeds[0] = nan, expected a number"},
        {gpt, "[cluster]\nspeeds = [inf]", "cluster.speeds[0] = inf, expected a number"},
        {gpt, "[cluster]\nspeeds = [\"x\"]", "cluster.speeds[0] = \"x\""},
        {gpt, "[cluster]\nspeeds = [1, 1]", "expected 1 entry, one for each rank"},
        {gpt, "[cluster]\ninterference = [[0], [0]]", "expected 1 entry, one for each rank"},
        {gpt, "[cluster]\ninterference = [[0, 0]]", "expected 1 entry, one for each rank"},
        {gpt, "[cluster]\ngpu_shares = [8, 8]", "expected 1 entry, one for each rank"},
        {gpt,
         "[cluster]\ngpu_shares = [0]",
         "gpu_shares[0] = 0, expected a whole number from 1 to 1024"},
        {gpt,
         "[cluster]\ngpu_shares = \"stream\"",
         "expected \"own\", \"streams\", or a list of each rank"},
        {gpt, "[cluster]\nlink_ctas = 0", "link_ctas = 0, expected a whole number from 1 to 32"},
        {gpt, "[cluster]\ninterference = [0]", "cluster.interference[0] = 0, expected a list"},
        {gpt, "[cluster]\ninterference = [[-1]]", "expected a list of numbers from 0 to 100"},
        {gpt, "[cluster]\nscale_costs = true", "expected a string"},
        {gpt, "[cluster]\nscale_costs = \"roofline\"", "one of none, compute, memory, cautious"},
        {gpt, "[cluster]\nplacement = \"random\"", "one of replicas-first, fill, round-robin"},
        {gpt, "[cluster]\nplacement = [0, 1]", "expected 1 entry, one for each rank"},
        {gpt, "[cluster]\nplacement = [-1]", "cluster.placement[0] = -1"},
        {gpt, "[cluster]\nlink = \"nvlink\"", "no link 'nvlink'; known: nvlink-2"},
        {gpt, "[cluster]\nnode_link = 3", "expected a string"},
        {gpt, "[cluster]\nhost_link = \"pcie\"", "no link 'pcie'; known: nvlink-2"},
        {gpt, "[pipeline]\noffload = \"weights\"", "one of none, stash"},
        {gpt,
         "[pipeline]\noffload = \"stash\"",
         "pipeline.offload = \"stash\", expected a link to host memory"},
        {gpt,
         "[pipeline]\noffload = \"stash\"\n[cluster]\nhost_link_latency_us = 3",
         "expected a link to host memory"},
        {gpt, "[cluster]\nmemory_limit = [\"1 GB\", \"1 GB\"]", "expected 1 entry, one for"},
        {gpt, "[cluster]\nmemory_limit = [\"1 gig\"]", "cluster.memory_limit[0] = \"1 gig\""},
        {gpt, "[cluster]\nmemory_limit = [0]", "cluster.memory_limit[0] = 0"},
        {gpt, "[pipeline]\ndata_parallel = 0", "pipeline.data_parallel = 0"},
        {gpt, "[pipeline]\nall_reduce = \"butterfly\"", "one of ring, tree, two-level"},
        {gpt, "[pipeline]\noverlap_reduction = 1", "expected true or false"},
        {gpt, "[pipeline]\nshard_optimizer = \"yes\"", "expected true or false"},
        {gpt, "[data]\nkind = \"text\"", "data.path is missing"},
        {gpt, "[data]\nkind = \"tokens\"", "data.path is missing"},
        {gpt, "[output]\ncheckpoint_every = -1", "output.checkpoint_every = -1"},
        {gpt, "[output]\ncheckpoint_every = \"often\"", "expected a number of steps, or a time"},
        {gpt,
         "[output]\ncheckpoint_every = \"10 parsecs\"",
         "expected a number of steps, or a time"},
        {gpt, "[output]\ncheckpoint_every = \"0 min\"", "or a time of 1 to 1000000 s, min or h"},
        {gpt, "[output]\ncheckpoint_every = \"1000001 h\"", "or a time of 1 to 1000000"},
        {gpt, "[output]\ncheckpoint_every = true", "output.checkpoint_every = true"},
        {gpt, "[data]\nkind = \"txt\"\npath = \"x\"", "one of text, tokens, mnist, synthetic"},
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
    expect_refused(cases);
}

TEST(ParseScenario, RefusesSizesOfLlamasThatThereAreNot) {
#define PIPETWIN_LLAMA \
    "[model]\nkind = \"llama\"\nlayers = 2\nd_model = 16\nheads = 4\ncontext = 8\n"
    const std::vector<Refusal> cases{
        {PIPETWIN_LLAMA, "", "model.feed_forward is missing"},
        {PIPETWIN_LLAMA "feed_forward = 24\nkey_value_heads = 0",
         "",
         "key_value_heads = 0, expected"},
        {PIPETWIN_LLAMA "feed_forward = 24\nrotary_base = 0", "", "expected a number above 0"},
        {PIPETWIN_LLAMA "feed_forward = 24\nepsilon = -1", "", "epsilon = -1, expected"},
        {PIPETWIN_LLAMA
         "feed_forward = 24\nvocabulary = 255\n[data]\nkind = \"text\"\npath = \"x\"",
         "",
         "at least 256"},
        {PIPETWIN_LLAMA "feed_forward = 24\ndropout = 0.1", "", "unknown key 'dropout'"}};
#undef PIPETWIN_LLAMA
    expect_refused(cases);
}

TEST(ParseScenario, RefusesSizesOfImageModelsThatThereAreNot) {
    const std::vector<Refusal> cases{
        {"[model]\nkind = \"vgg\"", "", "expected one of gpt, mlp, layers, profile, amoebanet-d"},
        {"[model]\nkind = \"resnet\"\ndepth = 20\nclasses = 10", "", "model.image is missing"},
        {"[model]\nkind = \"resnet\"\ndepth = 21\nclasses = 10\nimage = [32, 32, 3]",
         "",
         "21, expected one of 18, 20"},
        {"[model]\nkind = \"resnet\"\ndepth = 20\nlayers = 3", "", "unknown key 'layers'"},
        {"[model]\nkind = \"amoebanet-d\"\nlayers = 4\nfilters = 64\nclasses = 10\n"
         "image = [64, 64, 3]",
         "",
         "4, expected a multiple of 3"},
        {"[model]\nkind = \"amoebanet-b\"\nlayers = 3\nfilters = 64\nclasses = 10\n"
         "variant = \"lingvo\"",
         "",
         "expected one of reference, torchgpipe"},
        {"[model]\nkind = \"amoebanet-d\"\nlayers = 3\nfilters = 64\nclasses = 10\n"
         "image = [64, 64, 3]\nauxiliary_head = true",
         "",
         "the auxiliary head reads 4 x 4 pixels, expected at least 5 x 5"},
        {"[model]\nkind = \"amoebanet-d\"\nlayers = 3\nfilters = 64\nclasses = 10\n"
         "image = [64, 64, 3]\nvariant = \"torchgpipe\"\ndrop_path = 0.3",
         "",
         "0.3, expected 0: the model of torchgpipe drops no paths"},
        {"[model]\nkind = \"amoebanet-d\"\nlayers = 3\nfilters = 64\nclasses = 10\n"
         "image = [64, 64, 3]\ndrop_path = 1",
         "",
         "drop_path = 1, expected a number from 0 up to, but not, 1"},
        {"[model]\nkind = \"unet\"\ndepth = 5\nconvolutions = 1\nchannels = 4\n"
         "image = [16, 16, 3]",
         "",
         "16 x 16 pixels, expected at least 32 x 32"},
    };
    expect_refused(cases);
}

TEST(ParseScenario, RefusesDropoutThatLeavesNothingAndProbabilitiesThatAreNone) {
    const std::string_view dropout_layer =
        "[model]\nkind = \"layers\"\ninput = 4\n[[model.layer]]\ntype = \"dropout\"\n";
    const std::vector<Refusal> cases{
        {gpt, "dropout = 1", "model.dropout = 1, expected a number from 0 up to, but not, 1"},
        {gpt, "dropout = 1.5", "model.dropout = 1.5, expected a number from 0 to 1"},
        {gpt, "dropout = -0.1", "model.dropout = -0.1, expected a number from 0 to 1"},
        {gpt, "dropout = \"half\"", "model.dropout = \"half\", expected a number"},
        {dropout_layer, "", "probability is missing"},
        {dropout_layer, "probability = 1", "probability = 1, expected a number from 0 up to"},
        {dropout_layer, "dropout = 0.1", "unknown key 'dropout'"},
    };
    expect_refused(cases);
    const Error error = refusal(with(gpt, "dropout = 1"));
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:7:11");
}

TEST(ParseScenario, RefusesWhatImagesCannotBecome) {
    const std::string images = with(mlp, "[data]\nkind = \"cifar10\"\npath = \"x\"");
    const std::vector<Refusal> cases{
        {gpt, "[data]\nkind = \"cifar10\"\npath = \"x\"", "expected text"},
        {mlp, "[data]\nkind = \"images\"", "data.path is missing"},
        {mlp, "[data]\nkind = \"synthetic\"\nmirror = true", "expected no such key, as it is for"},
        {gpt, "[data]\nmean = [1]", "data.mean = [1], expected no such key"},
        {images, "mean = 1", "expected a list"},
        {images, "deviation = [1, 0]", "expected numbers from 0.000001"},
        {images, "mean = [1, 1, 1]\ndeviation = [1, 1]", "expected 3 numbers, as data.mean has"},
        {images, "noise = -1", "expected a number from 0 to 1000"},
        {images, "pad_and_crop = 4097", "expected a whole number from 0 to 4096"},
        {images, "mirror = 1", "expected true or false"},
        {images, "resize = 3", "unknown key 'resize'"},
        {mlp,
         "[data]\nkind = \"images\"\npath = \"x\"\n[training]\nvalidate_every = 5",
         "expected 0, as there is nothing to validate on"},
    };
    expect_refused(cases);
}

std::string shared_link(std::string_view devices, std::string_view rate, std::string_view kind) {
    return fmt::format(
        "[[cluster.shared_link]]\ndevices = {}\nrate = {}\nkind = \"{}\"\n", devices, rate, kind);
}

TEST(ParseScenario, RefusesLinksThatDevicesOfANodeCannotShare) {
    constexpr std::string_view fast = "\"12 GB/s\"";
    const std::string first = with(gpt, shared_link("[0, 1, 2, 3]", fast, "switch"));
    struct Case {
        std::string base;
        std::string more;
        std::string text;
    };
    const std::string short_text(gpt);
    const std::vector<Case> cases{
        {short_text,
         "[cluster]\nshared_link = 3",
         "cluster.shared_link = 3, expected a list of tables, each written as"},
        {short_text,
         "[[cluster.shared_link]]\nrate = \"1 GB/s\"",
         "shared_link[0].devices is missing"},
        {short_text, "[[cluster.shared_link]]\ndevices = [0, 1]", "shared_link[0].rate is missing"},
        {short_text,
         "[[cluster.shared_link]]\ndevices = [0]\nrate = \"1 GB/s\"",
         "shared_link[0].kind is missing, expected one of switch, host, socket"},
        {short_text, shared_link("[]", fast, "switch"), "expected at least one device"},
        {short_text,
         shared_link("[0, 8]", fast, "switch"),
         "[0, 8], expected devices of a node, which cluster.per_node = 8 numbers from 0 to 7"},
        {short_text, shared_link("[-1, 0]", fast, "switch"), "numbers from 0 to 7"},
        {short_text,
         shared_link("[0, 1, 0]", fast, "switch"),
         "[0, 1, 0], expected each device once"},
        {short_text,
         shared_link("[0, 1]", "12", "switch"),
         "rate = 12, expected a number above 0 with"},
        {short_text, shared_link("[0, 1]", "\"0 GB/s\"", "switch"), "expected a rate from 1 B/s"},
        {short_text, shared_link("[0, 1]", "\"-1 GB/s\"", "switch"), "expected a rate from 1 B/s"},
        {short_text, shared_link("[0, 1]", "\"12 GB\"", "switch"), "with its unit"},
        {short_text, shared_link("[0, 1]", "\"12 XB/s\"", "switch"), "with its unit"},
        {short_text, shared_link("[0, 1]", "\"pcie-9\"", "switch"), "pcie-9"},
        {short_text, shared_link("[0, 1]", fast, "swich"), "\"swich\", expected one of switch"},
        {short_text,
         shared_link("[0, 1, 2, 3, 4, 5, 6, 7]", fast, "socket"),
         "expected those of one socket"},
        {short_text, shared_link("[0, 1]", fast, "switch") + "gbps = 3", "unknown key 'gbps'"},
        {first,
         shared_link("[3, 4]", fast, "host"),
         "[3, 4], expected all of these among those of, or none of those of "
         "cluster.shared_link[0], devices = [0, 1, 2, 3], switch"},
        {first,
         shared_link("[3, 2, 1, 0]", fast, "switch"),
         "expected devices that do not share another switch already"},
        {with(gpt, shared_link("[0, 1]", fast, "uplink")),
         shared_link("[1]", fast, "uplink"),
         "expected none of those of cluster.shared_link[0]"},
    };
    for (const Case& one : cases) {
        const Error error = refusal(with(one.base, one.more));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << one.more;
        EXPECT_THAT(error.text(), ::testing::HasSubstr(one.text)) << one.more;
        EXPECT_FALSE(error.hint().empty()) << one.more;
    }
    EXPECT_EQ(refusal(with(first, shared_link("[3, 4]", fast, "host"))).hint(),
              "without those in common: devices = [4]");
    EXPECT_EQ(refusal(with(gpt, shared_link("[0, 9]", fast, "switch"))).hint(),
              "leave device 9 out, or set cluster.per_node = 10");
    EXPECT_EQ(refusal(with(gpt, shared_link("[0, 1, 0]", fast, "switch"))).hint(),
              "write devices = [0, 1]");
    EXPECT_EQ(refusal(with(gpt, shared_link("[0, 1]", "12", "switch"))).hint(),
              "write rate = \"12 GB/s\" if these are GB/s");
    EXPECT_EQ(refusal(with(gpt, shared_link("[0, 1]", fast, "swich"))).hint(),
              "did you mean 'switch'?");
    EXPECT_EQ(refusal(with(gpt, shared_link("[0, 8]", fast, "switch"))).place(),
              "/home/u/scenarios/s.toml:8:11");
}

/// Links of a node nest, as switches below a processor do; devices may have an uplink besides.
TEST(ParseScenario, ReadsATreeOfSharedLinksAndUplinksAcrossIt) {
    const std::string text = with(gpt,
                                  shared_link("[0, 1]", "\"100 Gbit/s\"", "switch") +
                                      shared_link("[0]", "\"pcie-3\"", "switch") +
                                      shared_link("[0, 1, 2, 3]", "\"2.5e3 MB/s\"", "socket") +
                                      shared_link("[1, 2]", "\"1 GiB/s\"", "uplink") +
                                      shared_link("[4, 5]", "\"8bit/s\"", "switch"));
    std::vector<double> rates;
    for (const NodeLink& link : parse(text).cluster.shared_links) {
        rates.push_back(link.bytes_per_second);
    }
    EXPECT_EQ(rates, (std::vector<double>{12.5e9, 16e9, 2.5e9, 0x1p30, 1}));
    EXPECT_EQ(
        parse(with(gpt, "[cluster]\nper_node = 2"),
              {{"cluster.shared_link", "[{devices = [0, 1], rate = \"1 GB/s\", kind = \"host\"}]"}})
            .cluster.shared_links.size(),
        1U);
    EXPECT_TRUE(parse(text, {{"cluster.shared_link", "[]"}}).cluster.shared_links.empty());
}

TEST(ParseScenario, RefusesPairsThatCannotBe) {
    const std::string gettext = with(translation, "[data]\nkind = \"gettext\"");
    const std::string german = with(gettext, "languages = [\"de\"]");
    const std::string pairs = with(translation, "[data]\nkind = \"pairs\"\npath = \"x\"");
    const std::vector<Refusal> cases{
        {gettext, "", "data.languages is missing"},
        {gettext, "languages = []", "expected 1 to 1000 languages"},
        {gettext, "languages = \"de\"", "expected a list"},
        {gettext, "languages = [\"de\", \"de\"]", "expected different languages"},
        {gettext, "languages = [\"en\"]", "expected languages that English is translated into"},
        {gettext, "languages = [\"../de\"]", "expected names of languages"},
        {gettext, "languages = [\"..\"]", "expected names of languages"},
        {german, "direction = \"backwards\"", "one of from-english, to-english"},
        {german, "temperature = 0", "expected 0.1 to 1000"},
        {german, "temperature = 1001", "expected a number from 0 to 1000"},
        {german, "bucketing = 1", "expected true or false"},
        {german, "validation = 0.1", "one pair in 50 is kept for validation"},
        {german, "target_path = \"x\"", "expected no such key, as it is for kind = \"pairs\""},
        {pairs,
         "languages = [\"de\", \"fr\"]\ntarget_path = \"y\"",
         "expected one language beside it, found 2"},
        {translation, "[data]\nkind = \"pairs\"\nlanguages = [\"de\"]", "data.path is missing"},
        {translation,
         "[data]\nkind = \"text\"\npath = \"x\"",
         "expected gettext, pairs or synthetic"},
        {gpt, "[data]\nkind = \"gettext\"\nlanguages = [\"de\"]", "expected text, tokens or"},
        {mlp, "[data]\nkind = \"gettext\"\nlanguages = [\"de\"]", "expected data of real numbers"},
        {gpt, "[data]\nlanguages = [\"de\"]", "as it is for texts with translations"},
        {mlp, "[data]\ndirection = \"both\"", "as it is for texts with translations"},
    };
    expect_refused(cases);
}

TEST(ParseScenario, RefusesValidationOnNothing) {
    const std::vector<Refusal> cases{
        {gpt, "[training]\nvalidate_every = 5", "validate_every = 5, expected 0, as there is"},
        {gpt, "[training]\nvalidate_every = -1", "validate_every = -1, expected a whole number"},
        {gpt, "[training]\nvalidation_batches = 0", "validation_batches = 0, expected a whole"},
        {gpt, "[data]\nvalidation = 1", "data.validation = 1, expected a path, or a number"},
        {gpt, "[data]\nvalidation = 1.5", "data.validation = 1.5, expected a number from 0 to 1"},
        {gpt, "[data]\nvalidation = true", "data.validation = true, expected a number"},
        {gpt, "[data]\nvalidation = \"\"", "expected a path, or a share of the data"},
        {mlp, "[data]\nvalidation = \"x\"", "expected a share of the data"},
    };
    expect_refused(cases);
    EXPECT_EQ(refusal(with(gpt, "[training]\nvalidate_every = 5")).place(),
              "/home/u/scenarios/s.toml:8:18");
}

TEST(ParseScenario, RefusesTranslationsOfOtherModels) {
    const std::vector<Refusal> cases{
        {gpt, "[training]\ntranslate = 5", "translate = 5, expected 0, as only a model of kind"},
        {gpt, "[training]\ntranslate = -1", "translate = -1, expected a whole number from 0"},
        {gpt, "[training]\nbeam = 0", "beam = 0, expected a whole number from 1 to 64"},
    };
    expect_refused(cases);
}

TEST(ParseScenario, RefusesRatesAndLimitsThatAreNone) {
    const std::vector<Refusal> cases{
        {gpt, "[training]\nclip_norm = -1", "training.clip_norm = -1, expected a number from 0"},
        {gpt, "[training]\nclip_norm = nan", "training.clip_norm = nan, expected a number"},
        {gpt, "[training]\nwarmup_steps = -1", "warmup_steps = -1, expected a whole number"},
        {gpt, "[training]\nwarmup_steps = 0.5", "warmup_steps = 0.5, expected a whole number"},
        {gpt,
         "[training]\nlearning_rate_schedule = \"steps\"",
         "expected one of constant, linear, cosine, step"},
        {gpt,
         "[training]\nlearning_rate_schedule = \"step\"",
         "learning_rate_milestones is missing"},
        {gpt,
         "[training]\nlearning_rate_schedule = \"step\"\nlearning_rate_milestones = [9, 3]",
         "learning_rate_milestones = [9, 3], expected ascending steps"},
        {gpt,
         "[training]\nlearning_rate_milestones = [3]",
         "learning_rate_milestones = [3], expected no value: only the schedule step"},
        {gpt,
         "[training]\nlearning_rate_factor = 0.5",
         "expected no value: only the schedule step"},
        {gpt,
         "[training]\nlearning_rate_schedule = \"step\"\nlearning_rate_milestones = [3]\n"
         "final_learning_rate = 1e-5",
         "training.final_learning_rate = 1e-05, expected 0"},
        {gpt,
         "[training]\nfinal_learning_rate = 1e-5",
         "training.final_learning_rate = 1e-05, expected 0"},
    };
    expect_refused(cases);
    EXPECT_EQ(refusal(with(gpt, "[training]\nclip_norm = -1")).place(),
              "/home/u/scenarios/s.toml:8:13");
}

TEST(ParseScenario, RefusesSettingsThatTheOptimizerHasNot) {
    const std::vector<Refusal> cases{
        {gpt,
         "[training]\nmomentum = 0.9",
         "training.momentum = 0.9, expected no value: the optimizer adamw has no such setting"},
        {gpt, "[training]\nrmsprop_decay = 0.9", "the optimizer adamw has no such setting"},
        {gpt,
         "[training]\noptimizer = \"momentum\"\nepsilon = 1",
         "the optimizer momentum has no such setting"},
        {gpt,
         "[training]\noptimizer = \"momentum\"\nmomentum = 1",
         "training.momentum = 1, expected a number from 0 up to, but not, 1"},
        {gpt, "[training]\nbetas = [0.9]", "expected two numbers from 0 up to, but not, 1"},
        {gpt, "[training]\nbetas = [0.9, 1]", "expected two numbers from 0 up to, but not, 1"},
        {gpt, "[training]\nbetas = [-0.1, 0.9]", "training.betas"},
        {gpt, "[training]\nweight_decay_of = \"biases\"", "training.weight_decay_of"},
        {gpt,
         "[training]\noptimizer = \"sgd\"\nbetas = [0.9, 0.95]",
         "the optimizer sgd has no such setting"},
        {gpt, "[training]\naverage_decay = 1", "expected a number from 0 up to, but not, 1"},
        {gpt, "[training]\nweight_decay = -1", "training.weight_decay = -1, expected a number"},
    };
    expect_refused(cases);
    EXPECT_EQ(refusal(with(gpt, "[training]\nmomentum = 0.9")).hint(),
              "leave the key out, or set optimizer = \"momentum\" or \"rmsprop-momentum\"");
}

TEST(ParseScenario, TextNeedsAVocabularyOfAllBytes) {
    const Error error =
        refusal(with(gpt, "vocabulary = 255\n[data]\nkind = \"text\"\npath = \"x\""));
    EXPECT_NE(error.text().find("at least 256"), std::string::npos) << error.text();
}

TEST(ParseScenario, RefusesMoreStagesThanDevicesNamingBoth) {
    const Error error = refusal(with(gpt, "[pipeline]\nstages = 4\n[cluster]\ncount = 2"));
    EXPECT_EQ(error.text(), "cluster.count = 2, expected at least the 4 of pipeline.stages");
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:10:9");
}

TEST(ParseScenario, RefusesMoreStagesOfReplicasThanDevices) {
    const Error error =
        refusal(with(gpt, "[pipeline]\nstages = 2\ndata_parallel = 2\n[cluster]\ncount = 3"));
    EXPECT_EQ(error.text(),
              "cluster.count = 3, expected at least 4, for the 2 stages of 2 replicas");
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

TEST(ParseScenario, NamesTheTextThatHasNoClosingQuote) {
    const auto told = [](const std::string& text) {
        const Error error = refusal(text);
        return std::string(error.what()).substr(error.place().size() - 3);
    };
    const std::string open = ":8: the text that begins here has no closing quote\nhint: ";
    EXPECT_EQ(told("[model]\nkind = \"gpt\nlayers = 2\n"), "2" + open + "kind = \"gpt\"");
    EXPECT_EQ(told("[model]\n  kind='gpt"), "2" + open + "write ' where the text ends");
    EXPECT_EQ(told("[model]\nkind = \"a\\\nname = \"b\"\n"), "2" + open + "kind = \"a\\\"");
    EXPECT_EQ(told("[model]\nkind = \"\"\"gpt\nlayers = 2\n"),
              "2" + open + "write \"\"\" where the text ends");
    EXPECT_EQ(refusal("[model\nkind = \"gpt\n").text().find("closing quote"), std::string::npos);
    EXPECT_NO_THROW(parse(with(gpt, "[data]\nkind = \"text\"\npath = \"\"\"a\"\"\"\"\"")));
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

}  // namespace scenario_refusal_test
}  // namespace pipetwin
