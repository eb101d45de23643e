// SPDX-License-Identifier: Apache-2.0
#include "tests/support/lost_power.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "core/scenario/scenario.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"
#include "tests/support/soak.h"

/// Cuts of the power, after every call that changes a folder, in all ways in which the disk may
/// have lost what was not flushed.
namespace pipetwin::cli {
namespace lost_power_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::Tree;
using Words = std::vector<std::string>;

/// What a disk may hold after a cut.
struct State {
    std::string when;  ///< "call 17 (rename ...), names lost, data zero"
    std::size_t calls = 0;
    Tree tree;
};

/// A command that changed the folder "disk", and all that a cut could have left of it.
struct Replay {
    std::vector<tests::DiskCall> calls;
    std::vector<State> states;  ///< each once, in the order of the calls
    Tree end;
};

class LostPower : public InFolder {
  protected:
    void SetUp() override {
        file("small.toml", small_scenario);
        file("small.csv", small_profile);
        fs::create_directories(folder() / "disk");
    }

    /// A training into a run folder, twelve steps with a checkpoint after every five.
    Words train(const std::string& run, const Words& more = {}) const {
        return joined({"train",
                       path("small.toml"),
                       "--profile",
                       path("small.csv"),
                       "--out",
                       run,
                       "--set",
                       "training.optimizer=adamw",
                       "--set",
                       "training.steps=12",
                       "--set",
                       "output.checkpoint_every=5"},
                      more);
    }

    Replay replay(const Words& command) const {
        const Tree before = tests::tree_of(folder() / "disk");
        const std::string record = path("record");
        fs::remove(record);
        Child child(command,
                    path("log"),
                    {"LD_PRELOAD=" + places::recorded_writes_library(),
                     "ASAN_OPTIONS=verify_asan_link_order=0:intercept_tls_get_addr=0",
                     fmt::format("PIPETWIN_RECORD={} {}", path("disk"), record)});
        const Outcome outcome = child.end();
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        Replay replay{.calls = tests::recorded_calls(record),
                      .states = {},
                      .end = tests::tree_of(folder() / "disk")};
        tests::RecordedDisk disk(folder() / "disk", before);
        std::set<Tree> known;
        std::size_t count = 0;
        for (const tests::DiskCall& call : replay.calls) {
            disk.happen(call);
            ++count;
            add_states(disk,
                       fmt::format("call {} ({} {})", count, call.name, call.words.front()),
                       count,
                       known,
                       replay.states);
        }
        EXPECT_TRUE(disk.after_cut(tests::Names::Kept, tests::Data::Kept) == replay.end)
            << "a call was not recorded";
        return replay;
    }

    /// Makes the folder "state" what a disk may hold, and returns the run folder in it.
    std::string cut(const State& state) const {
        fs::remove_all(folder() / "state");
        tests::write_tree(state.tree, folder() / "state");
        return path("state/run");
    }

    /// Some states: all where the soak has that many.
    std::vector<State> some_of(const std::vector<State>& states, int count) const {
        std::vector<State> some;
        std::mt19937_64 random(tests::seed());
        std::ranges::sample(states, std::back_inserter(some), tests::soaked(count), random);
        return some;
    }

  private:
    static void add_states(const tests::RecordedDisk& disk,
                           const std::string& when,
                           std::size_t calls,
                           std::set<Tree>& known,
                           std::vector<State>& states) {
        using tests::Data;
        using tests::Names;
        const std::map<Names, std::string> names{
            {Names::Kept, "kept"}, {Names::Lost, "lost"}, {Names::Prefix, "half lost"}};
        const std::map<Data, std::string> data{
            {Data::Kept, "kept"}, {Data::Zero, "zero"}, {Data::Short, "short"}};
        for (const auto& [name, name_text] : names) {
            for (const auto& [bytes, bytes_text] : data) {
                Tree tree = disk.after_cut(name, bytes);
                if (known.insert(tree).second) {
                    states.push_back(
                        {.when = fmt::format("{}, names {}, data {}", when, name_text, bytes_text),
                         .calls = calls,
                         .tree = std::move(tree)});
                }
            }
        }
    }
};

/// The checkpoints of a training, as they were when they got their names.
class WrittenCheckpoints {
  public:
    WrittenCheckpoints(const Replay& replay, const fs::path& disk_folder) {
        tests::RecordedDisk disk(disk_folder, {});
        const std::string parent = (disk_folder / "run/checkpoints").string();
        for (std::size_t i = 0; i < replay.calls.size(); ++i) {
            const tests::DiskCall& call = replay.calls[i];
            disk.happen(call);
            const bool names_one = call.name == "rename" && call.words.at(1).starts_with(parent);
            if (names_one) {
                const std::string name = fs::path(call.words.at(1)).filename().string();
                newest_ = name;
                for (const auto& [file, bytes] :
                     disk.after_cut(tests::Names::Kept, tests::Data::Kept)) {
                    const std::string prefix = "run/checkpoints/" + name + "/";
                    if (file.starts_with(prefix) && file != prefix) {
                        files_[name][file] = bytes;
                    }
                }
            }
            if (call.name == "sync" && call.words.front() == parent) {
                acknowledged_[i + 1] = newest_;
            }
        }
    }

