// SPDX-License-Identifier: Apache-2.0
#include "core/grid/parallel_grids.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace parallel_grids_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr AxisOrder pipeline_second{
    Axis::Tensor, Axis::Pipeline, Axis::Context, Axis::Expert, Axis::Data};

/// 16 devices, of which experts take 4 x 2 x 2.
constexpr ParallelSizes sixteen{.tensor = 2, .context = 2, .data = 2, .pipeline = 2, .expert = 4};

TEST(ParallelGrids, FoldsExpertsOverTensorAndContext) {
    const ParallelGrids grids = parallel_grids(sixteen);
    EXPECT_EQ(grids.expert.sizes(), (AxisSizes{.expert = 4, .data = 2, .pipeline = 2}));
    EXPECT_EQ(grids.expert.groups(Axis::Expert), grids.dense.groups(Axis::Tensor | Axis::Context));
    EXPECT_EQ(grids.expert.groups(Axis::Pipeline), grids.dense.groups(Axis::Pipeline));
    ParallelSizes cut = sixteen;
    cut.expert_tensor = 2;
    cut.expert = 2;
    EXPECT_EQ(parallel_grids(cut).expert.sizes(),
              (AxisSizes{.tensor = 2, .expert = 2, .data = 2, .pipeline = 2}));
}

/// Published runs with experts: Qwen3-235B on 256 H100, Qwen3-Next on 128, DeepSeek-V3 on 1,024 and
/// 2,048, Mixtral 8x7B on 32 and 64, DeepSeek-V2's first layers on 8.
TEST(ParallelGrids, HaveTheReplicasOfPublishedRuns) {
    struct Run {
        int devices;
        ParallelSizes sizes;
        int data;
        int expert_data;
    };
    const std::vector<Run> runs{
        {256, {.tensor = 2, .pipeline = 8, .expert = 32}, 16, 1},
        {256, {.tensor = 2, .expert = 8}, 128, 32},
        {256, {.tensor = 2, .pipeline = 32, .expert = 8}, 4, 1},
        {256, {.tensor = 4, .pipeline = 8, .expert = 8}, 8, 4},
        {128, {.pipeline = 4, .expert = 32}, 32, 1},
        {1024, {.tensor = 2, .pipeline = 8, .expert = 64}, 64, 2},
        {2048, {.pipeline = 16, .expert = 64}, 128, 2},
        {32, {.pipeline = 4, .expert = 8}, 8, 1},
        {64, {.expert = 8}, 64, 8},
        {8, {.expert = 8}, 8, 1},
        {8, {.pipeline = 2, .expert = 4}, 4, 1},
    };
    for (const Run& run : runs) {
        ParallelSizes sizes = run.sizes;
        sizes.data = data_parallel_of(run.devices, sizes, "");
        EXPECT_EQ(sizes.data, run.data);
        const ParallelGrids grids = parallel_grids(sizes);
        EXPECT_EQ(grids.dense.devices(), run.devices);
        EXPECT_EQ(grids.expert.devices(), run.devices);
        EXPECT_EQ(grids.expert.sizes().data, run.expert_data);
    }
}

/// Every layout of at most `most` devices, in `calls` to `visit`.
template <class Visit>
void for_each_layout(int most, Visit visit) {
    ParallelSizes s;
    for (s.tensor = 1; s.tensor <= most; ++s.tensor) {
        for (s.context = 1; s.tensor * s.context <= most; ++s.context) {
            for (s.data = 1; s.tensor * s.context * s.data <= most; ++s.data) {
                const int stage = s.tensor * s.context * s.data;
                for (s.pipeline = 1; stage * s.pipeline <= most; ++s.pipeline) {
                    for (s.expert_tensor = 1; s.expert_tensor <= stage; ++s.expert_tensor) {
                        for (s.expert = 1; s.expert_tensor * s.expert <= stage; ++s.expert) {
                            visit(s);
                        }
                    }
                }
            }
        }
    }
}

