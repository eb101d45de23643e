// SPDX-License-Identifier: Apache-2.0
#include "cli/tour/tour.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "cli/base/shell_word.h"
#include "cli/run_folder/run_folder.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

namespace {

namespace fs = std::filesystem;

/// A shipped scenario, relative to the current folder where it lies below that.
fs::path shipped_scenario(std::string_view name) {
    const fs::path file = (profiles_folder().parent_path() / "scenarios" / name).lexically_normal();
    std::error_code status;
    fs::path near = fs::proximate(file, status);
    return status || near.empty() || *near.begin() == ".." ? file : near;
}

/// Adds the shape and the costs of the first two steps: 1 ms and 2 ms for the options `forward` and
/// `backward`. "--rank-forward-ms" counts all stages of a rank, so all plans do the same work.
CommandWords with_plain_work(CommandWords words, const char* forward, const char* backward) {
    for (const char* const word :
         {"--stages", "4", "--micro-batches", "8", forward, "1", backward, "2"}) {
        words.emplace_back(word);
    }
    return words;
}

/// Names with commas between them, as --schedule takes them.
std::string names_of(std::initializer_list<ScheduleKind> kinds) {
    std::string names;
    for (const ScheduleKind kind : kinds) {
        names += fmt::format("{}{}", names.empty() ? "" : ",", to_string(kind));
    }
    return names;
}

CommandWords operator+(CommandWords words, const CommandWords& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

TourStep schedule_step(const fs::path& tour) {
    const fs::path plan = tour / "1-gpipe";
    const fs::path picture = tour / "1-gpipe.svg";
    return {
        .name = "schedule",
        .title = "One schedule as a picture",
        .why =
            "Ranks wait while the pipeline fills and while it drains: the share of time in which "
            "they are idle is called the bubble, and the times of one forward and one backward "
            "are enough to compute it.",
        .commands = {with_plain_work({"simulate", "--schedule", names_of({ScheduleKind::GPipe})},
                                     "--forward-ms",
                                     "--backward-ms") +
                         CommandWords{"--out", plan.string()},
                     {"export", "svg", plan.string(), "--out", picture.string()}},
        .files = {picture}};
}

TourStep side_by_side_step(const fs::path& tour) {
    const fs::path picture = tour / "2-side-by-side.svg";
    const fs::path table = tour / "2-side-by-side.csv";
    return {.name = "side-by-side",
            .title = "Five schedules on one time axis",
            .why =
                "Another order of the same work can have a smaller bubble, or keep fewer "
                "results in memory.",
            .commands = {with_plain_work({"simulate",
                                          "--schedule",
                                          names_of({ScheduleKind::GPipe,
                                                    ScheduleKind::OneFOneB,
                                                    ScheduleKind::ZbH1,
                                                    ScheduleKind::Interleaved1F1B,
                                                    ScheduleKind::ZbV})},
                                         "--rank-forward-ms",
                                         "--rank-backward-ms") +
                         CommandWords{"--svg", picture.string(), "--csv", table.string()}},
            .files = {picture, table}};
}

TourStep plan_step(const fs::path& tour) {
    const fs::path picture = tour / "3-heat-map.svg";
    const fs::path plan = tour / "3-llama-3-8b";
    return {.name = "plan",
            .title = "A plan for a cluster, with its price",
            .why =
                "The search finds the fastest plan that fits into memory, and what a training run "
                "would cost, before any GPU is rented.",
            .commands = {{"plan",
                          "llama-3-8b",
                          "--cluster",
                          "8x-h100-sxm",
                          "--sequence",
                          "8192",
                          "--batch-tokens",
                          "256k",
                          "--tokens",
                          "1T",
                          "--price",
                          "2.5",
                          "--heatmap",
                          picture.string(),
                          "--out",
                          plan.string()}},
            .files = {picture, plan},
            .shown = {.first = 28, .last = 0}};
}

TourStep train_step(const fs::path& folder) {
    return {.name = "train",
            .title = "A small GPT, predicted and then trained on this machine",
            .why =
                "The run measures what each layer costs here, cuts the model into two stages of "
                "about equal cost, predicts a step, and trains for about a minute.",
            .commands = {{"run",
                          shipped_scenario("gpt-text.toml").string(),
                          "--set",
                          "training.steps=80",
                          "--out",
                          folder.string()}},
            .files = {folder / run_file::measured, folder / run_file::metrics},
            .shown = {.first = 8, .last = 5}};
}

TourStep compare_step(const fs::path& folder, const fs::path& tour) {
    const fs::path table = tour / "5-comparison.json";
    const fs::path picture = tour / "5-predicted.svg";
    return {.name = "compare",
            .title = "Predicted against measured",
            .why =
                "A prediction has to be held to a measurement: each row shows both, and by how "
                "much the prediction was off.",
            .commands = {{"compare", folder.string(), "--out", table.string()},
                         {"export", "svg", folder.string(), "--out", picture.string()}},
            .files = {picture, table},
            .needs = 4};
}

TourStep report_step(const fs::path& folder) {
    const fs::path report = folder / run_file::report_html;
    return {.name = "report",
            .title = "The report",
            .why =
                "One page shows both timelines, explains in sentences where the time goes, and "
                "needs nothing but a browser.",
            .by_hand = "xdg-open " + shell_word(report.string()),
            .files = {report},
            .needs = 4};
}

TourStep window_step(const fs::path& folder) {
    return {.name = "window",
            .title = "The window",
            .why =
                "The window shows why each action waited, and how long a step would take with "
                "another plan.",
            .by_hand = typed_line({"view", folder.string()}),
            .needs = 4};
}

}  // namespace

fs::path tour_folder(const fs::path& folder) {
    return folder / "tour";
}

std::vector<TourStep> tour_steps(const fs::path& folder) {
    const fs::path tour = tour_folder(folder);
    return {schedule_step(tour),
            side_by_side_step(tour),
            plan_step(tour),
            train_step(folder),
            compare_step(folder, tour),
            report_step(folder),
            window_step(folder)};
}

fs::path step_text_file(const fs::path& folder, int number, const TourStep& step) {
    return tour_folder(folder) / fmt::format("{}-{}.txt", number, step.name);
}

std::string typed_line(const CommandWords& words) {
    std::string line = "pipetwin";
    for (const std::string& word : words) {
        line += ' ' + shell_word(word);
    }
    return line;
}

std::string without_colours(std::string_view text) {
    std::string plain;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\x1b') {
            at = std::min(text.find('m', at), text.size() - 1);
        } else {
            plain += text[at];
        }
    }
    return plain;
}

std::string folded(std::string_view text, const ShownLines& shown, const fs::path& file) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
        lines.push_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    const std::size_t first = as_index(shown.first);
    const std::size_t last = as_index(shown.last);
    std::string result;
    for (std::size_t line = 0; line < lines.size(); ++line) {
        const bool is_left_out = line >= first && line + last < lines.size();
        if (!is_left_out) {
            result += lines[line];
        } else if (line == first) {
            result += fmt::format("  ... not shown: {}; {} contains all\n",
                                  counted(lines.size() - first - last, "line"),
                                  file.string());
        }
    }
    return result;
}

}  // namespace pipetwin::cli
