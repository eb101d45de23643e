// SPDX-License-Identifier: Apache-2.0
#include "cli/base/exit.h"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>

#include "cli/base/stop_signal.h"
#include "cli/command_line.h"
#include "core/base/error.h"
#include "core/base/undertaking.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace exit_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Reported {
    int code = -1;
    std::string err;
};

template <class Failure>
Reported report(const Failure& failure) {
    std::ostringstream out;
    std::ostringstream err;
    Console console(out, err, {});
    const int code = report_failure(std::make_exception_ptr(failure), console);
    EXPECT_EQ(out.str(), "");
    return {.code = code, .err = err.str()};
}

TEST(ExitCodes, FollowTheTableOfTheContract) {
    const std::vector<std::pair<ErrorKind, int>> table{{ErrorKind::Other, 1},
                                                       {ErrorKind::Usage, 2},
                                                       {ErrorKind::BadInput, 3},
                                                       {ErrorKind::Infeasible, 4},
                                                       {ErrorKind::Unavailable, 5},
                                                       {ErrorKind::Io, 6},
                                                       {ErrorKind::WorkerFailed, 7},
                                                       {ErrorKind::Hang, 8},
                                                       {ErrorKind::NotFinite, 9},
                                                       {ErrorKind::Disagreement, 10}};
    for (const auto& [kind, code] : table) {
        EXPECT_EQ(report(Error(kind, "here", "text", "do that")).code, code);
    }
    EXPECT_EQ(report(Stopped(SIGINT, "stopped")).code, 130);
    EXPECT_EQ(report(Stopped(SIGTERM, "stopped")).code, 143);
}

TEST(ExitCodes, OfWhatIsNoErrorOfOurs) {
    EXPECT_EQ(report(std::runtime_error("odd")).code, 1);
    EXPECT_EQ(report(InternalError("row out of range")).code, 1);
    EXPECT_EQ(report(std::bad_alloc()).code, 1);
    EXPECT_EQ(report(std::system_error(std::make_error_code(std::errc::permission_denied))).code,
              6);
}

// What ends a program destroys what a worker may still be using.
TEST(ExitCodes, AfterAHangTheProgramEndsAtOnce) {
    const auto end = [](int code) {
        std::atexit([] { std::_Exit(99); });
        end_program(code);
    };
    EXPECT_EXIT(end(8), ::testing::ExitedWithCode(8), "");
    EXPECT_EXIT(end(7), ::testing::ExitedWithCode(99), "");
}

TEST(ErrorText, NamesPlaceTextAndHintAndNothingElse) {
    EXPECT_EQ(
        report(
            Error(
                ErrorKind::BadInput, "x.toml:3:1", "'stagess' is no key", "did you mean 'stages'?"))
            .err,
        "error: x.toml:3:1: 'stagess' is no key\nhint: did you mean 'stages'?\n");
    EXPECT_EQ(report(Error(ErrorKind::Other, "", "odd", "mend it")).err,
              "error: odd\nhint: mend it\n");
}

TEST(Console, ResultThatCannotBeWrittenIsAnError) {
    std::ostringstream out;
    std::ostringstream err;
    out.setstate(std::ios::badbit);
    EXPECT_EQ(run_command_line({"--version"}, out, err), 6);
    EXPECT_THAT(err.str(), HasSubstr("stdout"));
}

TEST(StopSignal, FirstSignalIsNotedAndTheOldHandlerComesBack) {
    {
        const StopSignal stop;
        EXPECT_EQ(StopSignal::received(), 0);
        std::raise(SIGTERM);
        EXPECT_EQ(StopSignal::received(), SIGTERM);
    }
    struct sigaction now {};
    sigaction(SIGTERM, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(StopSignal, SecondSignalEndsTheProgramAtOnce) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            const StopSignal stop;
            std::raise(SIGINT);
            std::raise(SIGINT);
        },
        ::testing::ExitedWithCode(130),
        "");
}

class Failures : public InFolder {};

TEST_F(Failures, MissingScenarioIsAnInputOutputError) {
    const Outcome outcome = pipetwin({"run", path("none.toml")});
    EXPECT_EQ(outcome.code, 6);
    EXPECT_THAT(outcome.err, HasSubstr("none.toml"));
}

