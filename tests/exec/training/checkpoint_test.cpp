// SPDX-License-Identifier: Apache-2.0
#include "exec/training/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/text/json_text.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace checkpoint_test {

namespace fs = std::filesystem;
using test::NamedValues;
using test::Shape;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// A model in training on the CPU.
class SmallRun {
  public:
    explicit SmallRun(const Model& model, const Shape& shape)
        : model_(model), shape_(shape), executor_(test::plan_of(model, shape), model, options()) {}

    void train(int first_step, int steps) {
        for (int step = first_step; step < first_step + steps; ++step) {
            executor_.run_step(random_batch(model_, shape_.batch, 1), step);
        }
    }

    TrainedParameters parameters() {
        TrainedParameters trained;
        for (int stage = 0; stage < executor_.plan().stage_count(); ++stage) {
            trained.pieces.push_back(executor_.stage(stage).parameters());
        }
        trained.read = [](const Tensor& from, std::span<std::byte> to) {
            std::memcpy(to.data(), from.data(), to.size());
        };
        trained.write = [](std::span<const std::byte> from, Tensor& to) {
            std::memcpy(to.data(), from.data(), from.size());
        };
        return trained;
    }

    std::vector<NamedValues> state() {
        std::vector<NamedValues> all;
        for (Parameter* const parameter : executor_.parameters()) {
            for (const Tensor* tensor :
                 {&parameter->value, &parameter->first, &parameter->second, &parameter->average}) {
                if (!tensor->empty()) {
                    all.push_back({parameter->name, test::values_of(*tensor)});
                }
            }
        }
        return all;
    }

  private:
    ExecutorOptions options() const { return test::options_of(shape_); }

    const Model& model_;
    Shape shape_;
    Executor executor_;
};

CheckpointManifest after(int steps) {
    return {.steps_done = steps,
            .optimizer = "adamw",
            .precision = "fp32",
            .seed = 0xffff'ffff'ffff'ffffU,
            .batch = 8,
            .data = "random",
            .tool_version = "0"};
}

class CheckpointTest : public ::testing::Test {
  protected:
    fs::path newest() const {
        fs::path found;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
            found = std::max(found, entry.path());
        }
        return found;
    }
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
            all.push_back(entry.path().filename().string());
        }
        std::ranges::sort(all);
        return all;
    }
    fs::path folder() const { return scratch_.path() / "checkpoints"; }

    tests::ScratchFolder scratch_;
    Model model_ = test::small_gpt();
    Checkpoints checkpoints_{folder()};
};

void flip_bit(const fs::path& file, std::size_t byte, unsigned bit) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    const int old = stream.get();
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(static_cast<char>(static_cast<unsigned>(old) ^ (1U << bit)));
}

TEST_F(CheckpointTest, ARunGoesOnFromItBitByBitWithAnyNumberOfStages) {
    const Shape two{.stages = 2, .schedule = "1f1b"};
    SmallRun uninterrupted(model_, two);
    uninterrupted.train(0, 4);
    SmallRun first(model_, two);
    first.train(0, 2);
    checkpoints_.save(after(2), first.parameters());
    for (const int stages : {1, 2, 4}) {
        const Shape shape{.stages = stages, .schedule = "1f1b"};
        SmallRun resumed(model_, shape);
        const auto loaded = checkpoints_.load(resumed.parameters());
        ASSERT_TRUE(loaded);
        EXPECT_EQ(loaded->about.steps_done, 2);
        EXPECT_EQ(loaded->about.seed, after(2).seed);
        EXPECT_THAT(loaded->damaged, SizeIs(0));
        EXPECT_EQ(resumed.state(), first.state());
        resumed.train(2, 2);
        EXPECT_EQ(resumed.state(), uninterrupted.state()) << stages << " stages";
    }
}

