// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"

// Which folder may include which, read from the include lines:
//
//     core  <--  sim   <--  gui/view  <--  gui, cli
//     core  <--  exec  <--  cli
//
// and, inside each of them, which wing: those on the floors below it (`floors`). Besides: Qt stays
// in gui/ but for gui/view/, MPI in exec/transport/mpi/, CUDA's headers in exec/cuda/, and core/
// and sim/ have no threads, clocks, random numbers or streams of their own.
// docs/internals/architecture.md says why.

namespace layout_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Arrows {
    std::string_view from;
    std::vector<std::string_view> to;
};

const std::vector<Arrows>& allowed_arrows() {
    static const std::vector<Arrows> arrows = {
        {"core", {"core"}},
        {"sim", {"core", "sim"}},
        {"exec", {"core", "exec"}},
        {"gui", {"core", "sim", "gui"}},
        {"cli", {"core", "sim", "exec", "gui/view", "cli"}},
        {"bench", {"core", "sim", "exec", "gui", "bench"}},
        {"tests", {"core", "sim", "exec", "gui", "cli", "bench", "tests"}},
    };
    return arrows;
}

/// The wings of a folder, from the lowest floor up. A wing includes those of lower floors and
/// itself, none beside or above it.
struct House {
    std::string_view folder;
    std::vector<std::vector<std::string_view>> floors;
};

const std::vector<House>& houses() {
    static const std::vector<House> all = {
        {"core",
         {{"core/base"},
          {"core/text"},
          {"core/grid", "core/model"},
          {"core/costs/collectives"},
          {"core/costs/devices"},
          {"core/costs", "core/schedule"},
          {"core/schedule/generators", "core/partition", "core/sharing"},
          {"core/plan"},
          {"core/timeline", "core/scenario"},
          {"core/artifacts", "core/svg", "core/interop/launch"},
          {"core/interop", "core/interop/traces"},
          {"core/interop/jobs"}}},
        {"sim",
         {{"sim/stats"},
          {"sim/engine"},
          {"sim/simulate"},
          {"sim/explain", "sim/bounds"},
          {"sim/variation", "sim/search"},
          {"sim/calibration"},
          {"sim/questions"}}},
        {"exec",
         {{"exec/base"},
          {"exec/device", "exec/data/images"},
          {"exec/cpu/products"},
          {"exec/cpu", "exec/data", "exec/memory_plan"},
          {"exec/cpu/columns", "exec/layers", "exec/transport"},
          {"exec/stage", "exec/transport/mpi", "exec/cuda/runtime"},
          {"exec/cuda/kernels"},
          {"exec/cuda/columns"},
          {"exec/cuda/cudnn", "exec/cuda/nccl"},
          {"exec/cuda/device"},
          {"exec/cuda/module"},
          {"exec/gpu"},
          {"exec/executor/reductions"},
          {"exec/executor"},
          {"exec/replicas"},
          {"exec/profiling"},
          {"exec/decoding"},
          {"exec/training"}}},
        {"gui",
         {{"gui/view/run"},
          {"gui/view/timeline", "gui/view/what_if", "gui/view/planning"},
          {"gui/view/analysis"},
          {"gui/view/playground"},
          {"gui/base"},
          {"gui/timeline", "gui/run", "gui/start"},
          {"gui/panels", "gui/what_if", "gui/playground", "gui/planning", "gui/side_by_side"},
          {"gui/window"}}},
        {"cli",
         {{"cli/base", "cli/figures/module"},
          {"cli/predict", "cli/processes", "cli/shell", "cli/figures"},
          {"cli/text"},
          {"cli/run_folder"},
          {"cli/training", "cli/interop", "cli/tour"},
          {"cli/interop/import", "cli/interop/export"},
          {"cli/commands", "cli/planner"},
          {"cli"},
          {"cli/library"}}},
    };
    return all;
}

/// A folder with more sources than this is a heap.
constexpr std::size_t most_rooms = 30;

bool contains(const auto& list, std::string_view text) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

