// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"
#include "tests/support/soak.h"

namespace pipetwin::cli {
namespace resume_test {

using ::testing::HasSubstr;

class Resume : public InFolder {
  protected:
    /// Twelve steps, a checkpoint after every five.
    std::vector<std::string> train(const std::string& run,
                                   const std::vector<std::string>& more = {}) const {
        return joined({"train",
                       file("small.toml", small_scenario),
                       "--profile",
                       file("small.csv", small_profile),
                       "--out",
                       path(run),
                       "--set",
                       "training.optimizer=adamw",
                       "--set",
                       "training.steps=12",
                       "--set",
                       "output.checkpoint_every=5"},
                      more);
    }

    /// What a step gave, and not how long it took.
    std::vector<std::string> series(const std::string& run) const {
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        std::vector<std::string> steps;
        for (std::string line; std::getline(metrics, line);) {
            const auto step = nlohmann::json::parse(line);
            steps.push_back(nlohmann::json{step["step"], step["loss"], step["grad_norm"]}.dump());
        }
        return steps;
    }

    /// The tensors' hashes of the last checkpoint, by their names.
    std::map<std::string, std::string> weights(const std::string& run) const {
        std::filesystem::path newest;
        for (const auto& entry :
             std::filesystem::directory_iterator(folder() / run / run_file::checkpoints)) {
            newest = std::max(newest, entry.path());
        }
        const auto manifest = nlohmann::json::parse(content_of(newest / "checkpoint.json"));
        std::map<std::string, std::string> hashes;
        for (const auto& one : manifest["checkpoint"]["files"]) {
            for (const auto& tensor : one["tensors"]) {
                hashes[tensor["name"]] = tensor["xxh3_128"];
            }
        }
        return hashes;
    }

    void expect_same(const std::string& run, const std::string& expected) const {
        EXPECT_EQ(series(run), series(expected));
        EXPECT_EQ(weights(run), weights(expected));
    }
};

TEST_F(Resume, ARunThatHasEndedHasNothingLeft) {
    ASSERT_EQ(pipetwin(train("run")).code, 0);
    EXPECT_EQ(series("run").size(), 12U);
    EXPECT_EQ(weights("run").size(),
              12U);  // two layers' weights and biases, and two moments of each
    const Outcome again = pipetwin(train("run", {"--resume"}));
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("all 12 steps"));
    EXPECT_EQ(series("run").size(), 12U);
}

/// A signal after the seventh step: a stream that raises it when the seventh line is written.
class SignalOnLine : public std::stringbuf {
  public:
    explicit SignalOnLine(std::ptrdiff_t line) : line_(line) {}

  protected:
    int sync() override {
        const std::string text = str();
        if (!raised_ && std::ranges::count(text, '\n') >= line_) {
            raised_ = true;
            std::raise(SIGTERM);
        }
        return 0;
    }

