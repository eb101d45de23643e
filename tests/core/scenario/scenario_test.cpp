// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "tests/core/scenario/scenario_texts.h"
#include "tests/support/code_blocks.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace scenario_test {

using testing::error_of;
using testing::full;
using testing::gpt;
using testing::layers_text;
using testing::mlp;
using testing::parse;
using testing::translation;
using testing::with;

TEST(ParseScenario, ReadsEveryKey) {
    const Scenario s = parse(full);
    EXPECT_EQ(s.model.kind, ModelKind::Gpt);
    EXPECT_EQ(s.model.gpt,
              (GptSizes{.layers = 4,
                        .d_model = 32,
                        .heads = 4,
                        .context = 16,
                        .vocabulary = 300,
                        .feed_forward = 48,
                        .tied = true,
                        .dropout = 0.125}));
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(s.data.path, "/home/u/texts/a b");
    EXPECT_EQ(s.training.batch, 33);
    EXPECT_EQ(s.training.steps, 7);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::RmsProp);
    EXPECT_EQ(s.training.learning_rate, 1e-3);
    EXPECT_EQ(s.training.learning_rate_schedule, RateSchedule::Cosine);
    EXPECT_EQ(s.training.warmup_steps, 3);
    EXPECT_EQ(s.training.final_learning_rate, 1e-5);
    EXPECT_EQ(s.training.clip_norm, 0.5);
    EXPECT_EQ(s.training.precision, Precision::Fp64);
    EXPECT_EQ(s.training.seed, 42U);
    EXPECT_EQ(s.data.validation_path, "/home/u/texts/c");
    EXPECT_EQ(s.training.validate_every, 3);
    EXPECT_EQ(s.training.validation_batches, 5);
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
    EXPECT_EQ(s.pipeline.shard, Shard::Optimizer);
    EXPECT_EQ(s.cluster.device, "h100-sxm");
    EXPECT_EQ(s.cluster.scale_costs, ScaleCosts::Cautious);
    EXPECT_EQ(s.cluster.speeds, (std::vector<double>{1, 0.5}));
    EXPECT_EQ(s.cluster.placement, Placement::RoundRobin);
    EXPECT_EQ(s.cluster.link, "nvlink-4");
    EXPECT_EQ(s.cluster.node_link, "infiniband-ndr");
    EXPECT_EQ(s.cluster.count, 6);
    EXPECT_EQ(s.cluster.per_node, 4);
    EXPECT_EQ(s.cluster.nvlink_domain, 8);
    EXPECT_EQ(s.cluster.nics_per_node, 2);
    EXPECT_EQ(s.cluster.oversubscription, 1.5);
    EXPECT_EQ(s.cluster.nodes_per_leaf, 4);
    EXPECT_EQ(s.cluster.link_gbps, 400.5);
    EXPECT_EQ(s.cluster.node_link_gbps, 100);
    EXPECT_EQ(s.cluster.link_latency_us, 0.5);
    EXPECT_EQ(s.cluster.node_link_latency_us, 2);
    EXPECT_EQ(s.cluster.host_link, "pcie-4");
    EXPECT_EQ(s.cluster.host_link_gbps, 128);
    EXPECT_EQ(s.cluster.host_link_latency_us, 7);
    EXPECT_EQ(s.cluster.host_memory, Bytes{250'000'000'000});
    EXPECT_EQ(s.pipeline.offload, Offload::Stash);
    EXPECT_EQ(s.cluster.memory_limit, Bytes{4LL << 30});
    EXPECT_EQ(s.cluster.transfer, TransferMode::HandOver);
    EXPECT_EQ(s.cluster.cores, 3);
    EXPECT_EQ(s.cluster.interference, 0.25);
    EXPECT_EQ(s.cluster.link_sharing, LinkSharing::Fair);
    EXPECT_EQ(
        s.cluster.shared_links,
        (std::vector<NodeLink>{
            {.devices = {0, 1}, .bytes_per_second = 12e9, .kind = SharedLinkKind::Host},
            {.devices = {0, 1, 2}, .bytes_per_second = 32e9, .kind = SharedLinkKind::Memory}}));
    EXPECT_EQ(s.cluster.gpu_shares, GpuShares::Streams);
    EXPECT_EQ(s.cluster.link_ctas, 4);
}

TEST(ParseScenario, FillsInTheDefaults) {
    const Scenario s = parse(gpt);
    EXPECT_EQ(s.model.gpt.vocabulary, 256);
    EXPECT_EQ(s.model.gpt.feed_forward, 128);
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(s.training.batch, 32);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::AdamW);
    EXPECT_EQ(s.training.learning_rate, 3e-4);
    EXPECT_EQ(s.training.learning_rate_schedule, RateSchedule::Constant);
    EXPECT_EQ(s.training.warmup_steps, 0);
    EXPECT_EQ(s.training.clip_norm, 0);
    EXPECT_FALSE(s.model.gpt.tied);
    EXPECT_EQ(s.model.gpt.dropout, 0);
    EXPECT_EQ(s.pipeline.stages, 1);
    EXPECT_EQ(s.pipeline.micro_batches, 1);
    EXPECT_EQ(s.pipeline.schedule, "gpipe");
    EXPECT_TRUE(s.pipeline.partition.is_auto());
    EXPECT_TRUE(s.pipeline.channel_capacity.is_auto());
    EXPECT_EQ(s.cluster.backend, Backend::Cpu);
    EXPECT_EQ(s.cluster.memory_limit, std::nullopt);
    EXPECT_EQ(parse(mlp).data.kind, DataKind::Synthetic);
}

