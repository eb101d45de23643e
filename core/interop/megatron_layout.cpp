// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_layout.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

constexpr std::string_view letters = "EtmL";
constexpr char stage_end = '|';
constexpr std::string_view example = "write it as in Et*3|(tt|)*29,m|L";

bool is_item(char c) {
    return c == stage_end || letters.find(c) != std::string_view::npos;
}

/// 'x', or its code where it cannot be shown.
std::string shown(char c) {
    const auto code = static_cast<unsigned char>(c);
    return code > 0x20 && code < 0x7f ? fmt::format("'{}'", c)
                                      : fmt::format("the byte {:#04x}", code);
}

// --- Reading. ---

/// Writes out the repetitions: "Et*3|" becomes "Ettt|".
///
///     layout   = { item [ "*" number ] }
///     item     = letter | "|" | "(" simple ")" "*" number
///     simple   = { ( letter | "|" ) [ "*" number ] }, not empty
class Expander {
  public:
    Expander(std::string_view text, std::string_view place) : text_(text), place_(place) {}

    std::string expand() {
        std::string result = sequence("");
        if (position_ < text_.size()) {
            fail("')' closes no group");
        }
        return result;
    }

  private:
    [[noreturn]] void fail(const std::string& why, std::string hint = std::string(example)) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:1:{}", place_, position_ + 1),
                    why,
                    std::move(hint));
    }

    /// The next character that means something; none at the end.
    std::optional<char> next() {
        while (position_ < text_.size() && text_[position_] == ',') {
            ++position_;
        }
        return position_ < text_.size() ? std::optional(text_[position_]) : std::nullopt;
    }

    /// Items up to the end or to a ')'. `outside` is what stands before the group, for its size.
    std::string sequence(std::string_view outside) {
        const bool in_group = depth_ > 0;
        std::string result;
        while (const std::optional<char> c = next()) {
            if (*c == ')') {
                break;
            }
            if (*c == '(') {
                if (in_group) {
                    fail("a '(' inside a group: Megatron does not nest them");
                }
                append(result, outside, group(result));
            } else if (is_item(*c)) {
                const std::size_t at = position_++;
                append(result, outside, {at, std::string(1, *c), optional_count()});
            } else {
                fail(fmt::format("{} is not part of a layout: expected E, t, m, L, |, *, ( or )",
                                 shown(*c)));
            }
        }
        return result;
    }

    struct Repeated {
        std::size_t at = 0;  ///< where it stands
        std::string text;
        std::size_t count = 1;
    };

    Repeated group(std::string_view outside) {
        const std::size_t open = position_++;
        ++depth_;
        std::string inner = sequence(outside);
        --depth_;
        if (position_ == text_.size()) {
            position_ = open;
            fail("the group is not closed: expected a ')'");
        }
        ++position_;  // the ')'
        if (inner.empty()) {
            position_ = open;
            fail("the group is empty");
        }
        if (next() != '*') {
            fail("expected '*' and a number behind the group", "for example (tt|)*29");
        }
        return {open, std::move(inner), optional_count()};
    }

    /// The number behind a '*' if one comes next, else 1.
    std::size_t optional_count() {
        if (next() != '*') {
            return 1;
        }
        ++position_;
        next();
        const std::size_t begin = position_;
        std::size_t count = 0;
        while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
            const std::size_t digit = as_index(text_[position_] - '0');
            count = std::min(count * 10 + digit, largest_layout + 1);
            ++position_;
        }
        if (position_ == begin) {
            fail("expected a number behind '*'", "for example t*3");
        }
        if (next() == '*') {
            fail("a repetition is repeated: expected a letter, '|' or '('",
                 "write it with one number");
        }
        return count;
    }

    void append(std::string& result, std::string_view outside, const Repeated& what) {
        const std::size_t room = largest_layout - std::min(largest_layout, outside.size()) -
                                 std::min(largest_layout, result.size());
        if (what.count > room / what.text.size()) {
            position_ = what.at;
            fail(fmt::format("from here on more than {} layers and stages", largest_layout),
                 "check the number behind the '*'");
        }
        for (std::size_t i = 0; i < what.count; ++i) {
            result += what.text;
        }
    }

    std::string_view text_;
    std::string_view place_;
    std::size_t position_ = 0;
    int depth_ = 0;
};

MegatronLayout split(std::string_view expanded) {
    MegatronLayout layout;
    while (true) {
        const std::size_t end = std::min(expanded.find(stage_end), expanded.size());
        layout.stages.emplace_back(expanded.substr(0, end));
        if (end == expanded.size()) {
            return layout;
        }
        expanded.remove_prefix(end + 1);
    }
}