/// Once, under the embedding's name; the copy of the last stage gets it from there.
TEST_F(CheckpointTest, ATiedTableIsInItOnceAndGoesToBothOfItsStages) {
    const Model tied = test::small_gpt_with(0.25, true);
    const auto executor_with = [&](int stages) {
        const Shape shape{.stages = stages, .schedule = "1f1b", .clip_norm = 0.05};
        return std::make_unique<Executor>(
            test::plan_of(tied, shape), tied, test::options_of(shape));
    };
    const auto train = [&](Executor& executor, int first, int end) {
        for (int step = first; step < end; ++step) {
            executor.run_step(random_batch(tied, 8, 1), step);
        }
        return test::weights_of(executor.parameters());
    };
    const auto uninterrupted = executor_with(2);
    const auto expected = train(*uninterrupted, 0, 4);
    const auto first = executor_with(2);
    train(*first, 0, 2);
    checkpoints_.save(after(2), first->trained());
    for (const int stages : {1, 2, 4}) {
        const auto resumed = executor_with(stages);
        ASSERT_TRUE(checkpoints_.load(resumed->trained()));
        resumed->spread_weights();
        EXPECT_EQ(train(*resumed, 2, 4), expected) << stages << " stages";
    }
}

TEST_F(CheckpointTest, TwoStay) {
    SmallRun run(model_, {});
    for (const int steps : {1, 2, 5, 11}) {
        checkpoints_.save(after(steps), run.parameters());
    }
    EXPECT_THAT(names(), ::testing::ElementsAre("step-00000005", "step-00000011"));
}

TEST_F(CheckpointTest, ThereIsNoneToBeginWith) {
    SmallRun run(model_, {});
    EXPECT_FALSE(checkpoints_.load(run.parameters()));
}

// One that was being written when the process was killed.
TEST_F(CheckpointTest, AnUnfinishedOneIsNoCheckpoint) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    fs::copy(newest(), folder() / ".step-00000002");
    EXPECT_EQ(checkpoints_.load(run.parameters())->about.steps_done, 1);
    checkpoints_.save(after(2), run.parameters());
    EXPECT_THAT(names(), ::testing::ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(CheckpointTest, AFlippedBitIsFoundAndTheOneBeforeIsUsed) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    const std::vector<NamedValues> one = run.state();
    run.train(0, 1);
    checkpoints_.save(after(2), run.parameters());
    const fs::path folder = newest();
    int tried = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        const std::size_t size = entry.file_size();
        for (std::size_t byte = 0; byte < size; byte += 1 + size / 97) {
            const unsigned bit = static_cast<unsigned>(byte * 7 % 8);
            flip_bit(entry.path(), byte, bit);
            SmallRun other(model_, {});
            const auto loaded = checkpoints_.load(other.parameters());
            ASSERT_TRUE(loaded);
            // A space in the manifest may become another blank: then nothing is lost.
            if (loaded->about.steps_done == 2) {
                EXPECT_EQ(entry.path().filename(), "checkpoint.json");
                EXPECT_EQ(other.state(), run.state());
            } else {
                EXPECT_EQ(other.state(), one);
                EXPECT_THAT(loaded->damaged, SizeIs(1));
            }
            flip_bit(entry.path(), byte, bit);
            ++tried;
        }
    }
    EXPECT_GT(tried, 200);
    EXPECT_EQ(checkpoints_.load(run.parameters())->about.steps_done, 2);
}

TEST_F(CheckpointTest, ATruncatedFileIsFoundAndTheOneBeforeIsUsed) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    checkpoints_.save(after(2), run.parameters());
    for (const fs::directory_entry& entry : fs::directory_iterator(newest())) {
        const std::string whole = read_file(entry.path(), std::size_t{1} << 30U);
        for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 23) {
            std::ofstream(entry.path(), std::ios::binary) << whole.substr(0, size);
            const auto loaded = checkpoints_.load(run.parameters());
            ASSERT_TRUE(loaded);
            EXPECT_EQ(loaded->about.steps_done, 1) << entry.path() << " of " << size << " bytes";
        }
        std::ofstream(entry.path(), std::ios::binary) << whole;
    }
}

