// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"

// What a schedule is stands in its row, beside its generator (core/schedule/generators/). Other
// sources of the product read the row: none of them has the name of a schedule as text, or asks
// which schedule it has before it. To take a certain one for a purpose is fine
// (`ScheduleKind::OneFOneB`).

namespace schedule_names_test {

namespace fs = std::filesystem;
using pipetwin::known_schedules;
using pipetwin::ScheduleName;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Exception {
    std::string_view path;
    std::string_view name;
    std::string_view why;
};

constexpr std::array exceptions{
    Exception{"cli/base/file_kinds.cpp", "pipedream", "what `import` calls PipeDream's profiles"},
    Exception{"cli/commands/import.cpp", "pipedream", "what `import` calls PipeDream's profiles"},
    Exception{"cli/interop/import/known_format.cpp", "pipedream", "the same"},
    Exception{"core/interop/launch/program_logs.cpp", "1f1b", "nanotron's own word"},
    Exception{"gui/view/playground/playground.h", "1f1b", "what the playground shows first"},
    Exception{
        "gui/view/playground/playground.h", "interleaved-1f1b", "what a comparison begins with"},
    Exception{"gui/view/run/scenario_run.cpp", "1f1b", "what a profile alone is shown with"}};

bool is_excepted(std::string_view path, std::string_view name) {
    return std::ranges::any_of(exceptions, [&](const Exception& exception) {
        return exception.path == path && exception.name == name;
    });
}

/// The string literals of a line, without those of its comment.
std::vector<std::string> literals_of(std::string_view line) {
    std::vector<std::string> literals;
    bool inside = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (!inside && line.substr(i).starts_with("//")) {
            break;
        }
        if (line[i] == '"') {
            inside = !inside;
            if (inside) {
                literals.emplace_back();
            }
        } else if (inside) {
            literals.back() += line[i];
            if (line[i] == '\\' && i + 1 < line.size()) {
                literals.back() += line[++i];
            }
        }
    }
    return literals;
}

/// Ours or PyTorch's; or what several of ours begin with ("zb-").
bool names_schedules(std::string_view literal) {
    const std::vector<ScheduleName> names = known_schedules();
    return !literal.empty() && std::ranges::any_of(names, [&](const ScheduleName& known) {
        return literal == known.name || literal == known.torch_name ||
               (literal.ends_with('-') && known.name.starts_with(literal));
    });
}

/// What is wrong with one line of the file at `path` (from the source root); empty if nothing.
std::string violation(std::string_view path, std::string_view line) {
    for (const std::string& literal : literals_of(line)) {
        if (names_schedules(literal) && !is_excepted(path, literal)) {
            return "a schedule by its name";
        }
    }
    for (const std::string_view question : {"== ", "!= ", "case "}) {
        if (line.find(fmt::format("{}ScheduleKind::", question)) != std::string_view::npos &&
            line.find("ScheduleKind::FromFile") == std::string_view::npos) {
            return "a question which schedule it is";
        }
    }
    return {};
}

std::vector<std::string> violations_in(const fs::path& root) {
    std::vector<std::string> found;
    for (const char* const folder : {"core", "sim", "exec", "gui", "cli"}) {
        if (!fs::is_directory(root / folder)) {
            continue;
        }
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            const std::string path = fs::relative(entry.path(), root).generic_string();
            const std::string ending = entry.path().extension().string();
            if (path.starts_with("core/schedule/generators/") ||
                (ending != ".h" && ending != ".cpp" && ending != ".cu")) {
                continue;
            }
            std::ifstream stream(entry.path());
            int number = 1;
            for (std::string line; std::getline(stream, line); ++number) {
                if (const std::string what = violation(path, line); !what.empty()) {
                    found.push_back(fmt::format("{}:{}: {}: {}", path, number, what, line));
                }
            }
        }
    }
    return found;
}

TEST(ScheduleNames, StandBesideTheGeneratorsAlone) {
    EXPECT_THAT(violations_in(pipetwin::places::source_folder()), IsEmpty());
}

// The checker itself.

TEST(ScheduleNames, AreToldAsText) {
    constexpr std::string_view path = "sim/search/candidate.cpp";
    EXPECT_THAT(violation(path, R"(if (schedule == "gpipe") {)"), HasSubstr("by its name"));
    EXPECT_THAT(violation(path, R"(f("a", "1F1B");)"), HasSubstr("by its name"));
    EXPECT_THAT(violation(path, R"(schedule.starts_with("zb-"))"), HasSubstr("by its name"));
    EXPECT_EQ(violation(path, R"(std::string name;  ///< "gpipe", or a file)"), "");
    EXPECT_EQ(violation(path, R"(f("set schedule = \"gpipe\"");)"), "");
    EXPECT_EQ(violation("cli/commands/import.cpp", R"(.name = "pipedream")"), "");
    EXPECT_THAT(violation(path, R"(.name = "pipedream")"), HasSubstr("by its name"));
}

TEST(ScheduleNames, AreToldAsQuestions) {
    constexpr std::string_view path = "sim/search/candidate.cpp";
    EXPECT_THAT(violation(path, "if (kind == ScheduleKind::GPipe) {"), HasSubstr("question"));
    EXPECT_THAT(violation(path, "    case ScheduleKind::ZbH1:"), HasSubstr("question"));
    EXPECT_EQ(violation(path, "costs.schedule = ScheduleKind::GPipe;"), "");
    EXPECT_EQ(violation(path, "if (kind == ScheduleKind::FromFile) {"), "");
}

TEST(ScheduleNames, AreFoundInAFileOnDisk) {
    const pipetwin::tests::ScratchFolder root;
    fs::create_directories(root / "sim");
    fs::create_directories(root / "core/schedule/generators");
    root.write("sim/bad.cpp", "\nauto x = \"zb-v\";\n");
    root.write("core/schedule/generators/zb_v.cpp", "auto x = \"zb-v\";\n");
    EXPECT_THAT(violations_in(root.path()), ElementsAre(HasSubstr("sim/bad.cpp:2: a schedule")));
}

}  // namespace schedule_names_test