  private:
    std::ptrdiff_t line_;
    bool raised_ = false;
};

TEST_F(Resume, AfterASignalItGoesOnAsIfNothingHadHappenedWithAnyPartition) {
    ASSERT_EQ(pipetwin(train("whole")).code, 0);
    for (const char* const stages : {"1", "2"}) {
        const std::string run = std::string("run") + stages;
        SignalOnLine buffer(7);
        std::ostream out(&buffer);
        std::ostringstream err;
        ASSERT_EQ(run_command_line(train(run), out, err), 143) << err.str();
        EXPECT_EQ(series(run).size(), 7U);
        const Outcome rest =
            pipetwin(train(run, {"--resume", "--set", std::string("pipeline.stages=") + stages}));
        ASSERT_EQ(rest.code, 0) << rest.err;
        EXPECT_THAT(rest.err, HasSubstr("continues with step 7 from"));
        expect_same(run, "whole");
    }
}

TEST_F(Resume, ADamagedCheckpointIsLeftOutAndThatIsSaid) {
    ASSERT_EQ(pipetwin(train("run")).code, 0);
    const auto newest = folder() / "run" / run_file::checkpoints / "step-00000012";
    std::filesystem::resize_file(newest / "000.weights.safetensors", 20);
    const Outcome outcome = pipetwin(train("run", {"--resume"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("a damaged checkpoint is left out"));
    EXPECT_THAT(outcome.err, HasSubstr("continues with step 10"));
    ASSERT_EQ(pipetwin(train("whole")).code, 0);
    expect_same("run", "whole");
}

// A line that was torn at its end stood in the file for ever, with the next one behind it.
TEST_F(Resume, ATornLineOfMetricsIsCutOffAndThatIsSaid) {
    ASSERT_EQ(pipetwin(train("whole")).code, 0);
    struct Torn {
        std::string run;
        std::string behind;  ///< the seven whole lines
        int whole = 7;
        int bytes_lost = 0;
    };
    const std::vector<Torn> all{
        {.run = "half", .behind = R"({"step":7,"loss":1.)"},
        {.run = "zeros", .behind = std::string(100, '\0')},
        {.run = "later", .behind = "{\"step\":7,\"loss\":1}\n{\"step\":8,"},
        {.run = "within", .behind = "", .whole = 6, .bytes_lost = 5},
        {.run = "end", .behind = "", .whole = 6, .bytes_lost = 1},
    };
    for (const Torn& torn : all) {
        SCOPED_TRACE(torn.run);
        SignalOnLine buffer(7);
        std::ostream out(&buffer);
        std::ostringstream err;
        ASSERT_EQ(run_command_line(train(torn.run), out, err), 143) << err.str();
        const auto metrics = folder() / torn.run / run_file::metrics;
        std::filesystem::resize_file(
            metrics, std::filesystem::file_size(metrics) - static_cast<unsigned>(torn.bytes_lost));
        std::ofstream(metrics, std::ios::app | std::ios::binary) << torn.behind;
        const Outcome rest = pipetwin(train(torn.run, {"--resume"}));
        ASSERT_EQ(rest.code, 0) << rest.err;
        std::vector<std::string> expected = series("whole");
        if (torn.whole < 7) {
            expected.erase(expected.begin() + torn.whole);
            EXPECT_THAT(rest.err,
                        HasSubstr("metrics.jsonl contains 6 whole lines of the 7 before step"));
        } else {
            EXPECT_THAT(rest.err, ::testing::Not(HasSubstr("torn")));
        }
        EXPECT_EQ(series(torn.run), expected);
        EXPECT_EQ(weights(torn.run), weights("whole"));
    }
}

TEST_F(Resume, WithoutACheckpointYetItStartsFromTheBeginning) {
    const std::vector<std::string> none{"--set", "output.checkpoint_every=0"};
    ASSERT_EQ(pipetwin(train("run", none)).code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder() / "run" / run_file::checkpoints));
    const Outcome outcome = pipetwin(train("run", {"--resume"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the run starts from the beginning"));
    EXPECT_EQ(series("run").size(), 12U);
}

TEST_F(Resume, RefusesWhatIsNoContinuation) {
    const Outcome nowhere = pipetwin(train("run", {"--resume"}));
    EXPECT_EQ(nowhere.code, 6);
    EXPECT_THAT(nowhere.err, HasSubstr("no run here to continue"));
    ASSERT_EQ(pipetwin(train("run")).code, 0);
    const Outcome forced = pipetwin(train("run", {"--resume", "--force"}));
    EXPECT_EQ(forced.code, 2);
    const Outcome seed = pipetwin(train("run", {"--resume", "--seed", "7"}));
    EXPECT_EQ(seed.code, 3);
    EXPECT_THAT(seed.err, HasSubstr("training.seed = 1, not 7"));
    const Outcome model = pipetwin(train("run", {"--resume", "--set", "training.optimizer=sgd"}));
    EXPECT_EQ(model.code, 3);
    const Outcome nameless = pipetwin({"train", file("small.toml", small_scenario), "--resume"});
    EXPECT_EQ(nameless.code, 2);
}

/// Each was told only after the layers had been measured, which takes half a minute, and after the
/// folder had got the scenario that it refused.
TEST_F(Resume, ACheckpointOfAnotherTrainingIsRefusedBeforeAnythingIsMeasured) {
    ASSERT_EQ(pipetwin(train("run")).code, 0);
    const std::string scenario = content_of(folder() / "run" / run_file::scenario);
    const std::vector<std::pair<std::vector<std::string>, std::string>> refused{
        {{"--seed", "7"}, "training.seed = 1, not 7"},
        {{"--set", "training.batch=16"}, "training.batch = "},
        {{"--set", "training.optimizer=sgd"}, "it is a checkpoint of another model, optimizer"},
        {{"--set", "training.precision=fp64"}, "it is a checkpoint of another model, optimizer"},
        {{"--set", "model.sizes=[4,6,3]"}, "it is a checkpoint of another model, optimizer"}};
    for (const std::string command : {"train", "run"}) {
        for (const auto& [more, text] : refused) {
            std::vector<std::string> words = train("run", joined({"--resume"}, more));
            words[0] = command;
            // Costs that are not there are looked for where layers would be measured.
            *std::ranges::find(words, path("small.csv")) = path("none.csv");
            const Outcome outcome = pipetwin(words);
            EXPECT_EQ(outcome.code, 3) << outcome.err;
            EXPECT_THAT(outcome.err, HasSubstr(text));
            EXPECT_THAT(outcome.err,
                        HasSubstr("hint: continue with the scenario that it was written"));
            EXPECT_EQ(content_of(folder() / "run" / run_file::scenario), scenario);
        }
    }
}

TEST_F(Resume, ForceRemovesOldCheckpoints) {
    ASSERT_EQ(pipetwin(train("run")).code, 0);
    ASSERT_EQ(pipetwin(train("run", {"--force", "--set", "output.checkpoint_every=0"})).code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder() / "run" / run_file::checkpoints));
}

/// Runs the program as a process of its own; killed after `patience`. Its exit code, or nothing.
std::optional<int> run_and_kill(const std::vector<std::string>& args,
                                std::chrono::milliseconds patience) {
    const std::string program = places::program_folder() + "/pipetwin";
    std::vector<std::string> words = joined({program}, args);
    std::vector<char*> pointers;
    for (std::string& word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = -1;
    const int error =
        posix_spawn(&child, program.c_str(), &quiet, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (error != 0) {
        ADD_FAILURE() << "cannot start " << program;
        return 1;
    }
    std::this_thread::sleep_for(patience);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
}

// Killed at random moments, every time a little later; in the end nothing shows it.
TEST_F(Resume, KilledAgainAndAgainItEndsAsIfNothingHadHappened) {
    const std::vector<std::string> longer{
        "--set", "training.steps=60", "--set", "output.checkpoint_every=2"};
    ASSERT_EQ(pipetwin(train("whole", longer)).code, 0);
    std::mt19937_64 random(tests::seed());
    int kills = 0;
    for (int round = 0; round < tests::soaked(1); ++round) {
        const std::string run = "run" + std::to_string(round);
        std::vector<std::string> command = train(run, longer);
        int longest = 40;  // milliseconds
        while (true) {
            const std::chrono::milliseconds patience(random() % static_cast<unsigned>(longest));
            const std::optional<int> code = run_and_kill(command, patience);
            if (code) {
                ASSERT_EQ(*code, 0) << "after " << kills << " kills, seed " << tests::seed();
                break;
            }
            ++kills;
            longest += 20;  // so that it ends
            if (std::filesystem::exists(folder() / run / run_file::scenario)) {
                command = train(run, joined(longer, {"--resume"}));
            }
        }
        expect_same(run, "whole");
    }
    RecordProperty("kills", kills);
    std::cout << kills << " kills in " << tests::soaked(1) << " runs\n";
}

}  // namespace resume_test
}  // namespace pipetwin::cli