/// The rules that Megatron asserts for a layout, for any number of ranks.
class Rules {
  public:
    Rules(const MegatronLayout& layout, std::string_view place) : layout_(layout), place_(place) {}

    void check() {
        for (stage_ = 0; stage_ < layout_.stages.size(); ++stage_) {
            for (const char letter : layout_.stages[stage_]) {
                check_letter(letter);
                ++count_;
                last_ = letter;
            }
        }
        stage_ = layout_.stages.size() - 1;
        if (last_ != 'L') {
            fail(count_ == 0 ? "the layout has no layers" : "the last layer is not the loss L");
        }
    }

  private:
    void check_letter(char letter) {
        if ((count_ == 0) != (letter == 'E')) {
            fail(count_ == 0
                     ? fmt::format("the first layer is '{}', expected the embedding E", letter)
                     : "the embedding E follows another layer, expected E once, first");
        }
        if (last_ == 'L') {
            fail(fmt::format("'{}' follows the loss L, expected L once, last", letter));
        }
        if (letter == 't' && stage_of_m_) {
            fail("a decoder layer t follows an m, expected all t before");
        }
        if (letter == 'm' && stage_of_m_.value_or(stage_) != stage_) {
            fail(fmt::format("stage {} has an m already, expected every m on one stage",
                             *stage_of_m_));
        }
        if (letter == 'm') {
            stage_of_m_ = stage_;
        }
    }

    [[noreturn]] void fail(const std::string& why) const {
        throw Error(ErrorKind::BadInput,
                    std::string(place_),
                    fmt::format("stage {}: {}", stage_, why),
                    std::string(example));
    }

    const MegatronLayout& layout_;
    std::string_view place_;
    std::size_t stage_ = 0;
    std::size_t count_ = 0;
    char last_ = 0;
    std::optional<std::size_t> stage_of_m_;
};

// --- Writing. ---

/// Number of equal entries from `begin` on; `end` is behind the last that may count.
template <class List>
std::size_t run_length(const List& list, std::size_t begin, std::size_t end) {
    std::size_t i = begin;
    while (i < end && list[i] == list[begin]) {
        ++i;
    }
    return i - begin;
}

constexpr std::size_t worth_repeating = 3;

std::string print_stage(const std::string& stage) {
    std::string text;
    for (std::size_t i = 0; i < stage.size();) {
        const std::size_t run = run_length(stage, i, stage.size());
        text += run >= worth_repeating ? fmt::format("{}*{}", stage[i], run)
                                       : std::string(run, stage[i]);
        i += run;
    }
    return text;
}

// --- From and to a partition of ours. ---

/// Units of gpt_model: 0 the embedding, 2b + 1 and 2b + 2 the halves of block b, the last the head.
void require_whole_blocks(const Partition& partition) {
    for (int stage = 1; stage < partition.stage_count(); ++stage) {
        const int first = partition.first_layer(stage);
        if (first % 2 == 0) {
            throw Error(
                ErrorKind::Infeasible,
                KeyValue{"pipeline.partition"},
                fmt::format("stage {} begins with the second half of block {}, but a "
                            "Megatron layout has whole blocks only",
                            stage,
                            first / 2 - 1),
                "plan with whole blocks: --whole-blocks of 'pipetwin plan MODEL' and of 'pipetwin "
                "import hf'; or write pipeline.partition with one number of blocks per stage");
        }
    }
}

void require_megatron_placement(const Schedule& schedule) {
    if (model_stage_count(schedule) != schedule.stage_count()) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.schedule"},
                    fmt::format("stage {} holds the weights of stage 0 once more, but a Megatron "
                                "layout has every layer once",
                                model_stage_count(schedule)),
                    "use a schedule with one pipeline, such as 1f1b");
    }
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        const int rank = schedule.rank_of_stage[as_index(stage)];
        const int expected = stage % schedule.rank_count();
        if (rank != expected) {
            throw Error(ErrorKind::Infeasible,
                        KeyValue{"pipeline.schedule"},
                        fmt::format("stage {} is on rank {}, but Megatron puts it on rank {}",
                                    stage,
                                    rank,
                                    expected),
                        "use a schedule whose chunks go round the ranks, such as interleaved-1f1b");
        }
    }
}

int count_of(const std::string& stage, char letter) {
    return static_cast<int>(std::ranges::count(stage, letter));
}

