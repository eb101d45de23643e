// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/cuda_emulation/injection.h"
#include "tests/support/places.h"

/// What a user with a GPU reads, on the emulated one.
namespace pipetwin::cli {
namespace gpu_test {

using cuda::emulation::Call;
using cuda::emulation::Injection;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Gpu : public InFolder {
  protected:
    Gpu() { ::setenv("PIPETWIN_MODULE_PATH", places::emulated_module_folder().c_str(), 1); }
    ~Gpu() override {
        inject(nullptr);
        ::unsetenv("PIPETWIN_MODULE_PATH");
    }

    static void inject(const Injection* injection) {
        void* const module = ::dlopen(places::emulated_module().c_str(), RTLD_NOW);
        reinterpret_cast<decltype(&pipetwin_emulated_inject)>(
            ::dlsym(module, "pipetwin_emulated_inject"))(injection);
    }

    std::vector<std::string> command(const std::string& name,
                                     const std::vector<std::string>& more = {}) const {
        return joined({name,
                       file("small.toml", small_scenario),
                       "--profile",
                       file("small.csv", small_profile),
                       "--out",
                       path("run"),
                       "--set",
                       "cluster.backend=cuda"},
                      more);
    }
};

TEST_F(Gpu, TrainsAndTellsWhatLiesBesideThePlan) {
    const Outcome outcome = pipetwin(command("train", {"--json"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("outside the plan: CUDA context "));
    EXPECT_THAT(outcome.err, HasSubstr("cuBLAS workspace 32.00 MiB per rank"));
    const auto beside = outcome.json()["memory_beside"];
    EXPECT_EQ(beside[0]["name"], "CUDA context");
    EXPECT_TRUE(beside[0]["ranks"].is_null());
    EXPECT_EQ(beside[1]["ranks"], (std::vector<int>{32 << 20, 32 << 20}));
}

TEST_F(Gpu, ReportsSayThatSharedStreamsDoNotValidateTheSchedule) {
    const Outcome outcome = pipetwin(command("run", {"--set", "cluster.gpu_shares=streams"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const char* const note = "this timing does not validate the schedule";
    EXPECT_THAT(outcome.out, HasSubstr(note));
    EXPECT_THAT(content_of(folder() / "run" / "report.html"), HasSubstr(note));
    EXPECT_THAT(content_of(folder() / "run" / "report.json"), HasSubstr(note));
    const Outcome own = pipetwin(command("run", {"--force"}));
    EXPECT_THAT(own.out, Not(HasSubstr(note)));
}

TEST_F(Gpu, AFailedCallEndsTheRunWithItsPlace) {
    const Injection injection{.call = Call::Launch, .after = 40, .error = 701};
    inject(&injection);
    const Outcome outcome = pipetwin(command("train"));
    EXPECT_EQ(outcome.code, 7);
    EXPECT_THAT(outcome.err,
                ContainsRegex("error: rank [01], step [0-2], [01][A-Z]+[0-3]* .the .*: [a-z_A-Z]+: "
                              "too many resources requested for launch .701."));
    EXPECT_THAT(outcome.err, HasSubstr("hint: "));
}

TEST_F(Gpu, SharesThatDoNotFitAreRefused) {
    const Outcome wrong = pipetwin(command("train", {"--set", "cluster.gpu_shares=[4]"}));
    EXPECT_EQ(wrong.code, 3);
    EXPECT_THAT(wrong.err, HasSubstr("2 entries, one for each rank"));
    const Outcome many = pipetwin(command("train", {"--set", "cluster.gpu_shares=[9, 9]"}));
    EXPECT_EQ(many.code, 4);
    EXPECT_THAT(many.err, HasSubstr("cluster.gpu_shares: 18 units of 8 multiprocessors"));
}

TEST_F(Gpu, TooLargeAModelIsRefusedBeforeAFolderIsMade) {
    const Outcome outcome =
        pipetwin(command("train", {"--set", "model.sizes=[8, 30000, 30000, 4]"}));
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("the 2 ranks need"));
    EXPECT_THAT(outcome.err, HasSubstr("rank         total       weights"));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Gpu, DevicesMeasuresWhereItIsAskedTo) {
    const Outcome plain = pipetwin({"devices", "--json"});
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_TRUE(plain.json()["cuda"]["devices"][0]["rates"].is_null());
    const std::vector<std::string> measured{"devices", "--measure", "--matrix", "16"};
    const Outcome json = pipetwin(joined(measured, {"--json"}));
    ASSERT_EQ(json.code, 0) << json.err;
    const auto device = json.json()["cuda"]["devices"][0];
    EXPECT_EQ(device["free_bytes"], std::int64_t{4} << 30);
    EXPECT_EQ(device["rates"].size(), 5U);
    for (const auto& [name, rate] : device["rates"].items()) {
        EXPECT_GT(rate.get<double>(), 0) << name;
    }
    const Outcome text = pipetwin(measured);
    EXPECT_THAT(text.out, HasSubstr("4.00 GiB free of 4.00 GiB"));
    EXPECT_THAT(text.out, ContainsRegex("matrix products .* TFLOP/s bf16, .* TFLOP/s fp32"));
}

}  // namespace gpu_test
}  // namespace pipetwin::cli