TEST(ParseScenario, ReadsTheRecipesOfLanguageModelsAndPrintsWhatIsWritten) {
    const Scenario s = parse(with(gpt, R"([training]
betas = [0.9, 0.95]
weight_decay = 0.1
weight_decay_of = "weights"
)"));
    EXPECT_EQ(s.training.betas, (std::vector{0.9, 0.95}));
    EXPECT_EQ(s.training.weight_decay_of, WeightDecayOf::Weights);
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").training, s.training);
    EXPECT_EQ(print_scenario(parse(gpt)).find("betas"), std::string::npos);
    EXPECT_EQ(print_scenario(parse(gpt)).find("weight_decay_of"), std::string::npos);
}

TEST(ParseScenario, ReadsTheRecipesOfImageModelsAndPrintsWhatIsWritten) {
    const std::string text = with(mlp, R"([training]
optimizer = "rmsprop-momentum"
momentum = 0.8
rmsprop_decay = 0.95
epsilon = 0.5
weight_decay = 4e-5
average_decay = 0.9999
learning_rate_schedule = "step"
learning_rate_milestones = [60, 80]
learning_rate_factor = 0.2
accuracy = false
)");
    const Scenario s = parse(text);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::RmsPropMomentum);
    EXPECT_EQ(s.training.momentum, 0.8);
    EXPECT_EQ(s.training.rmsprop_decay, 0.95);
    EXPECT_EQ(s.training.epsilon, 0.5);
    EXPECT_EQ(s.training.weight_decay, 4e-5);
    EXPECT_EQ(s.training.average_decay, 0.9999);
    EXPECT_EQ(s.training.learning_rate_schedule, RateSchedule::Step);
    EXPECT_EQ(s.training.learning_rate_milestones, (std::vector<int>{60, 80}));
    EXPECT_EQ(s.training.learning_rate_factor, 0.2);
    EXPECT_EQ(s.training.accuracy, false);
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").training, s.training);
    const Scenario plain = parse(mlp);
    EXPECT_EQ(plain.training.momentum, std::nullopt);
    EXPECT_EQ(plain.training.weight_decay, std::nullopt);
    EXPECT_EQ(plain.training.average_decay, 0);
    EXPECT_EQ(plain.training.accuracy, std::nullopt);
    EXPECT_EQ(print_scenario(plain).find("weight_decay"), std::string::npos);
    EXPECT_EQ(parse_scenario(print_scenario(plain), "x.toml").training, plain.training);
}

TEST(ParseScenario, ValidationIsAPathOrAShareAndBothComeBack) {
    const Scenario share = parse(with(gpt, "[data]\nvalidation = 0.25"));
    EXPECT_EQ(share.data.validation_share, 0.25);
    EXPECT_EQ(parse_scenario(print_scenario(share), "x.toml").data, share.data);
    const Scenario path =
        parse(with(gpt, "[data]\nkind = \"text\"\npath = \"a\"\nvalidation = \"b\""));
    EXPECT_EQ(path.data.validation_path, "/home/u/scenarios/b");
    EXPECT_EQ(parse_scenario(print_scenario(path), "x.toml").data, path.data);
}