/// The letter of one of the words that Megatron-Core has for layers; none: it is no such word.
std::optional<char> letter_of(std::string_view word) {
    for (const auto& [name, letter] : {std::pair{std::string_view("embedding"), 'E'},
                                       std::pair{std::string_view("decoder"), 't'},
                                       std::pair{std::string_view("mtp"), 'm'},
                                       std::pair{std::string_view("loss"), 'L'}}) {
        if (word == name || (word.size() == 1 && word.front() == letter)) {
            return letter;
        }
    }
    return std::nullopt;
}

}  // namespace

MegatronLayout parse_megatron_layout(std::string_view text, std::string_view place) {
    while (text.ends_with('\n') || text.ends_with('\r')) {
        text.remove_suffix(1);
    }
    MegatronLayout layout = split(Expander(text, place).expand());
    Rules(layout, place).check();
    return layout;
}

MegatronLayout parse_megatron_layout_lists(std::string_view text, std::string_view place) {
    std::string letters_of_stages;
    const int depth_of_stages = text.starts_with("[[") ? 2 : 1;
    int depth = 0;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        if (c == '[' || c == ']') {
            depth += c == '[' ? 1 : -1;
            // Each inner list is a stage, which ends at its bracket.
            letters_of_stages += c == ']' && depth == depth_of_stages - 1 ? "|" : "";
            ++i;
        } else if (std::string_view(" ,'\"").find(c) != std::string_view::npos) {
            ++i;
        } else {
            const std::size_t end = std::min(text.find_first_of(" ,'\"[]", i), text.size());
            const std::string_view word = text.substr(i, end - i);
            const std::optional<char> letter = letter_of(word);
            if (!letter || depth != depth_of_stages) {
                throw Error(ErrorKind::BadInput,
                            std::string(place),
                            fmt::format("'{}', expected embedding, decoder, mtp or loss",
                                        word.substr(0, 40)),
                            "write a list for each stage: [[embedding, decoder], [decoder, loss]]");
            }
            letters_of_stages += *letter;
            i = end;
        }
    }
    if (depth != 0 || letters_of_stages.empty()) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "the lists of layers are not closed",
                    "write a list for each stage: [[embedding, decoder], [decoder, loss]]");
    }
    letters_of_stages.pop_back();
    return parse_megatron_layout(letters_of_stages, place);
}

std::string print_megatron_layout(const MegatronLayout& layout) {
    PIPETWIN_EXPECT(!layout.stages.empty(), "a layout without stages");
    std::string text;
    const std::size_t last = layout.stages.size() - 1;  // no stage end behind it
    for (std::size_t i = 0; i < last;) {
        const std::size_t run = run_length(layout.stages, i, last);
        const std::string stage = print_stage(layout.stages[i]) + stage_end;
        if (run >= worth_repeating) {
            text += fmt::format("({})*{}", stage, run);
            i += run;
        } else {
            text += stage;
            ++i;
        }
    }
    return text + print_stage(layout.stages[last]);
}

MegatronLayout megatron_layout(const Partition& partition, const Schedule& schedule) {
    require_megatron_placement(schedule);
    require_whole_blocks(partition);
    PIPETWIN_EXPECT(partition.stage_count() == schedule.stage_count(), "another number of stages");
    MegatronLayout layout;
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        const bool first = stage == 0;
        const bool last = stage + 1 == partition.stage_count();
        const int halves = partition.layers_in(stage) - (first ? 1 : 0) - (last ? 1 : 0);
        layout.stages.push_back(std::string(first ? "E" : "") +
                                std::string(as_index(halves / 2), 't') + (last ? "L" : ""));
    }
    return layout;
}

LayoutPartition layout_partition(const MegatronLayout& layout) {
    LayoutPartition partition;
    for (std::size_t stage = 0; stage < layout.stages.size(); ++stage) {
        const std::string& held = layout.stages[stage];
        if (held.empty()) {
            throw Error(
                ErrorKind::Infeasible,
                "partition",
                fmt::format("stage {} is empty, which Megatron takes; a stage here holds at "
                            "least one layer",
                            stage),
                "move a layer of a neighbouring stage there, or leave the stage out");
        }
        partition.decoder_layers += count_of(held, 't');
        partition.prediction_layers += count_of(held, 'm');
    }
    partition.unit = partition.prediction_layers > 0 ? LayoutUnit::AllLayers : LayoutUnit::Blocks;
    for (const std::string& held : layout.stages) {
        partition.sizes.push_back(partition.unit == LayoutUnit::Blocks
                                      ? count_of(held, 't')
                                      : static_cast<int>(held.size()));
    }
    return partition;
}

}  // namespace pipetwin