bool begins_with_any(std::string_view text, const auto& prefixes) {
    return std::any_of(
        prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

std::string_view top_folder(std::string_view path) {
    return path.substr(0, path.find('/'));
}

bool is_inside(std::string_view path, std::string_view folder) {
    return path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/';
}

/// Which wing of a house a file belongs to: the longest that it lies in.
struct Wing {
    std::string_view name;  ///< empty: none
    std::size_t floor = 0;
};

Wing wing_of(const House& house, std::string_view path) {
    Wing found;
    for (std::size_t floor = 0; floor < house.floors.size(); ++floor) {
        for (const std::string_view name : house.floors[floor]) {
            if (is_inside(path, name) && name.size() > found.name.size()) {
                found = {.name = name, .floor = floor};
            }
        }
    }
    return found;
}

/// Empty where the wing of `path` may include that of `header`, or not both lie in one house.
std::string check_wings(std::string_view path, std::string_view header) {
    for (const House& house : houses()) {
        if (!is_inside(path, house.folder) || !is_inside(header, house.folder)) {
            continue;
        }
        const Wing from = wing_of(house, path);
        const Wing to = wing_of(house, header);
        if (from.name.empty() || to.name.empty()) {
            return "a folder without a place in the picture";
        }
        if (from.name != to.name && to.floor >= from.floor) {
            return fmt::format("{} includes {}, which is no floor below", from.name, to.name);
        }
    }
    return {};
}

struct Include {
    bool quoted = false;
    std::string_view header;
};

/// `#include "a/b.h"` or `#include <b>`, with blanks wherever the preprocessor allows them.
std::optional<Include> parse_include(std::string_view line) {
    const auto skip_blanks = [&] {
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    };
    for (const std::string_view token : {"#", "include"}) {
        skip_blanks();
        if (!line.starts_with(token)) {
            return std::nullopt;
        }
        line.remove_prefix(token.size());
    }
    skip_blanks();
    if (!line.starts_with('"') && !line.starts_with('<')) {
        return std::nullopt;
    }
    const bool quoted = line.front() == '"';
    line.remove_prefix(1);
    return Include{.quoted = quoted, .header = line.substr(0, line.find(quoted ? '"' : '>'))};
}

bool is_qt(std::string_view header) {
    return header.size() >= 2 && (header[0] == 'Q' || header.starts_with("qt")) && header[1] != '_';
}

bool is_cuda(std::string_view header) {
    constexpr std::array prefixes = {
        "cuda", "cublas", "cudnn", "curand", "nccl", "nvtx", "driver_types", "cooperative_"};
    return begins_with_any(header, prefixes);
}

/// What core/ and sim/ must not have; <chrono> is allowed there for its durations.
bool is_impure(std::string_view header) {
    constexpr std::array impure = {"thread",
                                   "mutex",
                                   "shared_mutex",
                                   "condition_variable",
                                   "atomic",
                                   "future",
                                   "semaphore",
                                   "barrier",
                                   "latch",
                                   "stop_token",
                                   "pthread.h",
                                   "random",
                                   "ctime",
                                   "time.h",
                                   "sys/time.h",
                                   "iostream",
                                   "execution",
                                   "omp.h"};
    return contains(impure, header);
}

/// tests/exec/cuda/ compiles kernels against headers that stand in for CUDA's.
bool is_in_cuda_folder(std::string_view path) {
    return path.starts_with("exec/cuda/") || path.starts_with("tests/exec/cuda/") ||
           path.starts_with("bench/cuda/");
}

bool is_pure_folder(std::string_view folder) {
    return folder == "core" || folder == "sim";
}

std::string check_own_include(std::string_view path, std::string_view header) {
    const std::string_view from = top_folder(path);
    const std::string_view to = top_folder(header);
    const auto& arrows = allowed_arrows();
    const auto row =
        std::find_if(arrows.begin(), arrows.end(), [&](const Arrows& a) { return a.from == from; });
    if (row == arrows.end()) {
        return "a folder without a place in the picture";
    }
    if (std::none_of(arrows.begin(), arrows.end(), [&](const Arrows& a) { return a.from == to; })) {
        return "an include that is not written from the source root";
    }
    if (!contains(row->to, to) && std::ranges::none_of(row->to, [&](std::string_view wing) {
            return is_inside(header, wing);
        })) {
        return "a wrong arrow";
    }
    // The module's interface is the one header there that includes none of CUDA's.
    if (header.starts_with("exec/cuda/") && !is_in_cuda_folder(path) &&
        header != "exec/cuda/module/module.h") {
        return "CUDA outside exec/cuda/";
    }
    return check_wings(path, header);
}

std::string check_foreign_include(std::string_view path, std::string_view header) {
    constexpr std::array gui = {"gui/", "tests/gui/", "bench/gui/"};
    const bool is_gui = begins_with_any(path, gui) && !path.starts_with("gui/view/");
    if (is_qt(header) && !is_gui) {
        return "Qt outside gui/, or in gui/view/";
    }
    if (header == "mpi.h" && !path.starts_with("exec/transport/mpi/") &&
        path != "bench/between_processes.cpp") {
        return "MPI outside exec/transport/mpi/";
    }
    if (is_cuda(header) && !is_in_cuda_folder(path)) {
        return "CUDA outside exec/cuda/";
    }
    if (is_impure(header) && is_pure_folder(top_folder(path))) {
        return "threads, clocks, random numbers or streams in core/ or sim/";
    }
    return {};
}

/// What is wrong with one line of the file at `path` (from the source root); empty if nothing.
std::string violation(std::string_view path, std::string_view line) {
    if (const std::optional<Include> include = parse_include(line)) {
        return include->quoted ? check_own_include(path, include->header)
                               : check_foreign_include(path, include->header);
    }
    const bool reads_clock = line.find("_clock::") != std::string_view::npos;
    return reads_clock && is_pure_folder(top_folder(path)) ? "a clock in core/ or sim/" : "";
}

bool is_source(const fs::path& path) {
    constexpr std::array endings = {".h", ".cpp", ".cu"};
    return contains(endings, path.extension().string());
}

std::vector<std::string> violations_in_file(const fs::path& root, const fs::path& file) {
    std::vector<std::string> found;
    const std::string path = fs::relative(file, root).generic_string();
    std::ifstream stream(file);
    int number = 1;
    for (std::string line; std::getline(stream, line); ++number) {
        if (const std::string what = violation(path, line); !what.empty()) {
            found.push_back(fmt::format("{}:{}: {}: {}", path, number, what, line));
        }
    }
    return found;
}

std::vector<std::string> violations_in_tree(const fs::path& root) {
    std::vector<std::string> found;
    for (const Arrows& arrows : allowed_arrows()) {
        if (!fs::is_directory(root / arrows.from)) {
            continue;
        }
        for (const auto& entry : fs::recursive_directory_iterator(root / arrows.from)) {
            if (entry.is_regular_file() && is_source(entry.path())) {
                const std::vector<std::string> more = violations_in_file(root, entry.path());
                found.insert(found.end(), more.begin(), more.end());
            }
        }
    }
    return found;
}

TEST(IncludeDirection, EveryFolderKnowsOnlyWhatThePictureAllows) {
    EXPECT_THAT(violations_in_tree(pipetwin::places::source_folder()), IsEmpty());
}

/// [folder]: how many sources lie directly in it, a header and what it declares counting as one.
std::map<std::string, std::set<std::string>> rooms_in_tree(const fs::path& root) {
    std::map<std::string, std::set<std::string>> rooms;
    for (const House& house : houses()) {
        for (const auto& entry : fs::recursive_directory_iterator(root / house.folder)) {
            if (entry.is_regular_file() && is_source(entry.path())) {
                const std::string folder =
                    fs::relative(entry.path().parent_path(), root).generic_string();
                rooms[folder].insert(entry.path().stem().string());
            }
        }
    }
    return rooms;
}

TEST(Layout, NoFolderIsAHeap) {
    for (const auto& [folder, rooms] : rooms_in_tree(pipetwin::places::source_folder())) {
        EXPECT_LE(rooms.size(), most_rooms) << folder;
    }
}

/// [folder]: its theme, from the table of docs/internals/architecture.md.
std::map<std::string, std::string> themes_of_page(const fs::path& root) {
    std::ifstream page(root / "docs/internals/architecture.md");
    std::map<std::string, std::string> themes;
    bool is_inside = false;
    for (std::string line; std::getline(page, line);) {
        if (line == "| Folder | Theme |") {
            is_inside = true;
        } else if (is_inside && !line.starts_with('|')) {
            break;
        } else if (is_inside && line.starts_with("| `")) {
            const std::size_t end = line.find("` | ");
            themes[line.substr(3, end - 3)] = line.substr(end + 4, line.rfind(" |") - end - 4);
        }
    }
    return themes;
}

TEST(Layout, EveryFolderHasATheme) {
    const fs::path root = pipetwin::places::source_folder();
    const auto themes = themes_of_page(root);
    const auto rooms = rooms_in_tree(root);
    for (const auto& [folder, sources] : rooms) {
        EXPECT_TRUE(themes.contains(folder))
            << folder << " has no row in docs/internals/architecture.md";
    }
    for (const auto& [folder, theme] : themes) {
        EXPECT_TRUE(rooms.contains(folder)) << folder << " has no sources";
        EXPECT_GT(theme.size(), 5) << folder;
    }
}

// The checker itself: one example of each kind of violation, and its nearest allowed neighbour.

TEST(IncludeDirection, TellsAWrongArrow) {
    EXPECT_EQ(violation("core/plan/plan.h", "#include \"sim/simulate/simulate.h\""),
              "a wrong arrow");
    EXPECT_EQ(violation("core/plan/plan.h", "#include \"exec/stage/stage.h\""), "a wrong arrow");
    EXPECT_EQ(violation("sim/simulate/simulate.cpp", "#include \"exec/executor/executor.h\""),
              "a wrong arrow");
    EXPECT_EQ(violation("exec/executor/executor.cpp", "#include \"sim/simulate/simulate.h\""),
              "a wrong arrow");
    EXPECT_EQ(violation("gui/window/main.cpp", "#include \"exec/training/trainer.h\""),
              "a wrong arrow");
    EXPECT_EQ(violation("gui/window/main.cpp", "#include \"cli/base/options.h\""), "a wrong arrow");
    EXPECT_EQ(violation("cli/main.cpp", "#include \"gui/base/palette.h\""), "a wrong arrow");
    EXPECT_EQ(violation("cli/main.cpp", "#include \"tests/support/builders.h\""), "a wrong arrow");
    EXPECT_EQ(violation("cli/main.cpp", "#include \"bench/accuracy/grid.h\""), "a wrong arrow");
    EXPECT_EQ(violation("bench/kernels.cpp", "#include \"tests/support/builders.h\""),
              "a wrong arrow");
    EXPECT_EQ(violation("cli/main.cpp", "#include \"exec/training/trainer.h\""), "");
    EXPECT_EQ(violation("gui/window/main.cpp", "#include \"sim/simulate/simulate.h\""), "");
}

TEST(IncludeDirection, TellsAnIncludeThatIsNotWrittenFromTheRoot) {
    EXPECT_EQ(violation("core/plan/plan.cpp", "#include \"plan.h\""),
              "an include that is not written from the source root");
    EXPECT_EQ(violation("core/plan/plan.cpp", "#include \"../core/plan/plan.h\""),
              "an include that is not written from the source root");
    EXPECT_EQ(violation("core/plan/plan.cpp", "#include \"core/plan/plan.h\""), "");
}

TEST(IncludeDirection, TellsQtOutsideTheGui) {
    EXPECT_EQ(violation("cli/main.cpp", "#include <QString>"), "Qt outside gui/, or in gui/view/");
    EXPECT_EQ(violation("core/svg/svg.cpp", "#include <QtSvg/QSvgRenderer>"),
              "Qt outside gui/, or in gui/view/");
    EXPECT_EQ(violation("tests/core/plan/plan_test.cpp", "#include <QTest>"),
              "Qt outside gui/, or in gui/view/");
    EXPECT_EQ(violation("gui/window/main.cpp", "#include <QApplication>"), "");
    EXPECT_EQ(violation("tests/gui/layout_test.cpp", "#include <QTest>"), "");
}

TEST(IncludeDirection, TellsCudaOutsideItsFolder) {
    EXPECT_EQ(violation("exec/stage/stage.cpp", "#include <cuda_runtime_api.h>"),
              "CUDA outside exec/cuda/");
    EXPECT_EQ(violation("exec/stage/stage.cpp", "#include <cublasLt.h>"),
              "CUDA outside exec/cuda/");
    EXPECT_EQ(violation("exec/transport/channel.cpp", "#include <nccl.h>"),
              "CUDA outside exec/cuda/");
    EXPECT_EQ(violation("exec/transport/channel.cpp", "#include <mpi.h>"),
              "MPI outside exec/transport/mpi/");
    EXPECT_EQ(violation("exec/transport/mpi/mpi_channel.cpp", "#include <mpi.h>"), "");
    EXPECT_EQ(violation("exec/stage/stage.cpp", "#include \"exec/cuda/kernels/kernels.h\""),
              "CUDA outside exec/cuda/");
    EXPECT_EQ(violation("exec/gpu/cuda_module.cpp", "#include \"exec/cuda/module/module.h\""), "");
    EXPECT_EQ(violation("exec/cuda/module/library_versions.cpp", "#include <cublasLt.h>"), "");
    EXPECT_EQ(
        violation("tests/exec/stage/stage_test.cpp", "#include \"exec/cuda/kernels/kernels.h\""),
        "CUDA outside exec/cuda/");
    EXPECT_EQ(
        violation("tests/exec/cuda/kernels_test.cpp", "#include \"exec/cuda/kernels/kernels.h\""),
        "");
}

TEST(IncludeDirection, TellsAWingThatIncludesOneAboveOrBesideIt) {
    EXPECT_EQ(violation("core/base/error.cpp", "#include \"core/plan/plan.h\""),
              "core/base includes core/plan, which is no floor below");
    EXPECT_EQ(violation("core/schedule/lower.cpp", "#include \"core/costs/profile.h\""),
              "core/schedule includes core/costs, which is no floor below");
    EXPECT_EQ(violation("core/schedule/generators/gpipe.cpp", "#include \"core/schedule/edge.h\""),
              "");
    EXPECT_EQ(violation("core/new/x.cpp", "#include \"core/plan/plan.h\""),
              "a folder without a place in the picture");
    EXPECT_EQ(violation("gui/view/run/twin.cpp", "#include \"gui/base/palette.h\""),
              "gui/view/run includes gui/base, which is no floor below");
    EXPECT_EQ(violation("gui/view/run/twin.cpp", "#include <QString>"),
              "Qt outside gui/, or in gui/view/");
    EXPECT_EQ(violation("cli/text/x.cpp", "#include \"gui/view/analysis/wait_words.h\""), "");
}

TEST(IncludeDirection, TellsThreadsClocksAndRandomNumbersInCoreAndSim) {
    for (const std::string_view folder : {"core", "sim"}) {
        const std::string path = std::string(folder) + "/x.cpp";
        EXPECT_THAT(violation(path, "#include <thread>"), HasSubstr("threads"));
        EXPECT_THAT(violation(path, "#include <mutex>"), HasSubstr("threads"));
        EXPECT_THAT(violation(path, "#include <random>"), HasSubstr("random"));
        EXPECT_THAT(violation(path, "#include <ctime>"), HasSubstr("clocks"));
        EXPECT_THAT(violation(path, "#include <iostream>"), HasSubstr("streams"));
        EXPECT_THAT(violation(path, "auto t = std::chrono::steady_clock::now();"),
                    HasSubstr("a clock"));
        EXPECT_EQ(violation(path, "#include <chrono>"), "");
    }
    EXPECT_EQ(violation("exec/executor/executor.cpp", "#include <thread>"), "");
}

TEST(IncludeDirection, TellsAFolderThatIsNotInThePicture) {
    EXPECT_EQ(violation("utils/x.cpp", "#include \"core/plan/plan.h\""),
              "a folder without a place in the picture");
}

TEST(IncludeDirection, ReadsEverySpellingOfAnInclude) {
    EXPECT_EQ(violation("core/plan/plan.cpp", "  #  include\t<QString> // why"),
              "Qt outside gui/, or in gui/view/");
    EXPECT_EQ(violation("core/plan/plan.cpp", "// #include <QString>"), "");
    EXPECT_EQ(violation("core/plan/plan.cpp", "#include"), "");
}

TEST(IncludeDirection, FindsAViolationInAFileOnDisk) {
    const pipetwin::tests::ScratchFolder root;
    fs::create_directories(root / "core");
    root.write("core/bad.h", "#pragma once\n\n#include <thread>\n");
    EXPECT_THAT(violations_in_tree(root.path()), ElementsAre(HasSubstr("core/bad.h:3: threads")));
}

}  // namespace layout_test