TEST(ParseScenario, RecomputesAlwaysByDefaultInGpipeAndElsewhereNot) {
    EXPECT_EQ(parse(gpt).pipeline.recompute, Recompute::Always);
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nschedule = \"1f1b\"")).pipeline.recompute,
              Recompute::None);
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nrecompute = \"none\"")).pipeline.recompute,
              Recompute::None);
    const Scenario planned = parse(with(gpt, "[pipeline]\nrecompute = \"auto\""));
    EXPECT_TRUE(planned.pipeline.recompute.is_auto());
}

TEST(ParseScenario, RecomputesBeforeTheGradientByDefaultInGpipeAndElsewhereNot) {
    EXPECT_EQ(parse(gpt).pipeline.recompute_timing, RecomputeTiming::Eager);
    const std::string other = with(gpt, "[pipeline]\nschedule = \"1f1b\"");
    EXPECT_EQ(parse(other).pipeline.recompute_timing, RecomputeTiming::Lazy);
    EXPECT_EQ(settle(parse(other)).pipeline.recompute_timing, RecomputeTiming::Lazy);
    const Override eager{.key = "pipeline.recompute_timing", .value = "eager"};
    EXPECT_EQ(parse(other, {eager}).pipeline.recompute_timing, RecomputeTiming::Eager);
    EXPECT_EQ(settle(parse(other, {eager})).pipeline.recompute_timing, RecomputeTiming::Eager);
}

TEST(ParseScenario, AScheduleThatIsPlannedHasItsOwnTimingOfRecompute) {
    Scenario open = parse(with(gpt, "[pipeline]\nschedule = \"auto\""));
    EXPECT_TRUE(open.pipeline.recompute_timing.is_auto());
    for (const auto& [schedule, timing] :
         {std::pair("gpipe", RecomputeTiming::Eager), {"zb-h1", RecomputeTiming::Lazy}}) {
        open.pipeline.schedule = schedule;
        EXPECT_EQ(settle(open).pipeline.recompute_timing, timing);
    }
    open.pipeline.recompute_timing = RecomputeTiming::Eager;
    EXPECT_EQ(settle(open).pipeline.recompute_timing, RecomputeTiming::Eager);
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

TEST(ParseScenario, TakesPyTorchsNamesOfSchedules) {
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nschedule = \"GPipe\"")).pipeline.schedule, "gpipe");
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

TEST(ParseScenario, ReadsEveryExampleOfItsDocumentation) {
    const std::vector<std::string> blocks = testing::code_blocks("docs/scenario.md", "toml");
    EXPECT_EQ(blocks.size(), 10U);
    for (const std::string& block : blocks) {
        EXPECT_NO_THROW(parse(block)) << block;
    }
}