/// Up to 24 devices, in three orders: what fits is what divides and has one set of pipelines.
TEST(ParallelGrids, FitExactlyWhereDegreesDivideAndPipelinesAreTheSame) {
    int fitting = 0;
    for_each_layout(24, [&fitting](const ParallelSizes& s) {
        const int stage = s.tensor * s.context * s.data;
        const bool divides = stage % (s.expert_tensor * s.expert) == 0;
        for (const AxisOrder& order : {pipeline_last, data_last, pipeline_second}) {
            bool expected = divides;
            if (divides) {
                const int replicas = stage / s.expert_tensor / s.expert;
                const DeviceGrid dense({.tensor = s.tensor,
                                        .context = s.context,
                                        .data = s.data,
                                        .pipeline = s.pipeline},
                                       order);
                const DeviceGrid expert({.tensor = s.expert_tensor,
                                         .expert = s.expert,
                                         .data = replicas,
                                         .pipeline = s.pipeline},
                                        order);
                const bool is_last = order.back() == Axis::Pipeline || s.pipeline == 1;
                expected = dense.groups(Axis::Pipeline) == expert.groups(Axis::Pipeline) &&
                           (is_last || replicas == s.data);
            }
            ASSERT_EQ(grid_fits({.sizes = s, .order = order}), expected) << to_string(order);
            fitting += expected ? 1 : 0;
        }
    });
    EXPECT_GT(fitting, 1000);
}

/// With as many replicas of experts as of dense layers, and TP x CP = ETP x EP, but pp between
/// them.
TEST(ParallelGrids, EqualReplicasAloneDoNotMakeEqualPipelines) {
    const ParallelSizes sizes{
        .tensor = 2, .context = 2, .data = 2, .pipeline = 2, .expert_tensor = 4};
    EXPECT_TRUE(grid_fits({.sizes = sizes}));
    EXPECT_TRUE(grid_fits({.sizes = sizes, .order = data_last}));
    EXPECT_FALSE(grid_fits({.sizes = sizes, .order = pipeline_second}));
}

Error refusal(const GridRequest& request) {
    return error_of([&] { require_grid(request, "run.toml:5:1"); });
}

void expect_refused(const GridRequest& request,
                    const std::string& key,
                    const std::vector<std::string>& said,
                    const std::string& hint) {
    ASSERT_FALSE(grid_fits(request)) << key;
    const Error error = refusal(request);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "run.toml:5:1");
    EXPECT_EQ(error.key(), "pipeline." + key);
    for (const std::string& part : said) {
        EXPECT_THAT(error.text(), HasSubstr(part));
    }
    EXPECT_EQ(error.hint(), hint);
}

TEST(GridRefusals, NameBothNumbersAndTheNearest) {
    expect_refused({.sizes = {.data = 8, .expert = 3}},
                   "expert_parallel",
                   {"expert_parallel = 3", "3 devices", "8 devices", "1 x 1 x 8"},
                   "set expert_parallel = 2");
    expect_refused({.sizes = {.data = 24, .expert = 6}, .model = {.experts = 128}},
                   "expert_parallel",
                   {"expert_parallel = 6", "128 experts"},
                   "set expert_parallel = 4");
    expect_refused({.sizes = {.tensor = 4, .data = 2, .expert_tensor = 3}},
                   "expert_tensor_parallel",
                   {"expert_tensor_parallel = 3", "8 devices", "4 x 1 x 2"},
                   "set expert_tensor_parallel = 2");
    expect_refused({.sizes = {.data = 64, .expert_tensor = 8}, .model = {.expert_width = 1026}},
                   "expert_tensor_parallel",
                   {"expert_tensor_parallel = 8", "1026"},
                   "set expert_tensor_parallel = 2");
    expect_refused({.sizes = {.tensor = 6}, .model = {.heads = 64}},
                   "tensor_parallel",
                   {"tensor_parallel = 6", "64 heads"},
                   "set tensor_parallel = 4");
    expect_refused({.sizes = {.tensor = 6}, .model = {.heads = 24, .key_value_heads = 4}},
                   "tensor_parallel",
                   {"tensor_parallel = 6", "4 key/value heads"},
                   "set tensor_parallel = 4");
    expect_refused({.sizes = {.context = 3}, .model = {.sequence = 4096}},
                   "context_parallel",
                   {"context_parallel = 3", "4096 tokens", "6 equal parts", "4098"},
                   "set context_parallel = 2");
    expect_refused({.sizes = {.tensor = 3, .context = 2},
                    .model = {.sequence = 4098},
                    .sequence_parallel = true},
                   "context_parallel",
                   {"context_parallel = 2", "4098 tokens", "12 equal parts", "4104"},
                   "set context_parallel = 1");
    expect_refused({.sizes = {.tensor = 4, .context = 4},
                    .model = {.heads = 32, .key_value_heads = 8, .sequence = 4096},
                    .context_divides_heads = true},
                   "context_parallel",
                   {"context_parallel = 4", "8 heads", "2 key/value heads"},
                   "set context_parallel = 2");
    expect_refused({.sizes = {.data = 6, .shard_group = 4}},
                   "shard_group",
                   {"shard_group = 4", "6 replicas"},
                   "set shard_group = 3");
    expect_refused({.sizes = {.data = 8, .expert = 8, .shard_group = 4}},
                   "shard_group",
                   {"shard_group = 4", "2 copies", "1 replica"},
                   "set shard_group = 8");
}

