// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/launch_environment.h"

#include <map>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin::exec {
namespace launch_environment_test {

using ::testing::HasSubstr;
using Values = std::map<std::string, std::string>;

std::optional<LaunchedProcess> launched_with(const Values& values) {
    return launched_process([values](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional(found->second);
    });
}

const Values torchrun{{"RANK", "3"},
                      {"WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "1"},
                      {"MASTER_ADDR", "node0"},
                      {"MASTER_PORT", "29500"}};
const Values open_mpi{{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "5"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}};
const Values pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
const Values slurm{{"SLURM_PROCID", "6"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_LOCALID", "2"},
                   {"SLURM_STEP_NODELIST", "node[0-1]"}};

Values together(Values some, const Values& more) {
    some.insert(more.begin(), more.end());
    return some;
}

TEST(LaunchEnvironment, WithoutAnyVariableTheProcessIsAlone) {
    EXPECT_FALSE(launched_with({}).has_value());
    EXPECT_FALSE(launched_with({{"MASTER_ADDR", "node0"}, {"LOCAL_RANK", "0"}}).has_value());
}

/// torchrun's own store may listen at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE): NCCL cannot.
TEST(LaunchEnvironment, TorchrunsProcessesMeetWhereNobodyElseListens) {
    const auto place = [](const Values& more) {
        return launched_with(together(more, torchrun))->meeting_place;
    };
    EXPECT_EQ(place({}), "node0:29500");
    EXPECT_EQ(place({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}), "node0:29500");
    EXPECT_EQ(place({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), "node0:29501");
    EXPECT_EQ(place({{"MASTER_ADDR", "fe80::1"}}), "[fe80::1]:29500");
    EXPECT_EQ(place({{"NCCL_COMM_ID", "node1:7"}}), "node1:7");
}

TEST(LaunchEnvironment, TorchrunTellsHowManyProcessesAHostHas) {
    EXPECT_EQ(launched_with(torchrun)->local_count, 0);
    EXPECT_EQ(launched_with(together({{"LOCAL_WORLD_SIZE", "2"}}, torchrun))->local_count, 2);
}

TEST(LaunchEnvironment, EachLauncherIsUnderstood) {
    const LaunchedProcess by_torchrun = launched_with(torchrun).value();
    EXPECT_EQ(by_torchrun.launcher, Launcher::Torchrun);
    EXPECT_EQ(by_torchrun.index, 3);
    EXPECT_EQ(by_torchrun.count, 4);
    EXPECT_EQ(by_torchrun.local_index, 1);
    EXPECT_EQ(by_torchrun.meeting_place, "node0:29500");

    const LaunchedProcess by_mpirun = launched_with(open_mpi).value();
    EXPECT_EQ(by_mpirun.launcher, Launcher::OpenMpi);
    EXPECT_EQ(by_mpirun.index, 2);
    EXPECT_EQ(by_mpirun.count, 5);

    const LaunchedProcess by_pmi = launched_with(pmi).value();
    EXPECT_EQ(by_pmi.launcher, Launcher::Pmi);
    EXPECT_EQ(by_pmi.index, 1);
    EXPECT_EQ(by_pmi.count, 2);

    const LaunchedProcess by_srun = launched_with(slurm).value();
    EXPECT_EQ(by_srun.launcher, Launcher::Slurm);
    EXPECT_EQ(by_srun.index, 6);
    EXPECT_EQ(by_srun.count, 8);
    EXPECT_EQ(by_srun.local_index, 2);
}

TEST(LaunchEnvironment, TorchrunCountsBeforeOpenMpiBeforePmiBeforeSlurm) {
    EXPECT_EQ(launched_with(together(together(torchrun, open_mpi), slurm))->launcher,
              Launcher::Torchrun);
    EXPECT_EQ(launched_with(together(together(open_mpi, pmi), slurm))->launcher, Launcher::OpenMpi);
    EXPECT_EQ(launched_with(together(pmi, slurm))->launcher, Launcher::Pmi);
}

TEST(LaunchEnvironment, AShellWithinASlurmJobIsNoTaskOfAStep) {
    Values shell = slurm;
    shell.erase("SLURM_STEP_NODELIST");
    EXPECT_FALSE(launched_with(shell).has_value());
}

struct Broken {
    const char* name;
    const char* value;  ///< null: not set
};
void PrintTo(const Broken& broken, std::ostream* out) {
    *out << broken.name << '=' << (broken.value == nullptr ? "(not set)" : broken.value);
}

class BrokenTorchrun : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenTorchrun, IsRefusedWithTheVariablesName) {
    Values values = torchrun;
    values.erase(GetParam().name);
    if (GetParam().value != nullptr) {
        values[GetParam().name] = GetParam().value;
    }
    const Error error = testing::error_of([&] { launched_with(values); });
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_EQ(error.place(), GetParam().name);
    EXPECT_THAT(error.hint(), HasSubstr("torchrun"));
}

INSTANTIATE_TEST_SUITE_P(LaunchEnvironment,
                         BrokenTorchrun,
                         ::testing::Values(Broken{"MASTER_ADDR", nullptr},
                                           Broken{"MASTER_ADDR", ""},
                                           Broken{"MASTER_PORT", nullptr},
                                           Broken{"MASTER_PORT", "0"},
                                           Broken{"MASTER_PORT", "70000"},
                                           Broken{"RANK", nullptr},
                                           Broken{"RANK", "4"},
                                           Broken{"RANK", "-1"},
                                           Broken{"RANK", "one"},
                                           Broken{"WORLD_SIZE", nullptr},
                                           Broken{"WORLD_SIZE", "4x"},
                                           Broken{"WORLD_SIZE", "99999999999"},
                                           Broken{"LOCAL_RANK", "9"}));

}  // namespace launch_environment_test
}  // namespace pipetwin::exec