/// The constants of tensorflow/tpu's models/official/amoeba_net.
TEST(ParseScenario, ReadsGPipesRecipeForAmoebaNetInItsDocumentation) {
    const std::vector<std::string> blocks = testing::code_blocks("docs/scenario.md", "toml");
    const auto recipe = std::ranges::find_if(blocks, [](const std::string& block) {
        return block.find("auxiliary_head") != std::string::npos;
    });
    ASSERT_NE(recipe, blocks.end());
    const Scenario s = parse(*recipe);
    EXPECT_EQ(s.model.kind, ModelKind::AmoebaNetD);
    EXPECT_TRUE(s.model.amoebanet.auxiliary_head);
    EXPECT_DOUBLE_EQ(1 - s.model.amoebanet.drop_path, 0.7);
    EXPECT_EQ(s.training.optimizer, OptimizerKind::RmsPropMomentum);
    EXPECT_EQ(s.training.rmsprop_decay, 0.9);
    EXPECT_EQ(s.training.momentum, 0.9);
    EXPECT_EQ(s.training.epsilon, 1.0);
    EXPECT_EQ(s.training.weight_decay, 4e-5);
    EXPECT_EQ(s.training.clip_norm, 10);
    EXPECT_EQ(s.training.average_decay, 0.9999);
    EXPECT_EQ(s.training.learning_rate, 0.015);
    const Model model = scenario_model(s);
    EXPECT_EQ(model.layer_count(), 18 + 7);
    const LayerSpec& loss = model.layer(model.layer_count() - 1).spec.inner.back();
    EXPECT_EQ(loss.label_smoothing, 0.1);
    EXPECT_EQ(loss.auxiliary_weight, 0.4);
    std::int64_t parameters = 0;
    for (int unit = 0; unit < model.layer_count(); ++unit) {
        parameters += model.layer(unit).parameter_count;
    }
    EXPECT_EQ(parameters, 81'140'766 + 644'400);
}

// Touvron et al., arXiv 2307.09288, section 2.2 and table 1.
TEST(ParseScenario, ReadsTheRecipeOfLlama2InItsDocumentation) {
    const std::vector<std::string> blocks = testing::code_blocks("docs/scenario.md", "toml");
    const auto recipe = std::ranges::find_if(
        blocks, [](const std::string& block) { return block.find("betas") != std::string::npos; });
    ASSERT_NE(recipe, blocks.end());
    const Scenario s = parse(*recipe);
    EXPECT_EQ(s.training.batch * s.model.tokens_per_sample(), 4 * 1024 * 1024);
    EXPECT_EQ(s.training.betas, (std::vector{0.9, 0.95}));
    EXPECT_EQ(s.training.epsilon, 1e-5);
    EXPECT_EQ(s.training.learning_rate, 3e-4);
    EXPECT_EQ(s.training.learning_rate_schedule, RateSchedule::Cosine);
    EXPECT_EQ(s.training.warmup_steps, 2000);
    EXPECT_DOUBLE_EQ(s.training.final_learning_rate, 0.1 * s.training.learning_rate);
    EXPECT_EQ(s.training.weight_decay, 0.1);
    EXPECT_EQ(s.training.weight_decay_of, WeightDecayOf::Weights);
    EXPECT_EQ(s.training.clip_norm, 1.0);
    const Model model = scenario_model(s);
    std::int64_t parameters = 0;
    for (int unit = 0; unit < model.layer_count(); ++unit) {
        parameters += model.layer(unit).parameter_count;
    }
    EXPECT_EQ(parameters, 6'738'415'616);
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
             "channel_capacity = \"auto\"\nshard = \"auto\"\n"
             "sequence_parallel = \"auto\"\nscatter_boundaries = \"auto\""),
        with(gpt, "[pipeline]\nschedule = \"auto\""),
        with(gpt, "[pipeline]\nschedule = \"auto\"\nrecompute_timing = \"eager\""),
        with(gpt, "[pipeline]\nschedule = \"zb-h1\"\nrecompute_timing = \"eager\""),
        with(gpt, "[data]\nkind = \"synthetic\""),
        with(mlp, "[data]\nkind = \"mnist\"\npath = \"a\\\"\\\\\\u0007\\u00e4\""),
        with(mlp,
             "[data]\nkind = \"mnist\"\npath = \"a\"\nmean = [0.286]\ndeviation = [0.353]\n"
             "noise = 0.5\npad_and_crop = 4\nmirror = true"),
        with(mlp, "[training]\nlearning_rate = 1e-300\nseed = 9007199254740992"),
        "[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n",
        "[model]\nkind = \"llama\"\nlayers = 2\nd_model = 16\nheads = 4\ncontext = 8\n"
        "feed_forward = 24\n",
        "[model]\nkind = \"llama\"\nlayers = 2\nd_model = 16\nheads = 4\nkey_value_heads = 2\n"
        "head_size = 6\ncontext = 8\nvocabulary = 300\nfeed_forward = 24\ntied = true\n"
        "epsilon = 1e-6\nrotary_base = 500000\nrotary_factor = 32\nrotary_context = 4\n"
        "rotary_low_frequency = 2\nrotary_high_frequency = 8\n",
        "[model]\nkind = \"layers\"\nlayer = [{type = \"embedding\", outputs = 8, context = 4, "
        "learned_positions = false}, {type = \"rms_norm\", epsilon = 1e-6}, {type = "
        "\"attention\", heads = 4, key_value_heads = 2, head_size = 6, bias = false, rotary_base = "
        "10000, rotary_factor = 2.5, rotary_context = 64}, {type = \"linear\", outputs = 8}, {type "
        "= \"swiglu\"}, {type = \"cross_entropy\"}]\n",
        "[model]\nkind = \"layers\"\nlayer = [{type = \"embedding\", outputs = 8, context = 4}, "
        "{type = \"attention\", heads = 2}, {type = \"cross_entropy\"}]\n"};
    for (const std::string& text : texts) {
        const Scenario scenario = parse(text);
        const std::string printed = print_scenario(scenario);
        EXPECT_EQ(parse(printed), scenario) << printed;
        EXPECT_EQ(print_scenario(parse(printed)), printed);
    }
}