TEST_F(Failures, BadScenarioNamesFileLineColumnAndTheNearestKey) {
    const std::string scenario =
        file("bad.toml", "[model]\nkind = \"mlp\"\nsizes = [8, 4]\n[pipeline]\nstagess = 2\n");
    const std::string good = file("good.toml", small_scenario);
    for (const char* const command : {"run", "simulate", "train", "profile", "check"}) {
        const Outcome outcome = pipetwin({command, scenario});
        EXPECT_EQ(outcome.code, 3) << command;
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.err,
                    StartsWith("error: " + scenario +
                               ":5:1: unknown key 'stagess' in 'pipeline'\n"
                               "hint: did you mean 'stages'?\n"))
            << command;
        EXPECT_THAT(pipetwin({command, good, "--set", "pipeline.chunkss=2"}).err,
                    StartsWith("error: --set pipeline.chunkss: unknown key 'chunkss' in "))
            << command;
    }
}

TEST_F(Failures, AModelThatAFormatCannotSayIsNamedWhereItIsWritten) {
    const std::string scenario = file("mlp.toml", "[model]\nkind = \"mlp\"\nsizes = [8, 4]\n");
    EXPECT_THAT(pipetwin({"export", "torchtitan", scenario, "--out", path("x")}).err,
                StartsWith("error: " + scenario + ":2:8: model.kind = \"mlp\""));
}

TEST_F(Failures, AutoThatIsNotPlannedYetIsRefusedNamingTheValueToSet) {
    const std::string scenario = file("auto.toml", small_scenario);
    const Outcome outcome =
        pipetwin({"train", scenario, "--out", path("run"), "--set", "pipeline.stages=auto"});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("stages = "));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Failures, CudaBackendIsMissingHere) {
    const std::string scenario = file("small.toml", small_scenario);
    const Outcome outcome =
        pipetwin({"train", scenario, "--out", path("run"), "--set", "cluster.backend=cuda"});
    EXPECT_EQ(outcome.code, 5);
    EXPECT_THAT(outcome.err, HasSubstr("cluster.backend: cuda"));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Failures, OutThatIsNoFolderIsAnInputOutputError) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string occupied = file("occupied", "");
    EXPECT_EQ(pipetwin({"train", scenario, "--out", occupied}).code, 6);
}

TEST_F(Failures, ModelKnownByItsCostsOnlyCanBeSimulatedButNotRun) {
    file("costs.csv", small_profile);
    const std::string scenario =
        file("costs.toml",
             "[model]\nkind = \"profile\"\nfile = \"costs.csv\"\n"
             "[training]\nbatch = 2\n[pipeline]\nstages = 2\nmicro_batches = 2\n");
    EXPECT_EQ(pipetwin({"simulate", scenario}).code, 0) << pipetwin({"simulate", scenario}).err;
    EXPECT_EQ(pipetwin({"profile", scenario}).code, 3);
    EXPECT_EQ(pipetwin({"run", scenario, "--out", path("run")}).code, 3);
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Failures, WorkerThatFailsOrDivergesGivesItsOwnCode) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const Outcome outcome = pipetwin({"train",
                                      scenario,
                                      "--profile",
                                      profile,
                                      "--out",
                                      path("run"),
                                      "--set",
                                      "training.learning_rate=1e6",
                                      "--set",
                                      "training.steps=200"});
    EXPECT_EQ(outcome.code, 9) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stage"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "run" / "metrics.jsonl"));
}

TEST_F(Failures, DevicesNeverFail) {
    const Outcome outcome = pipetwin({"devices", "--json"});
    EXPECT_EQ(outcome.code, 0);
    const auto result = outcome.json();
    EXPECT_GE(result["machine"]["cores"].get<int>(), 1);
    EXPECT_GT(result["machine"]["memory_bytes"].get<std::int64_t>(), 0);
    EXPECT_TRUE(result["cuda"].contains("state"));
    EXPECT_THAT(pipetwin({"devices"}).out, HasSubstr("this-machine"));
    EXPECT_GE(result["profiles"].size(), 12U);
    EXPECT_THAT(result["models"], ::testing::Contains("llama-3-70b"));
    EXPECT_THAT(result["clusters"], ::testing::Contains("8x-h100-sxm"));
    EXPECT_EQ(result["profiles"][0]["name"], "a100-sxm-80");
    EXPECT_EQ(result["profiles"][0]["context_bytes"]["kind"], "estimated");
    EXPECT_THAT(pipetwin({"devices"}).out, HasSubstr("h100-sxm"));
}

