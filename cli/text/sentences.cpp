// SPDX-License-Identifier: Apache-2.0
#include "cli/text/sentences.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"

namespace pipetwin::cli {

Times::Times(Duration step) {
    const double ms = to_milliseconds(step);
    if (ms >= 100'000) {
        unit_ = "s";
        per_ms_ = 1e-3;
    } else if (ms < 1e-3) {
        unit_ = "ns";
        per_ms_ = 1e6;
    } else if (ms < 1) {
        unit_ = "us";
        per_ms_ = 1e3;
    }
    const double size = ms * per_ms_;
    decimals_ = size >= 1000 ? 0 : size >= 10 ? 1 : 2;
}

int Times::decimals_of(Duration time) const {
    constexpr int most_decimals = 3;
    const double value = std::abs(to_milliseconds(time) * per_ms_);
    int decimals = decimals_;
    while (decimals < most_decimals && value * std::pow(10, decimals) < 9.5) {
        ++decimals;
    }
    return decimals;
}

std::string Times::number(Duration time) const {
    int decimals = decimals_of(time);
    std::string text = fmt::format("{:.{}f}", to_milliseconds(time) * per_ms_, decimals);
    for (; decimals > decimals_ && text.back() == '0'; --decimals) {
        text.pop_back();
    }
    if (text.back() == '.') {
        text.pop_back();
    }
    return text;
}

std::vector<Duration> Times::parts_of(Duration whole, std::vector<Duration> parts) const {
    const auto unit =
        std::max<std::int64_t>(1, std::llround(1e6 / per_ms_ * std::pow(10, -decimals_of(whole))));
    std::int64_t left =
        std::llround(static_cast<double>(whole.count()) / static_cast<double>(unit));
    std::vector<std::size_t> by_rest;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        left -= parts[i].count() / unit;
        by_rest.push_back(i);
    }
    std::ranges::stable_sort(by_rest, std::greater<>(), [&](std::size_t i) {
        return std::pair(parts[i].count() % unit, parts[i]);  // of equal rests the largest part's
    });
    for (const std::size_t i : by_rest) {
        const bool up = left > 0 && parts[i].count() % unit != 0;
        left -= up ? 1 : 0;
        parts[i] = Duration{(parts[i].count() / unit + (up ? 1 : 0)) * unit};
    }
    return parts;
}

std::string Times::operator()(Duration time) const {
    return fmt::format("{} {}", number(time), unit_);
}

bool Times::shows(Duration time) const {
    return to_milliseconds(time) * per_ms_ >= 0.5 * std::pow(10, -decimals_);
}

double share(Duration part, Duration whole) {
    return whole > Duration{}
               ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
               : 0;
}

UtilisationWords utilisation_words(FlopsCount count) {
    switch (count) {
        case FlopsCount::Palm:
            return {.name = "MFU as PaLM counts",
                    .counted = "all pairs of attention, no recompute"};
        case FlopsCount::Megatron:
            return {.name = "MFU as Megatron-LM counts",
                    .counted = "half of causal attention, no recompute"};
        case FlopsCount::Hardware:
            return {.name = "hardware FLOPs utilisation",
                    .counted = "all pairs of attention, with recompute"};
    }
    return {};
}

std::string large_count(std::int64_t count) {
    const auto number = static_cast<double>(count);
    return number < 1e9 ? fmt::format("{:.1f} million", number / 1e6)
                        : fmt::format("{:.1f} billion", number / 1e9);
}

std::string list_of(std::vector<std::string> items) {
    constexpr std::size_t most = 7;
    if (items.size() > most) {
        const std::string left_out = fmt::format("... ({} more) ...", items.size() - 6);
        items.erase(items.begin() + 3, items.end() - 3);
        items.insert(items.begin() + 3, left_out);
    }
    std::string text = items.front();
    for (std::size_t i = 1; i < items.size(); ++i) {
        text += (i + 1 == items.size() ? " and " : ", ") + items[i];
    }
    return text;
}

namespace {

/// A number and its unit stay together.
std::size_t end_of_word(std::string_view text, std::size_t begin) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view rest = text.substr(std::min(end + 1, text.size()));
    const bool number = end > begin && text[end - 1] >= '0' && text[end - 1] <= '9';
    const std::string_view next = rest.substr(0, rest.find_first_of(" .,;)"));
    if (number && (next == "%" || next == "ms" || next == "us" || next == "ns" || next == "s")) {
        end = std::min(text.find(' ', end + 1), text.size());
    }
    return end;
}

}  // namespace

std::string paragraph_text(const Paragraph& paragraph, int width) {
    const std::size_t limit = as_index(std::clamp(width, 40, 120));
    std::string text = fmt::format("{}\n", paragraph.heading);
    for (const std::string& sentence : paragraph.lines) {
        std::string line = " ";
        std::size_t begin = 0;
        while (begin < sentence.size()) {
            const std::size_t end = end_of_word(sentence, begin);
            const std::string word = sentence.substr(begin, end - begin);
            if (line.size() + 1 + word.size() > limit) {
                text += line + '\n';
                line = "   ";
            }
            line += ' ' + word;
            begin = end + 1;
        }
        text += line + '\n';
    }
    return text;
}

}  // namespace pipetwin::cli
