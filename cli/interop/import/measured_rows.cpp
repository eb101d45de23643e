// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/measured_rows.h"

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/base/input.h"
#include "cli/interop/import/loss_words.h"
#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/launch/table_settings.h"

namespace pipetwin::cli {

namespace {

/// Keys of a scenario that are lists, also of one value.
constexpr std::string_view keys_of_lists = "partition recompute_modules offload_modules";

/// A word of a TOML value as JSON has it.
Json value_of_word(const std::string& word) {
    if (word == "true" || word == "false") {
        return word == "true";
    }
    const char* const end = word.data() + word.size();
    std::int64_t whole = 0;
    if (const auto [rest, status] = std::from_chars(word.data(), end, whole);
        status == std::errc{} && rest == end) {
        return whole;
    }
    double real = 0;
    if (const auto [rest, status] = std::from_chars(word.data(), end, real);
        status == std::errc{} && rest == end) {
        return real;
    }
    return word;
}

/// The keys of [training] and [pipeline], each with its table.
void add_settings(Json& row, const std::string& fragment) {
    for (const Setting& setting : parse_toml_settings(fragment, "fragment").settings) {
        if (setting.sections.size() != 1 || !has_word("training pipeline", setting.sections[0])) {
            continue;
        }
        Json value = Json::array();
        for (const SettingWord& word : setting.values) {
            value.push_back(value_of_word(word.text));
        }
        const bool is_list = setting.values.size() != 1 || has_word(keys_of_lists, setting.name);
        row[setting.written] = is_list ? value : Json(value[0]);
    }
}

/// Keys that a plan finds where nothing says them: the run had what they are without a word.
void add_unwritten(Json& row) {
    const auto add = [&row](const char* key, Json value) {
        if (!row.contains(key)) {
            row[key] = std::move(value);
        }
    };
    add("pipeline.shard", "none");
    add("pipeline.sequence_parallel", false);
    add("pipeline.scatter_boundaries", false);
}

std::string words_of(const MeasuredStep& measured) {
    return fmt::format("the median of {} in lines {} to {}{}",
                       counted(measured.steps, "report"),
                       measured.first_line,
                       measured.last_line,
                       measured.has_start ? ", with what a run does once at its start" : "");
}

/// Timers over all ranks that correct costs; empty: none.
Json timers_of(const std::vector<LoggedTimer>& timers) {
    Json found = Json::object();
    for (const LoggedTimer& timer : timers) {
        const bool is_of_layers =
            timer.name == "forward-compute" || timer.name == "backward-compute";
        const bool is_of_pipeline =
            timer.name == "forward-backward" && has_sums_in_pipeline(timers);
        if (!timer.of_one_rank && (is_of_layers || is_of_pipeline)) {
            found[timer.name] = timer.most;
        }
    }
    return found;
}

std::string row_of(const MeasuredStep& measured,
                   const TrainingLog& log,
                   const std::optional<LossCourse>& loss,
                   const std::string& fragment,
                   const std::string& place) {
    Json row = Json::object();
    row["name"] = place;
    row["source"] = words_of(measured);
    row["step_seconds"] = measured.seconds;
    if (log.peak_bytes) {
        row["peak_bytes"] = *log.peak_bytes;
    }
    if (Json timers = timers_of(log.timers); !timers.empty()) {
        row["timer_seconds"] = std::move(timers);
    }
    const auto is_of_row = [](const LoggedLoss& of) { return of.loss >= 0; };
    if (loss && loss->first && is_of_row(*loss->first) && is_of_row(*loss->last)) {
        row["first_loss"] = loss->first->loss;
        row["last_loss"] = loss->last->loss;
    }
    if (loss) {
        const std::vector<std::string> warnings = loss_warnings(*loss);
        if (!warnings.empty()) {
            row["comment"] = fmt::format("{}", fmt::join(warnings, "; "));
        }
    }
    add_settings(row, fragment);
    add_unwritten(row);
    return json_text(Json::array({row}));
}

}  // namespace

namespace {

constexpr std::string_view step_lines =
    "those of measured steps, as Megatron-LM ('elapsed time per iteration (ms)'), torchtitan "
    "('tps'), DeepSpeed ('iter time (s)', 'CurrSamplesPerSec'), nanotron and MaxText print them";

/// Throws Error(BadInput) for a log without a step of the run.
[[noreturn]] void refuse_log(const TrainingLog& found,
                             const StepSizes& sizes,
                             const std::string& place) {
    const bool has_others = sizes.batch && !found.steps.empty();
    throw Error(ErrorKind::BadInput,
                place,
                has_others ? fmt::format("no step of {} among the {} that the log reports",
                                         counted(*sizes.batch, "sample"),
                                         found.steps.size())
                           : fmt::format("no line with a measured step, expected {}", step_lines),
                "import a log with steps, or leave --rows-out and --log out");
}

}  // namespace

void add_measured_steps(Imported& imported,
                        const ImportOptions& options,
                        std::string_view log,
                        const StepSizes& sizes) {
    const bool wants_rows = !options.rows_out.empty();
    const bool is_beside = !options.log.empty();
    const std::string place = input_name(is_beside ? options.log : options.file);
    const std::string beside = is_beside ? read_input(options.log, largest_log) : std::string();
    if (!is_beside && log.empty()) {
        if (wants_rows) {
            throw Error(ErrorKind::BadInput,
                        place,
                        "no log of a run, in which steps are measured",
                        "name it with --log FILE, or leave --rows-out out");
        }
        return;
    }
    if (wants_rows && imported.has_open_devices) {
        throw Error(ErrorKind::BadInput,
                    input_name(options.file),
                    "nothing says how many devices the run had, so a row would be of another one",
                    "add --devices N to the command, or leave --rows-out out");
    }
    const TrainingLog found = parse_training_log(is_beside ? beside : log);
    const std::optional<MeasuredStep> measured = measured_step(found, sizes);
    if (!measured) {
        if (wants_rows || is_beside) {
            refuse_log(found, sizes, place);
        }
        return;
    }
    const std::string rate = measured->device_tflops ? fmt::format(", {:.1f} TFLOP/s of a device",
                                                                   *measured->device_tflops)
                                                     : std::string();
    if (measured->has_start && wants_rows) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "the log has no report behind the first of a run, which has what is done once "
                    "at the start",
                    "import a log with more steps, or leave --rows-out out");
    }
    if (wants_rows && !imported.result.left_out.empty()) {
        throw Error(
            ErrorKind::Usage,
            "--rows-out",
            "the row would be of another run than the log's, as --insist left something out",
            "leave --rows-out out, or write what --insist left out in words that are read");
    }
    imported.notes.push_back(fmt::format("a measured step took {:.1f} ms{}: {}",
                                         measured->seconds * 1000,
                                         rate,
                                         words_of(*measured)));
    LoggedRun logged{.step_seconds = measured->seconds,
                     .peak_bytes = found.peak_bytes,
                     .timers = found.timers,
                     .loss = loss_course(found.losses)};
    if (logged.loss) {
        imported.notes.push_back("the loss is " + loss_text(*logged.loss));
        for (const std::string& warning : loss_warnings(*logged.loss)) {
            imported.notes.push_back("warning: " + warning);
        }
    }
    for (const std::string& note : found.notes) {
        imported.notes.push_back("warning: " + note);
    }
    const bool is_whole = imported.result.left_out.empty() && !imported.has_open_devices;
    if (!measured->has_start && is_whole) {
        logged.row = row_of(*measured, found, logged.loss, imported.content, place);
    }
    if (wants_rows) {
        imported.rows = logged.row;
    }
    imported.logged = std::move(logged);
}

}  // namespace pipetwin::cli
