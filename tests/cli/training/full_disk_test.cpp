// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

namespace pipetwin::cli {
namespace full_disk_test {

using ::testing::HasSubstr;

constexpr int steps = 400;

/// What a disk does for a while: a call on a file whose path has `name` in it fails.
struct Fault {
    std::string call;
    std::string name;
    int milliseconds = 1000;
    int code = ENOSPC;
};

class FullDisk : public InFolder {
  protected:
    void SetUp() override {
        file("small.toml", small_scenario);
        file("small.csv", small_profile);
    }

    std::vector<std::string> train(const std::string& run,
                                   const std::vector<std::string>& more = {}) const {
        return joined({"train",
                       path("small.toml"),
                       "--profile",
                       path("small.csv"),
                       "--out",
                       path(run),
                       "--live",
                       "--set",
                       fmt::format("training.steps={}", steps),
                       "--set",
                       "output.checkpoint_every=150"},
                      more);
    }

    Child start(const std::string& run,
                const Fault& fault,
                const std::vector<std::string>& more = {}) const {
        return {train(run, more),
                path(run),
                {"LD_PRELOAD=" + places::full_disk_library(),
                 "ASAN_OPTIONS=verify_asan_link_order=0:intercept_tls_get_addr=0",
                 fmt::format("PIPETWIN_FULL_DISK={} {} {} {} {}",
                             fault.call,
                             fault.name,
                             fault.milliseconds,
                             fault.code,
                             path(run + ".failed"))}};
    }

    /// All that lies in a run, but for the checkpoint before the last: a disk that is full
    /// meanwhile may cost that one.
    std::set<std::string> names_in(const std::string& run) const {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder() / run)) {
            const std::string name = entry.path().lexically_relative(folder() / run).string();
            if (!name.starts_with("checkpoints/step-00000300")) {
                names.insert(name);
            }
        }
        return names;
    }

    std::vector<std::string> series(const std::string& run) const {
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        std::vector<std::string> all;
        for (std::string line; std::getline(metrics, line);) {
            const auto step = nlohmann::json::parse(line);
            all.push_back(nlohmann::json{step["step"], step["loss"], step["grad_norm"]}.dump());
        }
        return all;
    }

    /// It has the files of a run on a disk with room, and they are whole.
    void expect_complete(const std::string& run) const {
        EXPECT_EQ(names_in(run), names_in("whole"));
        EXPECT_EQ(series(run), series("whole"));
        for (const std::string_view name : {run_file::scenario,
                                            run_file::profile,
                                            run_file::plan,
                                            run_file::schedule,
                                            run_file::predicted}) {
            EXPECT_EQ(content_of(folder() / run / name), content_of(folder() / "whole" / name))
                << name;
        }
        for (const std::string_view name : {run_file::measured, run_file::report_json}) {
            EXPECT_TRUE(nlohmann::json::accept(content_of(folder() / run / name))) << name;
        }
        EXPECT_THAT(content_of(folder() / run / run_file::report_html), HasSubstr("</html>"));
        const std::string live = content_of(folder() / run / run_file::live);
        EXPECT_EQ(std::ranges::count(live, '\n'), steps + 1);
        const Outcome again = pipetwin(train(run, {"--resume"}));
        EXPECT_EQ(again.code, 0) << again.err;
        EXPECT_THAT(again.err, HasSubstr("nothing is left to train"));
    }
};

// One second of a full disk ended a training.
TEST_F(FullDisk, ForASecondAtAnyCallOnAnyFileItCostsNothing) {
    ASSERT_EQ(pipetwin(train("whole")).code, 0);
    std::vector<Fault> faults;
    for (const char* const name : {"scenario.toml",
                                   "profile.json",
                                   "plan.json",
                                   "schedule.csv",
                                   "predicted.trace.json",
                                   "measured.trace.json",
                                   "report.json",
                                   "report.html"}) {
        for (const char* const call : {"open", "write", "close", "rename"}) {
            faults.push_back({.call = call, .name = name});
        }
    }
    for (const char* const name : {"metrics.jsonl", "live.jsonl"}) {
        for (const char* const call : {"open", "write"}) {
            faults.push_back({.call = call, .name = name});
        }
    }
    for (const char* const call : {"mkdir", "open", "write", "fsync", "close", "rename"}) {
        faults.push_back({.call = call, .name = "checkpoints"});
    }
    faults.push_back({.call = "fsync", .name = "metrics.jsonl"});
    faults.push_back({.call = "any", .name = ".json"});  // many files at once
    for (std::size_t i = 0; i < faults.size(); ++i) {
        faults[i].code = std::array{ENOSPC, EIO, EDQUOT}.at(i % 3);
    }
    constexpr std::size_t at_once = 12;
    for (std::size_t first = 0; first < faults.size(); first += at_once) {
        const std::size_t end = std::min(first + at_once, faults.size());
        std::vector<Child> children;
        for (std::size_t i = first; i < end; ++i) {
            children.push_back(start("run" + std::to_string(i), faults[i]));
        }
        for (std::size_t i = first; i < end; ++i) {
            SCOPED_TRACE(fmt::format("{} {}", faults[i].call, faults[i].name));
            const std::string run = "run" + std::to_string(i);
            const Outcome outcome = children[i - first].end();
            EXPECT_EQ(outcome.code, 0) << outcome.err;
            EXPECT_TRUE(std::filesystem::exists(path(run + ".failed"))) << "nothing failed";
            expect_complete(run);
        }
    }
}