// The error for an unknown link names this list, which had no links.
TEST_F(Failures, DevicesListTheLinksThatAScenarioCanName) {
    const auto links = pipetwin({"devices", "--json"}).json()["links"];
    std::vector<std::string> names;
    for (const auto& link : links) {
        names.push_back(link["name"]);
        if (names.back() == "ethernet-25") {  // 25e9 bits are 3.125e9 bytes
            EXPECT_EQ(link["bytes_per_second"]["value"], 3.125e9);
            EXPECT_THAT(link["bytes_per_second"]["source"].get<std::string>(),
                        HasSubstr("IEEE 802.3"));
        }
    }
    EXPECT_THAT(names, ::testing::IsSupersetOf({"nvlink-4", "ethernet-25", "infiniband-ndr"}));
    EXPECT_THAT(pipetwin({"devices"}).out,
                ::testing::ContainsRegex("ethernet-25 +25 Gbit/s +30 us +datasheet +Ethernet"));
}

// Refusals of some forty places in the code had no hint.
TEST(FailureReport, OfEveryKindSayWhatCanBeDoneAlsoWhereNobodyThoughtOfIt) {
    for (const ErrorKind kind : {ErrorKind::Other,
                                 ErrorKind::Usage,
                                 ErrorKind::BadInput,
                                 ErrorKind::Infeasible,
                                 ErrorKind::Unavailable,
                                 ErrorKind::Io,
                                 ErrorKind::WorkerFailed,
                                 ErrorKind::Hang,
                                 ErrorKind::NotFinite,
                                 ErrorKind::Disagreement}) {
        EXPECT_THAT(report(Error(kind, "here", "text")).err,
                    ::testing::ContainsRegex("hint: .{20}"));
    }
    EXPECT_THAT(report(std::runtime_error("odd")).err, HasSubstr("hint: "));
    EXPECT_THAT(report(std::bad_alloc()).err, HasSubstr("hint: "));
    EXPECT_THAT(report(Error(ErrorKind::Io, "here", "text", "do that")).err,
                HasSubstr("hint: do that\n"));
}

TEST(FailureReport, OutOfMemoryNamesWhatWasTooLargeAndWhatWouldDo) {
    std::exception_ptr failure;
    try {
        const Undertaking outer("the whole", "buy memory");
        const Undertaking inner("the plan of 64 stages", "fewer micro-batches do");
        throw std::bad_alloc();
    } catch (...) {
        failure = std::current_exception();
    }
    std::ostringstream out;
    std::ostringstream err;
    Console console(out, err, {});
    EXPECT_EQ(report_failure(failure, console), 1);
    EXPECT_EQ(err.str(),
              "error: out of memory: there is not enough for the plan of 64 stages\n"
              "hint: fewer micro-batches do\n");
}

TEST(FailureReport, OfAnEarlierUndertakingAreNotNamedAgain) {
    try {
        const Undertaking done("an old one", "nothing");
        throw std::runtime_error("caught and mended");
    } catch (const std::runtime_error&) {
    }
    { const Undertaking went_well("a new one", "nothing"); }
    EXPECT_THAT(report(std::bad_alloc()).err, ::testing::Not(HasSubstr("old one")));
}

TEST(FailureReport, OfThreadsAndFileSizesNameTheLimit) {
    const Reported thread =
        report(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
    EXPECT_EQ(thread.code, 5);
    EXPECT_THAT(thread.err, HasSubstr("starts no more threads or processes"));
    EXPECT_THAT(thread.err, HasSubstr("ulimit -u"));
    EXPECT_EQ(
        report(std::runtime_error("pthread_create has failed: Resource temporarily unavailable"))
            .code,
        5);
    const Reported size =
        report(std::system_error(std::make_error_code(std::errc::file_too_large)));
    EXPECT_EQ(size.code, 6);
    EXPECT_THAT(size.err, HasSubstr("ulimit -f"));
}

}  // namespace exit_test
}  // namespace pipetwin::cli