TEST(GridRefusals, OfAnOrderNameItAndBothSizes) {
    const GridRequest request{.sizes = {.data = 8, .pipeline = 2, .expert = 4}, .order = data_last};
    expect_refused(request,
                   "order",
                   {"tp-cp-ep-pp-dp", "8 replicas", "2 of experts", "1 and 4 devices"},
                   "set order = \"tp-cp-ep-dp-pp\"");
}

/// 64 heads want another TP than 6, and then 32 devices and 128 experts another EP than 5.
TEST(GridRefusals, OfSeveralRulesNameAllSettings) {
    const Error error = refusal(
        {.sizes = {.tensor = 6, .data = 8, .expert = 5}, .model = {.experts = 128, .heads = 64}});
    EXPECT_EQ(error.key(), "pipeline.tensor_parallel");
    EXPECT_THAT(error.advice().settings,
                ElementsAre(KeyValue{"pipeline.tensor_parallel", "4"},
                            KeyValue{"pipeline.expert_parallel", "4"}));
    EXPECT_EQ(error.hint(), "set tensor_parallel = 4 and expert_parallel = 4");
}

/// Copies of grouped keys: TP may be a multiple of their number (then each device has one).
TEST(GridRefusals, AllowCopiesOfKeysAndValues) {
    EXPECT_TRUE(grid_fits({.sizes = {.tensor = 8}, .model = {.heads = 64, .key_value_heads = 4}}));
    EXPECT_FALSE(grid_fits({.sizes = {.tensor = 8, .context = 2},
                            .model = {.heads = 64, .key_value_heads = 4, .sequence = 4096},
                            .context_divides_heads = true}));
    EXPECT_TRUE(grid_fits({.sizes = {.tensor = 8, .context = 2},
                           .model = {.heads = 64, .key_value_heads = 4, .sequence = 4096}}));
}

/// torchtitan (torchtitan/distributed/parallel_dims.py): EP divides dp_shard x CP x TP.
TEST(GridRefusals, OfShardGroupsAreTorchtitansRuleOfExperts) {
    for (const int tensor : {1, 2, 3}) {
        for (const int context : {1, 2}) {
            for (const int shard : {1, 2, 3, 4, 6}) {
                for (const int replicate : {1, 2, 3}) {
                    for (int expert = 1; expert <= 24; ++expert) {
                        EXPECT_EQ(grid_fits({.sizes = {.tensor = tensor,
                                                       .context = context,
                                                       .data = shard * replicate,
                                                       .expert = expert,
                                                       .shard_group = shard}}),
                                  shard * context * tensor % expert == 0);
                    }
                }
            }
        }
    }
}

/// The size that a key of a hint sets.
int ParallelSizes::*size_of(const std::string& key) {
    static const std::map<std::string, int ParallelSizes::*> sizes{
        {"pipeline.tensor_parallel", &ParallelSizes::tensor},
        {"pipeline.context_parallel", &ParallelSizes::context},
        {"pipeline.shard_group", &ParallelSizes::shard_group},
        {"pipeline.expert_tensor_parallel", &ParallelSizes::expert_tensor},
        {"pipeline.expert_parallel", &ParallelSizes::expert}};
    return sizes.at(key);
}

/// Sets what a hint names.
GridRequest with_settings(GridRequest request, const std::vector<KeyValue>& settings) {
    for (const auto& [key, value] : settings) {
        if (key == "pipeline.order") {
            request.order = parse_axis_order(value.substr(1, value.size() - 2), "");
        } else {
            request.sizes.*size_of(key) = std::stoi(value);
        }
    }
    return request;
}

/// Whether a value nearer to what the request has, or a smaller one as near, would do.
bool fits_nearer(GridRequest request, const KeyValue& setting) {
    int& size = request.sizes.*size_of(setting.key);
    const int asked = size;
    const int chosen = std::stoi(setting.value);
    const int distance = std::abs(chosen - asked);
    for (int value = std::max(1, asked - distance); value <= asked + distance; ++value) {
        size = value;
        const bool is_better = std::abs(value - asked) < distance || value < chosen;
        if (is_better && grid_fits(request)) {
            return true;
        }
    }
    return false;
}