TEST(ParseScenario, ReadsWhatBecomesOfImages) {
    const Scenario s = parse(with(mlp,
                                  "[data]\nkind = \"cifar10\"\npath = \"a\"\n"
                                  "mean = [0.5, 0, -1]\ndeviation = [1, 2, 0.25]\n"
                                  "noise = 0.5\npad_and_crop = 4\nmirror = true"));
    EXPECT_EQ(s.data.kind, DataKind::Cifar10);
    EXPECT_EQ(s.data.path, "/home/u/scenarios/a");
    EXPECT_THAT(s.data.changes.mean, ::testing::ElementsAre(0.5, 0, -1));
    EXPECT_THAT(s.data.changes.deviation, ::testing::ElementsAre(1, 2, 0.25));
    EXPECT_EQ(s.data.changes.noise, 0.5);
    EXPECT_EQ(s.data.changes.pad_and_crop, 4);
    EXPECT_TRUE(s.data.changes.mirror);
    EXPECT_EQ(parse(mlp).data.changes, Scenario::ImageChanges{});
    for (const DataKind kind :
         {DataKind::Images, DataKind::Segmentation, DataKind::Silhouettes, DataKind::Mnist}) {
        const std::string text =
            with(mlp, fmt::format("[data]\nkind = \"{}\"\npath = \"a\"", to_string(kind)));
        EXPECT_EQ(parse(text).data.kind, kind);
    }
}

TEST(ParseScenario, ReadsTextsWithTranslations) {
    const Scenario s = parse(with(translation,
                                  "[data]\nkind = \"gettext\"\nlanguages = [\"de\", \"pt_BR\"]\n"
                                  "[training]\nvalidate_every = 5"));
    EXPECT_EQ(s.data.kind, DataKind::Gettext);
    EXPECT_EQ(s.data.path, "/usr/share/locale");
    EXPECT_THAT(s.data.pairs.languages, ::testing::ElementsAre("de", "pt_BR"));
    EXPECT_EQ(s.data.pairs.direction, PairDirection::FromEnglish);
    EXPECT_EQ(s.data.pairs.temperature, 5);
    EXPECT_FALSE(s.data.pairs.bucketing);
    EXPECT_TRUE(s.data.has_validation());
    const Scenario own = parse(with(translation,
                                    "[data]\nkind = \"pairs\"\npath = \"a.en\"\n"
                                    "target_path = \"a.de\"\nlanguages = [\"de\"]\n"
                                    "direction = \"both\"\ntemperature = 1.5\nbucketing = true"));
    EXPECT_EQ(own.data.kind, DataKind::Pairs);
    EXPECT_EQ(own.data.path, "/home/u/scenarios/a.en");
    EXPECT_EQ(own.data.pairs.target_path, "/home/u/scenarios/a.de");
    EXPECT_EQ(own.data.pairs.direction, PairDirection::Both);
    EXPECT_EQ(own.data.pairs.temperature, 1.5);
    EXPECT_TRUE(own.data.pairs.bucketing);
    EXPECT_FALSE(own.data.pairs.has_pieces());
    const Scenario folders = parse(with(translation,
                                        "[data]\nkind = \"gettext\"\npath = [\"a\", \"/b\"]\n"
                                        "languages = [\"de\"]\npieces = 4000"));
    EXPECT_EQ(folders.data.path, "/home/u/scenarios/a");
    EXPECT_THAT(folders.data.pairs.more_paths, ::testing::ElementsAre("/b"));
    EXPECT_EQ(folders.data.pairs.piece_count, 4000);
    const Scenario of_model = parse(with(
        translation, "[data]\nkind = \"gettext\"\nlanguages = [\"de\"]\npieces = \"a.model\""));
    EXPECT_EQ(of_model.data.pairs.pieces_path, "/home/u/scenarios/a.model");
    for (const Scenario& each : {s, own, folders, of_model}) {
        EXPECT_EQ(parse_scenario(print_scenario(each), "x.toml").data, each.data);
    }
    EXPECT_EQ(parse(translation).data.kind, DataKind::Synthetic);
}

/// The kinds with files for tests validate on those where nothing else is named.
TEST(ParseScenario, ValidatesOnFilesForTests) {
    for (const std::string_view kind : {"mnist", "cifar10", "silhouettes"}) {
        const Scenario s = parse(
            with(mlp,
                 fmt::format("[data]\nkind = \"{}\"\npath = \"a\"\n[training]\nvalidate_every = 5",
                             kind)));
        EXPECT_TRUE(s.data.has_validation());
        EXPECT_EQ(s.data.validation_share, 0);
    }
}