TEST_F(FullDisk, WhileATrainingGoesOnItIsSaidAndCheckpointsAreTriedAgain) {
    // Steps that last 0.7 ms and more, so that the disk has room again long before the end.
    const std::vector<std::string> slow{
        "--set", "cluster.backend=paced", "--set", "training.steps=2500"};
    Child metrics = start("metrics", {.call = "write", .name = "metrics.jsonl"}, slow);
    Child checkpoint = start("checkpoint", {.call = "write", .name = "weights"}, slow);
    const Outcome first = metrics.end();
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_THAT(first.err, HasSubstr("metrics.jsonl: cannot be written"));
    EXPECT_THAT(first.err, HasSubstr("training continues, its lines are written later"));
    EXPECT_EQ(series("metrics").size(), 2500U);
    const Outcome second = checkpoint.end();
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_THAT(second.err, HasSubstr("no checkpoint after step 149, training continues: "));
    EXPECT_EQ(series("checkpoint"), series("metrics"));
    EXPECT_THAT(names_in("checkpoint"), ::testing::Contains("checkpoints/step-00002500"));
}

/// A training whose files may not grow beyond what they have, for a while: a disk that becomes full
/// in the middle of a write, which then takes the beginning of it.
Outcome with_files_that_may_not_grow(Child child,
                                     const std::filesystem::path& metrics,
                                     const std::filesystem::path& out,
                                     std::chrono::milliseconds time) {
    EXPECT_TRUE(has_lines(metrics, 100));
    rlimit old{};
    EXPECT_EQ(prlimit(child.id(), RLIMIT_FSIZE, nullptr, &old), 0);
    rlimit full = old;
    full.rlim_cur = std::filesystem::file_size(out) + 37;  // half of a line
    EXPECT_EQ(prlimit(child.id(), RLIMIT_FSIZE, &full, nullptr), 0);
    std::this_thread::sleep_for(time);
    EXPECT_LE(std::filesystem::file_size(out), full.rlim_cur);
    EXPECT_EQ(prlimit(child.id(), RLIMIT_FSIZE, &old, nullptr), 0);
    return child.end();
}

// What was printed while the disk behind stdout was full was lost, and the training ended with 6;
// later the beginning of a line that the disk had taken was printed twice.
TEST_F(FullDisk, BehindStdoutCostsNoLineAndTearsNone) {
    constexpr int paced_steps = 2500;  // of 0.7 ms and more
    const std::vector<std::string> slow{
        "--set", "cluster.backend=paced", "--set", fmt::format("training.steps={}", paced_steps)};
    // Until the disk has room again the training goes on, or it waits with what it has at its end.
    for (const int milliseconds : {700, 4000}) {
        SCOPED_TRACE(milliseconds);
        const std::string run = fmt::format("run{}", milliseconds);
        const Outcome outcome =
            with_files_that_may_not_grow(Child(train(run, slow), path(run)),
                                         folder() / run / run_file::metrics,
                                         path(run + ".out"),
                                         std::chrono::milliseconds(milliseconds));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("metrics.jsonl: cannot be written"));
        std::istringstream lines(outcome.out);
        int step = 0;
        for (std::string line; std::getline(lines, line); ++step) {
            ASSERT_THAT(
                line, ::testing::MatchesRegex(fmt::format("step {:5}  loss .* samples/s.*", step)));
            EXPECT_EQ(line.find("step", 1), std::string::npos) << line;
        }
        EXPECT_EQ(step, paced_steps);
        EXPECT_EQ(series(run).size(), std::size_t{paced_steps});
    }
}