TEST_F(CheckpointTest, WhereNoneIsWholeThatIsSaid) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    fs::remove(newest() / "000.weights.safetensors");
    const Error error = pipetwin::testing::error_of([&] { checkpoints_.load(run.parameters()); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("000.weights.safetensors"));
}

TEST_F(CheckpointTest, ThatOfAnotherModelOrOptimizerIsRefused) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    const Model other = test::small_mlp();
    SmallRun another(other, {});
    const std::vector<NamedValues> before = another.state();
    const Error error =
        pipetwin::testing::error_of([&] { checkpoints_.load(another.parameters()); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("of another model"));
    EXPECT_EQ(another.state(), before);
    SmallRun plain(model_, {.optimizer = OptimizerKind::Sgd});
    EXPECT_THROW(checkpoints_.load(plain.parameters()), Error);
}

TEST_F(CheckpointTest, KeepsTheAveragesOfTheWeights) {
    const Shape shape{.stages = 2, .average_decay = 0.9};
    SmallRun run(model_, shape);
    run.train(0, 3);
    checkpoints_.save(after(3), run.parameters());
    SmallRun another(model_, {.stages = 1, .average_decay = 0.9});
    EXPECT_NE(another.state(), run.state());
    ASSERT_TRUE(checkpoints_.load(another.parameters()));
    EXPECT_EQ(another.state(), run.state());
    SmallRun without(model_, {});
    EXPECT_THROW(checkpoints_.load(without.parameters()), Error);
}

TEST_F(CheckpointTest, TheOneToGoOnFromIsFoundWithoutReadingATensor) {
    SmallRun run(model_, {});
    EXPECT_EQ(checkpoints_.find(run.parameters()), std::nullopt);
    checkpoints_.save(after(1), run.parameters());
    checkpoints_.save(after(2), run.parameters());
    const auto found = checkpoints_.find(run.parameters());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->about.steps_done, 2);
    EXPECT_EQ(found->folder, newest());
    const Model other = test::small_mlp();
    SmallRun another(other, {});
    EXPECT_EQ(pipetwin::testing::error_of([&] { checkpoints_.find(another.parameters()); }).text(),
              pipetwin::testing::error_of([&] { checkpoints_.load(another.parameters()); }).text());
    fs::resize_file(newest() / "000.weights.safetensors", 20);
    const auto before = checkpoints_.find(run.parameters());
    ASSERT_TRUE(before);
    EXPECT_EQ(before->about.steps_done, 1);
    EXPECT_THAT(before->damaged, SizeIs(1));
    fs::remove_all(newest());
    fs::remove(newest() / "000.weights.safetensors");
    EXPECT_THAT(pipetwin::testing::error_of([&] { checkpoints_.find(run.parameters()); }).text(),
                HasSubstr("no checkpoint here is whole"));
}

// A manifest is a file that somebody may have sent.
TEST_F(CheckpointTest, ReadsNothingOutsideItsFolder) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    fs::rename(newest() / "000.weights.safetensors", folder() / "000.weights.safetensors");
    fs::create_symlink("../000.weights.safetensors", newest() / "000.weights.safetensors");
    EXPECT_THROW(checkpoints_.load(run.parameters()), Error);
}

// The limit on a file's size is met as a full disk is: a write fails.
TEST_F(CheckpointTest, AWriteThatFailsLeavesTheOldOneAndNothingHalf) {
    SmallRun run(model_, {});
    checkpoints_.save(after(1), run.parameters());
    rlimit old{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    for (const rlim_t most : {0U, 1U, 100U, 5000U}) {
        rlimit limit = old;
        limit.rlim_cur = most;
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const Error error =
            pipetwin::testing::error_of([&] { checkpoints_.save(after(2), run.parameters()); });
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
        EXPECT_EQ(error.kind(), ErrorKind::Io);
        EXPECT_THAT(names(), ::testing::ElementsAre("step-00000001"));
    }
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(checkpoints_.load(run.parameters())->about.steps_done, 1);
}

}  // namespace checkpoint_test
}  // namespace pipetwin::exec