TEST(ParseScenario, ReadsWhatReplicasShare) {
    const auto shard_of = [](std::string_view lines) {
        const Scenario s = parse(with(gpt, fmt::format("[pipeline]\n{}", lines)));
        EXPECT_EQ(parse(print_scenario(s)), s) << lines;
        return s.pipeline.shard;
    };
    EXPECT_EQ(parse(gpt).pipeline.shard, Shard::None);
    EXPECT_EQ(shard_of("shard = \"none\""), Shard::None);
    EXPECT_EQ(shard_of("shard = \"optimizer\""), Shard::Optimizer);
    EXPECT_EQ(shard_of("shard = \"gradients\""), Shard::Gradients);
    EXPECT_EQ(shard_of("shard = \"weights\""), Shard::Weights);
    // The old word, alone and beside the new one.
    EXPECT_EQ(shard_of("shard_optimizer = true"), Shard::Optimizer);
    EXPECT_EQ(shard_of("shard_optimizer = false"), Shard::None);
    EXPECT_EQ(shard_of("shard_optimizer = true\nshard = \"optimizer\""), Shard::Optimizer);
    EXPECT_EQ(shard_of("shard_optimizer = false\nshard = \"none\""), Shard::None);
}

TEST(ParseScenario, LeavesOpenWhatReplicasAndDevicesShare) {
    const Scenario s = parse(with(gpt,
                                  "[pipeline]\nshard = \"auto\"\n"
                                  "sequence_parallel = \"auto\"\nscatter_boundaries = \"auto\""));
    EXPECT_TRUE(s.pipeline.shard.is_auto());
    EXPECT_TRUE(s.pipeline.sequence_parallel.is_auto());
    EXPECT_TRUE(s.pipeline.scatter_boundaries.is_auto());
    // What is not written has its default, but for a search.
    EXPECT_FALSE(parse(gpt).pipeline.shard.is_auto());
    EXPECT_TRUE(parse_scenario(gpt, "x.toml", {}, Unwritten::Auto).pipeline.shard.is_auto());
    // What is said later takes the place of "auto".
    const Scenario over =
        parse_scenario(gpt, "x.toml", {{"pipeline.sequence_parallel", "true"}}, Unwritten::Auto);
    EXPECT_EQ(over.pipeline.sequence_parallel, true);
    const Scenario old_word =
        parse_scenario(gpt, "x.toml", {{"pipeline.shard_optimizer", "true"}}, Unwritten::Auto);
    EXPECT_FALSE(old_word.pipeline.shard.is_auto());
    EXPECT_EQ(old_word.pipeline.shard, Shard::Optimizer);
}