TEST_F(FullDisk, ThatStaysFullCostsTheLastCheckpointButNeitherReportNorTrace) {
    Child checkpoint =
        start("checkpoint", {.call = "write", .name = "weights", .milliseconds = -1});
    Child report = start("report", {.call = "write", .name = "report.html", .milliseconds = -1});
    Child metrics =
        start("metrics", {.call = "write", .name = "metrics.jsonl", .milliseconds = -1});
    Child trace = start("trace", {.call = "rename", .name = "measured", .milliseconds = -1});
    Child both = start("both", {.call = "write", .name = "report", .milliseconds = -1});
    const auto exists = [this](const char* run, std::string_view name) {
        return std::filesystem::exists(folder() / run / name);
    };
    const Outcome first = checkpoint.end();
    EXPECT_EQ(first.code, 6) << first.err;
    EXPECT_THAT(first.err, HasSubstr("weights.safetensors: cannot write to the file"));
    EXPECT_THAT(first.err, HasSubstr("hint: free some space on this disk"));
    const Outcome second = report.end();
    EXPECT_EQ(second.code, 6) << second.err;
    EXPECT_THAT(second.err, HasSubstr("report.html: cannot write"));
    const Outcome third = metrics.end();
    EXPECT_EQ(third.code, 6) << third.err;
    EXPECT_THAT(third.err, HasSubstr("metrics.jsonl: cannot be written"));
    const Outcome fourth = trace.end();
    EXPECT_EQ(fourth.code, 6) << fourth.err;
    EXPECT_THAT(fourth.err, HasSubstr("measured.trace.json: cannot replace"));
    EXPECT_THAT(fourth.err, HasSubstr("the run folder lacks measured.trace.json"));
    const Outcome fifth = both.end();
    EXPECT_EQ(fifth.code, 6) << fifth.err;
    EXPECT_THAT(fifth.err, HasSubstr("the run folder lacks report.json, report.html"));
    for (const char* const run : {"checkpoint", "report", "metrics", "trace"}) {
        EXPECT_EQ(exists(run, run_file::measured), std::string_view(run) != "trace") << run;
        EXPECT_TRUE(exists(run, run_file::report_json)) << run;
        EXPECT_EQ(exists(run, run_file::report_html), std::string_view(run) != "report") << run;
    }
    EXPECT_THAT(names_in("report"), ::testing::Contains("checkpoints/step-00000400"));
}

TEST_F(FullDisk, ThatIsFullFromTheStartRefusesTheTrainingAndLeavesNoFolder) {
    Child child = start("run", {.call = "write", .name = "plan.json", .milliseconds = -1});
    const Outcome outcome = child.end();
    EXPECT_EQ(outcome.code, 6) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("plan.json: cannot write"));
    EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("step")));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

/// A command that writes files outside of a run's folder, or a folder without training.
struct Writer {
    std::string name;
    std::vector<std::string> words;  ///< OUT is replaced by what it writes
    std::vector<std::string> files;  ///< names that its writes have in them
};

std::vector<std::string> with_out(std::vector<std::string> words, const std::string& out) {
    for (std::string& word : words) {
        const std::size_t at = word.find("OUT");
        if (at != std::string::npos) {
            word.replace(at, 3, out);
        }
    }
    return words;
}

class FullDiskBehindCommands : public FullDisk {
  protected:
    void SetUp() override {
        FullDisk::SetUp();
        file("small_open.toml", std::string(small_scenario));
        file("megatron.sh",
             "--pipeline-model-parallel-size 2 --num-layers 4 --hidden-size 64 "
             "--num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
             "--micro-batch-size 1 --global-batch-size 8 --vocab-size 100\n");
        file("torch.json", R"({"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "F0", "pid": 1, "tid": 1, "ts": 1, "dur": 3000},
{"ph": "X", "cat": "user_annotation", "name": "B0", "pid": 1, "tid": 1, "ts": 4000, "dur": 6000}]})");
    }

    std::vector<Writer> writers() const {
        const std::string scenario = path("small.toml");
        const std::string costs = path("small.csv");
        return {
            {"import", {"import", "csv", costs, "--out", "OUT.profile.json"}, {"profile.json"}},
            {"export",
             {"export", "svg", scenario, "--profile", costs, "--out", "OUT.svg"},
             {"svg"}},
            {"model", {"model", scenario, "--profile", costs, "--svg", "OUT.svg"}, {"svg"}},
            {"calibrate",
             {"calibrate",
              path("torch.json"),
              "--micro-batch-size",
              "2",
              "--forward",
              "block=F*",
              "--backward",
              "block=B*",
              "--out",
              "OUT.json"},
             {"json"}},
            {"simulate", {"simulate", scenario, "--profile", costs, "--out", "OUT"}, run_names},
            {"check", {"check", scenario, "--out", "OUT.json"}, {"json"}},
            {"profile", {"profile", scenario, "--quiet", "--out", "OUT.profile.json"}, {"profile"}},
        };
    }

    Child start_writer(const Writer& writer, const std::string& out, const Fault& fault) const {
        return {with_out(writer.words, path(out)),
                path(out + ".log"),
                {"LD_PRELOAD=" + places::full_disk_library(),
                 "ASAN_OPTIONS=verify_asan_link_order=0:intercept_tls_get_addr=0",
                 fmt::format("PIPETWIN_FULL_DISK={} {} {} {} {}",
                             fault.call,
                             fault.name,
                             fault.milliseconds,
                             fault.code,
                             path(out + ".failed"))}};
    }

    const std::vector<std::string> run_names{
        "scenario.toml", "profile.json", "plan.json", "schedule.csv", "predicted.trace.json"};
};

