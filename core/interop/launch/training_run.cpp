// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

/// Whether a list of words that are apart by blanks has this one.
bool lists_word(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(' '), list.size());
        if (list.substr(0, end) == word) {
            return true;
        }
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return false;
}

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
    if (setting->values.empty()) {
        throw Error(ErrorKind::BadInput,
                    setting->place,
                    fmt::format("{} has no value", written),
                    "write one, or leave the key out");
    }
    return setting->values.front().text;
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

std::optional<std::string> SettingReader::certain(std::string_view written) {
    std::optional<std::string> word = text(written);
    if (word == "auto") {
        open_.emplace_back(written);
        word.reset();
    }
    return word;
}

std::optional<int> SettingReader::whole(std::string_view written, int least) {
    const std::optional<std::string> word = certain(written);
    if (!word) {
        return std::nullopt;
    }
    int number = 0;
    const char* const end = word->data() + word->size();
    const auto [rest, status] = std::from_chars(word->data(), end, number);
    constexpr int most = 1 << 30;
    if (status != std::errc{} || rest != end || number < least || number > most) {
        throw Error(ErrorKind::BadInput,
                    place(written),
                    fmt::format("{} = '{}', expected a whole number of at least {}",
                                written,
                                word->substr(0, 60),
                                least),
                    "compare with the documentation of the program that reads the file");
    }
    return number;
}

std::optional<double> SettingReader::real(std::string_view written) {
    const std::optional<std::string> word = certain(written);
    if (!word) {
        return std::nullopt;
    }
    double number = 0;
    const char* const end = word->data() + word->size();
    const auto [rest, status] = std::from_chars(word->data(), end, number);
    if (status != std::errc{} || rest != end || !std::isfinite(number) || number < 0) {
        throw Error(
            ErrorKind::BadInput,
            place(written),
            fmt::format("{} = '{}', expected a number of 0 or more", written, word->substr(0, 60)),
            "compare with the documentation of the program that reads the file");
    }
    return number;
}

std::optional<bool> SettingReader::answer(std::string_view written) {
    const std::optional<std::string> word = certain(written);
    if (!word) {
        return std::nullopt;
    }
    if (*word != "true" && *word != "false") {
        throw Error(ErrorKind::BadInput,
                    place(written),
                    fmt::format("{} = '{}', expected true or false", written, word->substr(0, 60)),
                    "compare with the documentation of the program that reads the file");
    }
    return *word == "true";
}

std::optional<std::string> SettingReader::word(std::string_view written,
                                               std::initializer_list<std::string_view> words) {
    std::optional<std::string> found = text(written);
    if (found && std::ranges::find(words, *found) == words.end()) {
        throw Error(
            ErrorKind::BadInput,
            place(written),
            fmt::format(
                "{} = '{}', expected {}", written, found->substr(0, 60), fmt::join(words, " or ")),
            "compare with the documentation of the program that reads the file");
    }
    return found;
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

void SettingReader::expect_off(std::string_view written,
                               std::string_view what,
                               std::string_view off) {
    const std::optional<std::vector<std::string>> words = texts(written);
    if (words && !words->empty() && !words->front().empty() && !lists_word(off, words->front())) {
        problem(written, what);
    }
}

void SettingReader::finish(std::string_view harmless, LeaveOut leave_out, TrainingRun& run) {
    for (std::size_t i = 0; i < file_.settings.size(); ++i) {
        const Setting& setting = file_.settings[i];
        if (taken_[i]) {
            continue;
        }
        if (lists_word(harmless, setting.written)) {
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
