// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_run.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/word_list.h"

namespace pipetwin {

namespace {

constexpr std::string_view write_one = "write one, or leave the key out";
constexpr std::string_view look_it_up =
    "compare with the documentation of the program that reads the file";

}  // namespace

std::string recompute_lines(const std::string& word, int blocks) {
    std::string lines = fmt::format("recompute = \"{}\"\n", word);
    if (word == "block" && blocks > 1) {
        lines += fmt::format("recompute_blocks = {}\n", blocks);
    }
    return lines + (word == "always" ? "recompute_timing = \"lazy\"\n" : "");
}

const Setting* SettingReader::find(std::string_view written) {
    for (std::size_t i = 0; i < file_.settings.size(); ++i) {
        if (file_.settings[i].written == written) {
            taken_[i] = true;
            return &file_.settings[i];
        }
    }
    return nullptr;
}

std::string SettingReader::place(std::string_view written) const {
    const auto found = std::ranges::find(file_.settings, written, &Setting::written);
    return found != file_.settings.end() ? found->place
           : file_.settings.empty()      ? std::string()
                                         : file_.settings.front().place;
}

std::optional<std::string> SettingReader::text(std::string_view written) {
    const Setting* const setting = find(written);
    if (setting == nullptr) {
        return std::nullopt;
    }
    return first_word(*setting, write_one).text;
}

std::optional<std::vector<std::string>> SettingReader::texts(std::string_view written) {
    const Setting* const setting = find(written);
    if (setting == nullptr) {
        return std::nullopt;
    }
    std::vector<std::string> words;
    for (const SettingWord& word : setting->values) {
        words.push_back(word.text);
    }
    return words;
}

const Setting* SettingReader::certain(std::string_view written) {
    const Setting* const setting = find(written);
    if (setting != nullptr && first_word(*setting, write_one).text == "auto") {
        open_.emplace_back(written);
        return nullptr;
    }
    return setting;
}

std::optional<int> SettingReader::whole(std::string_view written, int least, int most) {
    const Setting* const setting = certain(written);
    return setting != nullptr ? std::optional(whole_value(*setting, least, look_it_up, most))
                              : std::nullopt;
}

std::optional<double> SettingReader::real(std::string_view written) {
    const Setting* const setting = certain(written);
    return setting != nullptr ? std::optional(real_value(*setting, look_it_up)) : std::nullopt;
}

std::optional<bool> SettingReader::answer(std::string_view written) {
    const Setting* const setting = certain(written);
    if (setting == nullptr) {
        return std::nullopt;
    }
    Setting lower = *setting;  // Python and some YAML write True
    for (SettingWord& word : lower.values) {
        word.text = lower_case(word.text);
    }
    return chosen_word(lower, "true false", look_it_up) == "true";
}

std::optional<std::string> SettingReader::word(std::string_view written, std::string_view words) {
    const Setting* const setting = find(written);
    return setting != nullptr ? std::optional(chosen_word(*setting, words, look_it_up))
                              : std::nullopt;
}

bool SettingReader::has(std::string_view written) const {
    return std::ranges::find(file_.settings, written, &Setting::written) != file_.settings.end();
}

bool SettingReader::is_auto(std::string_view written) const {
    const auto found = std::ranges::find(file_.settings, written, &Setting::written);
    return found != file_.settings.end() && !found->values.empty() &&
           found->values.front().text == "auto";
}

void SettingReader::problem(std::string_view written, std::string_view what) {
    problems_.add(place(written), std::string(written), what);
}

std::vector<std::string> SettingReader::take_below(std::string_view table, std::string_view name) {
    std::vector<std::string> on;
    for (std::size_t i = 0; i < file_.settings.size(); ++i) {
        const Setting& setting = file_.settings[i];
        if (setting.sections.empty() || setting.sections.front() != table) {
            continue;
        }
        taken_[i] = true;
        if (setting.name == name && !setting.values.empty() &&
            lower_case(setting.values.front().text) == "true") {
            on.push_back(setting.written);
        }
    }
    return on;
}

void SettingReader::refuse(std::span<const SettingGroup> groups) {
    for (const SettingGroup& group : groups) {
        for (const std::string_view written : words_in(group.names)) {
            const std::vector<std::string> words =
                group.harmless_values.empty() ? std::vector<std::string>{}
                                              : texts(written).value_or(std::vector<std::string>{});
            const bool is_on = group.harmless_values.empty()
                                   ? answer(written).value_or(false)
                                   : !words.empty() && !words.front().empty() &&
                                         !has_word(group.harmless_values, words.front());
            if (is_on) {
                problem(written, group.why);
            }
        }
    }
}

void SettingReader::infeasible(std::string_view written, std::string what, std::string hint) const {
    throw Error(ErrorKind::Infeasible, place(written), std::move(what), std::move(hint));
}

void SettingReader::finish(std::string_view harmless, LeaveOut leave_out, TrainingRun& run) {
    for (std::size_t i = 0; i < file_.settings.size(); ++i) {
        const Setting& setting = file_.settings[i];
        if (taken_[i]) {
            continue;
        }
        if (has_word(harmless, setting.written)) {
            run.harmless.push_back(setting.written);
        } else {
            const bool is_of_split = std::ranges::any_of(
                setting.sections,
                [](const std::string& table) { return !word_of_a_run(table).empty(); });
            problems_.add_unknown(
                setting.place,
                setting.written,
                is_of_split ? std::string_view(setting.written) : std::string_view(setting.name),
                "no setting that is known here");
        }
    }
    problems_.settle(leave_out, run.warnings, run.left_out);
}

}  // namespace pipetwin