// Each of them failed at once.
TEST_F(FullDiskBehindCommands, ForASecondAtAnyCallOnAnyFileItCostsNothing) {
    struct Started {
        std::string what;
        std::string out;
        Child child;
    };
    std::vector<Started> started;
    for (const Writer& writer : writers()) {
        for (const std::string& file : writer.files) {
            for (const char* const call : {"open", "write", "close", "rename"}) {
                const int code = std::array{ENOSPC, EIO, EDQUOT}.at(started.size() % 3);
                const std::string out = fmt::format("out{}", started.size());
                const std::string name = writer.files.size() > 1 ? file : out + "." + file;
                started.push_back(
                    {fmt::format("{}: {} {}", writer.name, call, name),
                     out,
                     start_writer(writer,
                                  out,
                                  {.call = call,
                                   .name = writer.files.size() > 1 ? out + "/" + file : name,
                                   .milliseconds = 1000,
                                   .code = code})});
            }
        }
    }
    for (Started& one : started) {
        SCOPED_TRACE(one.what);
        const Outcome outcome = one.child.end();
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_TRUE(std::filesystem::exists(path(one.out + ".failed"))) << "nothing failed";
        if (!one.what.starts_with("profile")) {  // which is quiet
            EXPECT_THAT(outcome.err, HasSubstr("; waits for the disk"));
        }
    }
}

TEST_F(FullDiskBehindCommands, ThatStaysFullIsAnErrorThatSaysWhatToDo) {
    std::vector<Child> children;
    const std::vector<Writer> all = writers();
    for (std::size_t i = 0; i < all.size(); ++i) {
        children.push_back(
            start_writer(all[i],
                         fmt::format("out{}", i),
                         {.call = "write", .name = fmt::format("out{}", i), .milliseconds = -1}));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(all[i].name);
        const Outcome outcome = children[i].end();
        EXPECT_EQ(outcome.code, 6) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
        EXPECT_THAT(outcome.err, HasSubstr("hint: "));
    }
}

TEST_F(FullDiskBehindCommands, WhatWaitingDoesNotMendIsToldAtOnce) {
    const auto begin = std::chrono::steady_clock::now();
    for (const Writer& writer : writers()) {
        const Outcome outcome = pipetwin(with_out(writer.words, path("small.csv/no/such")));
        EXPECT_EQ(outcome.code, 6) << writer.name << outcome.err;
        EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("waits for the disk"))) << writer.name;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

// No test let the creation of threads fail.
TEST_F(FullDisk, ThreadsThatTheSystemDoesNotGiveAreAnErrorThatSaysWhatToDo) {
    std::vector<Child> children;
    constexpr int most = 10;
    for (int threads = 0; threads < most; ++threads) {
        children.emplace_back(train(fmt::format("run{}", threads)),
                              path(fmt::format("log{}", threads)),
                              std::vector<std::string>{
                                  "LD_PRELOAD=" + places::full_disk_library(),
                                  "ASAN_OPTIONS=verify_asan_link_order=0:intercept_tls_get_addr=0",
                                  fmt::format("PIPETWIN_MOST_THREADS={}", threads)});
    }
    bool is_told = false;
    for (int threads = 0; threads < most; ++threads) {
        SCOPED_TRACE(threads);
        const Outcome outcome = children[static_cast<std::size_t>(threads)].end();
        if (outcome.code == 0) {
            EXPECT_GT(threads, 1);  // each of the two ranks has a thread
            continue;
        }
        EXPECT_EQ(outcome.code, 5) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("thread"));
        EXPECT_THAT(outcome.err, HasSubstr("ulimit -u"));
        is_told = is_told || outcome.err.find("threads that the ranks need") != std::string::npos;
    }
    EXPECT_TRUE(is_told);
}

}  // namespace full_disk_test
}  // namespace pipetwin::cli