class Draws {
  public:
    int up_to(int most) { return 1 + static_cast<int>(random_() % static_cast<unsigned>(most)); }
    bool flip() { return up_to(2) == 1; }
    GridRequest request() {
        GridRequest request{.sizes = {.tensor = flip() ? 1 : up_to(9),
                                      .context = flip() ? 1 : up_to(9),
                                      .data = up_to(24),
                                      .pipeline = up_to(4),
                                      .expert_tensor = up_to(6),
                                      .expert = up_to(40),
                                      .shard_group = flip() ? 0 : up_to(30)},
                            .order = pipeline_last,
                            .model = {.experts = flip() ? 0 : up_to(128),
                                      .expert_width = flip() ? 0 : up_to(2000),
                                      .heads = flip() ? 0 : up_to(64),
                                      .sequence = flip() ? 0 : up_to(5000)},
                            .sequence_parallel = flip(),
                            .context_divides_heads = flip()};
        request.model.key_value_heads = request.model.heads == 0 ? 0 : up_to(request.model.heads);
        std::ranges::shuffle(request.order, random_);
        return request;
    }

  private:
    std::mt19937 random_{59};
};

TEST(GridRefusals, OfDrawnRequestsNameSettingsThatFitAndNoneIsNearer) {
    Draws draws;
    int refused = 0;
    int of_one_size = 0;
    for (int i = 0; i < 20'000; ++i) {
        const GridRequest request = draws.request();
        if (grid_fits(request)) {
            EXPECT_NO_THROW(require_grid(request, ""));
            continue;
        }
        ++refused;
        const Error error = refusal(request);
        const std::vector<KeyValue>& settings = error.advice().settings;
        ASSERT_TRUE(grid_fits(with_settings(request, settings))) << error.what();
        if (settings.size() == 1 && settings[0].key != "pipeline.order") {
            ++of_one_size;
            EXPECT_EQ(settings[0].key, error.key());
            ASSERT_FALSE(fits_nearer(request, settings[0])) << error.what();
        }
    }
    EXPECT_GT(refused, 10'000);
    EXPECT_GT(of_one_size, 1'000);
}

TEST(GridRefusals, OfNumbersOfDevicesNameTheNearest) {
    EXPECT_EQ(data_parallel_of(16, sixteen, ""), 2);
    const Error error = error_of(
        [] { data_parallel_of(16, {.tensor = 2, .context = 2, .pipeline = 3}, "--devices"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.key(), "cluster.count");
    EXPECT_THAT(error.text(), AllOf(HasSubstr("16 devices"), HasSubstr("2 x 2 x 3 = 12")));
    EXPECT_THAT(error.advice().settings, ElementsAre(KeyValue{"cluster.count", "12"}));
    const Error experts = error_of([] {
        data_parallel_of(16, {.tensor = 2, .pipeline = 2, .expert_tensor = 3, .expert = 2}, "");
    });
    EXPECT_THAT(experts.text(), AllOf(HasSubstr("16 devices"), HasSubstr("3 x 2 x 2 = 12")));
    EXPECT_THAT(experts.advice().settings, ElementsAre(KeyValue{"cluster.count", "12"}));
}

TEST(GridRefusals, OfDrawnNumbersOfDevicesNameOneThatFits) {
    Draws draws;
    for (int i = 0; i < 2'000; ++i) {
        ParallelSizes sizes = draws.request().sizes;
        sizes.shard_group = 0;
        const int devices = draws.up_to(2'000);
        const auto fits = [&sizes](int number) {
            return number > 0 && number % (sizes.tensor * sizes.context * sizes.pipeline) == 0 &&
                   number % (sizes.expert_tensor * sizes.expert * sizes.pipeline) == 0;
        };
        int nearest = devices;
        for (int distance = 0; !fits(nearest); ++distance) {
            nearest = fits(devices - distance) ? devices - distance : devices + distance;
        }
        if (nearest == devices) {
            sizes.data = data_parallel_of(devices, sizes, "");
            EXPECT_EQ(parallel_grids(sizes).dense.devices(), devices);
        } else {
            const Error error = error_of([&] { data_parallel_of(devices, sizes, ""); });
            EXPECT_THAT(error.advice().settings,
                        ElementsAre(KeyValue{"cluster.count", std::to_string(nearest)}));
        }
    }
}

}  // namespace parallel_grids_test
}  // namespace pipetwin