TEST(ParseScenario, RefusesAnOldWordThatContradictsTheNewOne) {
    for (const auto& [old_word, new_word] : {std::pair("true", "none"),
                                             {"true", "auto"},
                                             {"true", "gradients"},
                                             {"true", "weights"},
                                             {"false", "optimizer"},
                                             {"false", "weights"}}) {
        const Error error = error_of([&] {
            parse(
                with(gpt,
                     fmt::format(
                         "[pipeline]\nshard_optimizer = {}\nshard = \"{}\"", old_word, new_word)));
        });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(std::string(error.what()).find("pipeline.shard_optimizer"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find(fmt::format("\"{}\"", new_word)),
                  std::string::npos)
            << error.what();
    }
}

TEST(ParseScenario, ReadsRecomputeOfPartsOfAStage) {
    for (const auto& [word, mode] :
         {std::pair("selective", LayerRecompute::Selective), {"block", LayerRecompute::Block}}) {
        const Scenario s =
            parse(with(gpt, fmt::format("[pipeline]\nstages = 2\nrecompute = \"{}\"", word)));
        EXPECT_EQ(s.pipeline.layer_recompute, mode);
        EXPECT_EQ(s.pipeline.recompute, Recompute::None);
        EXPECT_EQ(parse(print_scenario(s)), s);
    }
    for (const char* word : {"none", "always", "except-last"}) {
        const Scenario s = parse(with(gpt, fmt::format("[pipeline]\nrecompute = \"{}\"", word)));
        EXPECT_EQ(s.pipeline.layer_recompute, LayerRecompute::None);
    }
    // What is said later takes the place of a file's word.
    const Scenario over =
        parse(with(gpt, "[pipeline]\nrecompute = \"block\""), {{"pipeline.recompute", "always"}});
    EXPECT_EQ(over.pipeline.layer_recompute, LayerRecompute::None);
    EXPECT_EQ(over.pipeline.recompute, Recompute::Always);
}

TEST(ParseScenario, ReadsHowManyBlocksAreComputedAgainTogether) {
    EXPECT_EQ(parse(gpt).pipeline.recompute_blocks, 1);
    const Scenario s = parse(with(gpt, "[pipeline]\nrecompute = \"block\"\nrecompute_blocks = 3"));
    EXPECT_EQ(s.pipeline.recompute_blocks, 3);
    EXPECT_EQ(settle(s).pipeline.recompute_blocks, 3);
    EXPECT_EQ(parse(print_scenario(s)), s);
    // The default goes with everything.
    EXPECT_NO_THROW(parse(with(gpt, "[pipeline]\nrecompute_blocks = 1")));
    const Scenario early =
        parse(with(gpt, "[pipeline]\nrecompute = \"block\"\nrecompute_early_stop = true"));
    EXPECT_TRUE(early.pipeline.recompute_early_stop);
    EXPECT_EQ(parse(print_scenario(early)), early);
    const Scenario first =
        parse(with(gpt, "[pipeline]\nrecompute = \"block\"\nrecompute_only = 2"));
    EXPECT_EQ(first.pipeline.recompute_only, 2);
    EXPECT_EQ(parse(print_scenario(first)), first);
    EXPECT_EQ(parse(gpt).pipeline.recompute_only, 0);
}

TEST(ParseScenario, ReadsHowDevicesDivideLayersAndGradients) {
    const Scenario none = parse(gpt);
    EXPECT_EQ(none.pipeline.prefetch, 1);
    EXPECT_EQ(none.pipeline.sequence_parallel, false);
    EXPECT_EQ(none.pipeline.scatter_boundaries, false);
    EXPECT_TRUE(none.pipeline.tensor_overlap.is_auto());
    EXPECT_NO_THROW(settle(none));  // every plan finds it
    EXPECT_EQ(print_scenario(none).find("tensor_overlap"), std::string::npos);
    EXPECT_EQ(none.training.gradients, std::nullopt);
    EXPECT_EQ(print_scenario(none).find("gradients"), std::string::npos);
    EXPECT_EQ(none.training.optimizer_state_bytes, std::nullopt);
    EXPECT_EQ(none.training.accumulation, Accumulation::Fused);
    const Scenario s = parse(with(gpt,
                                  "[training]\ngradients = \"same\"\noptimizer_state_bytes = 6\n"
                                  "accumulation = \"separate\"\n"
                                  "[pipeline]\nshard = \"weights\"\nprefetch = 0\n"
                                  "data_parallel = 2\ntensor_parallel = 2\n"
                                  "sequence_parallel = true\nscatter_boundaries = true\n"
                                  "tensor_overlap = false"));
    EXPECT_EQ(s.pipeline.tensor_overlap, false);
    EXPECT_TRUE(parse(with(gpt, "[pipeline]\ntensor_overlap = \"auto\""))
                    .pipeline.tensor_overlap.is_auto());
    EXPECT_EQ(s.pipeline.prefetch, 0);
    EXPECT_EQ(s.pipeline.sequence_parallel, true);
    EXPECT_EQ(s.pipeline.scatter_boundaries, true);
    EXPECT_EQ(s.training.gradients, GradientType::Same);
    EXPECT_EQ(s.training.optimizer_state_bytes, 6);
    EXPECT_EQ(s.training.accumulation, Accumulation::Separate);
    EXPECT_EQ(parse(print_scenario(s)), s);
    EXPECT_THROW(parse(with(gpt, "[pipeline]\nprefetch = -1")), Error);
    EXPECT_THROW(parse(with(gpt, "[pipeline]\nshard = \"all\"")), Error);
    EXPECT_THROW(parse(with(gpt, "[training]\ngradients = \"bf16\"")), Error);
    EXPECT_THROW(parse(with(gpt, "[training]\noptimizer_state_bytes = \"bf16\"")), Error);
    EXPECT_THROW(parse(with(gpt, "[training]\noptimizer_state_bytes = -1")), Error);
}

TEST(ParseScenario, ReadsAModeOfRecomputeForEachPiece) {
    const Scenario s = parse(with(gpt,
                                  "[pipeline]\nstages = 2\nchunks = 2\nschedule = \"looped-bfs\"\n"
                                  "recompute = [\"always\", \"none\", \"except-last\", \"none\"]"));
    const RecomputeRules rules(
        {Recompute::Always, Recompute::None, Recompute::ExceptLast, Recompute::None});
    EXPECT_EQ(s.pipeline.recompute, rules);
    EXPECT_EQ(parse(print_scenario(s)), s);
    EXPECT_EQ(
        parse(gpt, {{"pipeline.stages", "2"}, {"pipeline.recompute", "[\"always\", \"none\"]"}})
            .pipeline.recompute,
        RecomputeRules({Recompute::Always, Recompute::None}));
}

TEST(ParseScenario, AListOfOneModeOfRecomputeIsTheWord) {
    const Scenario list =
        parse(with(gpt, "[pipeline]\nstages = 2\nrecompute = [\"always\", \"always\"]"));
    EXPECT_EQ(list, parse(with(gpt, "[pipeline]\nstages = 2\nrecompute = \"always\"")));
}

TEST(ParseScenario, AListOfRecomputeMayWaitForItsStages) {
    const Scenario s =
        parse(with(gpt, "[pipeline]\nstages = \"auto\"\nrecompute = [\"always\", \"none\"]"));
    EXPECT_EQ(s.pipeline.recompute, RecomputeRules({Recompute::Always, Recompute::None}));
}

TEST(PrintScenario, WritesInterferencePairByPair) {
    const Scenario scenario = parse(with(gpt,
                                         "[pipeline]\nstages = 2\n[cluster]\n"
                                         "interference = [[0, 0.25], [0.5, 0]]"));
    EXPECT_EQ(scenario.cluster.pair_interference,
              (std::vector<std::vector<double>>{{0, 0.25}, {0.5, 0}}));
    EXPECT_EQ(parse_scenario(print_scenario(scenario), "x.toml").cluster, scenario.cluster);
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
    EXPECT_EQ(error_of([&] { read_scenario("/dev/zero"); }).text(),
              "a device, expected a regular file");
}

TEST(Settle, PassesWhatIsPlannedHere) {
    EXPECT_NO_THROW(
        settle(parse(with(gpt, "[pipeline]\npartition = \"auto\"\nchannel_capacity = \"auto\""))));
}

TEST(Settle, NamesEveryOtherAutoAndAValueToSet) {
    const Scenario s = parse(with(gpt,
                                  "[pipeline]\nstages = \"auto\"\nrecompute = \"auto\"\n"
                                  "micro_batches = \"auto\"\n[cluster]\ncount = 2"));
    const Error error = error_of([&] { settle(s); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.text(),
              "\"auto\" has to be planned first for pipeline.stages, pipeline.micro_batches, "
              "pipeline.recompute");
    EXPECT_EQ(error.hint(),
              "'pipetwin plan' finds the best values; or in [pipeline] set stages = 2, "
              "micro_batches = 8, recompute = \"always\"");
    for (const char* key : {"stages",
                            "micro_batches",
                            "schedule",
                            "chunks",
                            "recompute",
                            "recompute_modules",
                            "data_parallel",
                            "tensor_parallel",
                            "context_parallel",
                            "expert_parallel",
                            "expert_tensor_parallel",
                            "shard",
                            "sequence_parallel",
                            "scatter_boundaries"}) {
        const Scenario one = parse(gpt, {{fmt::format("pipeline.{}", key), "auto"}});
        const Error of_one = error_of([&] { settle(one); });
        EXPECT_NE(of_one.text().find(key), std::string::npos);
        const std::size_t value = of_one.hint().find(fmt::format("set {} = ", key));
        ASSERT_NE(value, std::string::npos) << of_one.hint();
        EXPECT_LT(value + fmt::format("set {} = ", key).size(), of_one.hint().size());
    }
}

TEST(Scenario, SaysHowOftenACheckpointIsWrittenInStepsOrInTime) {
    const auto output = [](const std::string& value) {
        const Scenario scenario = parse(std::string(gpt) + "[output]\ncheckpoint_every = " + value);
        EXPECT_EQ(parse(print_scenario(scenario)).output, scenario.output) << value;
        return scenario.output;
    };
    using std::chrono::hours;
    using std::chrono::minutes;
    using std::chrono::seconds;
    const Scenario::OutputPart unsaid = parse(gpt).output;
    EXPECT_EQ(unsaid.checkpoint_every, 0);
    EXPECT_EQ(unsaid.checkpoint_period, minutes(10));
    EXPECT_EQ(output("7").checkpoint_every, 7);
    EXPECT_EQ(output("7").checkpoint_period, Duration{});
    EXPECT_EQ(output("0").checkpoint_period, Duration{});
    EXPECT_EQ(output("\"90 s\"").checkpoint_period, seconds(90));
    EXPECT_EQ(output("\"10min\"").checkpoint_period, minutes(10));
    EXPECT_EQ(output("\"2 h\"").checkpoint_period, hours(2));
}

}  // namespace scenario_test
}  // namespace pipetwin