    std::size_t count() const { return files_.size(); }

    /// The newest one that a tree holds whole; empty where it holds none.
    std::string newest_in(const Tree& tree) const {
        std::string newest;
        for (const auto& [name, files] : files_) {
            if (std::ranges::includes(tree, files)) {
                newest = name;
            }
        }
        return newest;
    }

    /// The newest one that the program had acknowledged after so many calls; empty: none.
    std::string acknowledged(std::size_t calls) const {
        const auto later = acknowledged_.upper_bound(calls);
        return later == acknowledged_.begin() ? "" : std::prev(later)->second;
    }

  private:
    std::map<std::string, Tree> files_;
    std::map<std::size_t, std::string> acknowledged_;
    std::string newest_;
};

/// The hashes of the last checkpoint's tensors, and no steps or places.
std::map<std::string, std::string> last_weights(const fs::path& run) {
    const auto manifest = nlohmann::json::parse(
        content_of(run / run_file::checkpoints / "step-00000012" / "checkpoint.json"));
    std::map<std::string, std::string> hashes;
    for (const auto& one : manifest["checkpoint"]["files"]) {
        for (const auto& tensor : one["tensors"]) {
            hashes[tensor["name"]] = tensor["xxh3_128"];
        }
    }
    return hashes;
}

// 191 of 1,020 states with a whole checkpoint were refused: scenario.toml and the run folder were
// not flushed before the first checkpoint.
TEST_F(LostPower, OfATrainingLosesNoCheckpointThatWasWrittenAndItContinuesWithTheSameBits) {
    for (const bool plans : {false, true}) {
        SCOPED_TRACE(plans ? "run" : "train");
        fs::remove_all(folder() / "disk");
        fs::create_directories(folder() / "disk");
        Words command = train(path("disk/run"));
        if (plans) {  // something is planned before
            command.front() = "run";
            command = joined(std::move(command), {"--set", "pipeline.partition=auto"});
        }
        const Replay written = replay(command);
        const WrittenCheckpoints checkpoints(written, folder() / "disk");
        ASSERT_EQ(checkpoints.count(), 3U);
        const auto weights = last_weights(folder() / "disk" / "run");
        int with_checkpoint = 0;
        for (const State& state : written.states) {
            const std::string acknowledged = checkpoints.acknowledged(state.calls);
            EXPECT_GE(checkpoints.newest_in(state.tree), acknowledged) << state.when;
            with_checkpoint += checkpoints.newest_in(state.tree).empty() ? 0 : 1;
        }
        RecordProperty(plans ? "run_states" : "train_states",
                       static_cast<int>(written.states.size()));
        RecordProperty(plans ? "run_whole" : "train_whole", with_checkpoint);
        for (const State& state : some_of(written.states, 15)) {
            SCOPED_TRACE(state.when);
            const std::string run = cut(state);
            const bool has_one = !checkpoints.newest_in(state.tree).empty();
            const Outcome resumed = pipetwin(train(run, {"--resume"}));
            if (!has_one) {  // it begins again, or there is nothing to continue
                EXPECT_THAT(resumed.code, ::testing::AnyOf(0, 3, 6)) << resumed.err;
                continue;
            }
            ASSERT_EQ(resumed.code, 0) << resumed.err;
            EXPECT_EQ(last_weights(run), weights);
            EXPECT_NO_THROW(read_scenario(fs::path(run) / run_file::scenario, {}));
        }
    }
}

// The hint of the refusal led to --force over the checkpoints.
TEST_F(LostPower, AFolderWithACheckpointIsRefusedWithItsCheckpointsAndNoWordOfOverwriting) {
    ASSERT_EQ(pipetwin(train(path("run"))).code, 0);
    fs::remove(folder() / "run" / run_file::scenario);
    fs::resize_file(folder() / "run/checkpoints/step-00000012/checkpoint.json", 10);
    const Outcome again = pipetwin(train(path("run")));
    EXPECT_EQ(again.code, 6);
    EXPECT_THAT(again.err,
                HasSubstr("the folder holds a run already, with a checkpoint after 10 steps"));
    EXPECT_THAT(again.err, HasSubstr("--resume"));
    EXPECT_THAT(again.err, Not(HasSubstr("--force")));
    const Outcome simulated = pipetwin(
        {"simulate", path("small.toml"), "--profile", path("small.csv"), "--out", path("run")});
    EXPECT_EQ(simulated.code, 6);
    EXPECT_THAT(simulated.err, Not(HasSubstr("--force")));
    const Outcome resumed = pipetwin(train(path("run"), {"--resume"}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
}

/// A training of a GPT of a few hundred numbers, which `export hf` takes.
constexpr std::string_view gpt_scenario = R"toml([model]
kind = "gpt"
layers = 1
d_model = 8
heads = 2
vocabulary = 16
context = 8
[data]
kind = "synthetic"
[training]
batch = 2
steps = 1
[pipeline]
stages = 1
micro_batches = 1
[output]
checkpoint_every = 1
)toml";

TEST_F(LostPower, OfAnExportLeavesAWholeFolderOrOneWithoutConfig) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    ASSERT_EQ(pipetwin({"train", scenario, "--out", path("old"), "--set", "training.seed=7"}).code,
              0);
    ASSERT_EQ(pipetwin({"train", scenario, "--out", path("new")}).code, 0);
    const auto export_to = [&](const std::string& from, const std::string& to, const Words& more) {
        return joined({"export", "hf", path(from), "--out", to}, more);
    };
    for (const bool over_another : {false, true}) {
        SCOPED_TRACE(over_another ? "over another export" : "into a new folder");
        Tree old;
        if (over_another) {
            old = tests::tree_of(folder() / "disk");
            ASSERT_EQ(pipetwin(export_to("old", path("disk/sub/hf"), {"--force"})).code, 0);
            old = tests::tree_of(folder() / "disk");
        }
        const Replay written = replay(export_to("new", path("disk/sub/hf"), {"--force"}));
        const auto exported_in = [](const Tree& tree) {
            Tree files;
            for (const auto& [name, bytes] : tree) {
                if (name.starts_with("sub/hf/")) {
                    files[name] = bytes;
                }
            }
            return files;
        };
        for (const State& state : written.states) {
            if (state.tree.contains("sub/hf/config.json")) {
                const Tree files = exported_in(state.tree);
                EXPECT_TRUE(files == exported_in(written.end) || files == exported_in(old))
                    << state.when;
            }
            if (state.calls == written.calls.size()) {
                EXPECT_TRUE(exported_in(state.tree) == exported_in(written.end)) << state.when;
            }
        }
        for (const State& state : some_of(written.states, 5)) {
            SCOPED_TRACE(state.when);
            cut(state);
            const Outcome again = pipetwin(export_to("new", path("state/sub/hf"), {"--force"}));
            EXPECT_EQ(again.code, 0) << again.err;
            EXPECT_TRUE(exported_in(tests::tree_of(folder() / "state")) ==
                        exported_in(written.end));
        }
    }
}

TEST_F(LostPower, OfAPlanLeavesNoFileThatIsReadWrongInSilence) {
    const auto plan_into = [&](const std::string& out) -> Words {
        return {"plan",
                path("small.toml"),
                "--profile",
                path("small.csv"),
                "--set",
                "pipeline.stages=auto",
                "--set",
                "cluster.count=2",
                "--out",
                out,
                "--force"};
    };
    const auto simulated = [&](const std::string& run) {
        return pipetwin(
            {"simulate", run + "/scenario.toml", "--profile", run + "/profile.json", "--json"});
    };
    const Replay written = replay(plan_into(path("disk/run")));
    ASSERT_TRUE(written.end.contains("run/plan.json"));
    const Tree reference = tests::tree_of(folder() / "disk" / "run");
    const Outcome whole = simulated(path("disk/run"));
    ASSERT_EQ(whole.code, 0) << whole.err;
    for (const State& state : some_of(written.states, 10)) {
        SCOPED_TRACE(state.when);
        const std::string run = cut(state);
        const Outcome read = simulated(run);
        EXPECT_THAT(read.code, ::testing::AnyOf(0, 3, 6)) << read.err;
        if (read.code == 0) {
            EXPECT_EQ(read.json()["pipeline_ms"], whole.json()["pipeline_ms"]);
        }
        const Outcome again = pipetwin(plan_into(run));
        EXPECT_EQ(again.code, 0) << again.err;
        // Files with the names of a process that has gone may lie beside.
        EXPECT_TRUE(std::ranges::includes(tests::tree_of(run), reference));
    }
}

}  // namespace lost_power_test
}  // namespace pipetwin::cli
