// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/printed_arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/log_lines.h"
#include "core/interop/launch/megatron_flag_table.h"
#include "core/interop/launch/setting_values.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view first_line = "---- arguments ----";
constexpr string_view last_line = "---- end of arguments ----";

/// What differs between ranks and between parts of a run, or follows from the other arguments.
constexpr string_view derived =
    "rank local-rank data-parallel-size iteration curr-iteration consumed-train-samples "
    "consumed-valid-samples skipped-train-samples start-iteration "
    "num-floating-point-operations-so-far do-train do-valid do-test";

/// Arguments that the program sets to the value of another one.
constexpr auto copies = std::to_array<std::pair<string_view, string_view>>({
    {"encoder-num-layers", "num-layers"},
    {"encoder-seq-length", "seq-length"},
    {"transformer-pipeline-model-parallel-size", "pipeline-model-parallel-size"},
});

/// Arguments that mean something only where another one is on, and have numbers by default.
constexpr auto dependents = std::to_array<std::pair<string_view, string_view>>({
    {"linear-num-key-heads linear-num-value-heads linear-key-head-dim linear-value-head-dim "
     "linear-conv-kernel-dim gdp-num-chunk-states-to-recompute gdp-num-householder",
     "experimental-attention-variant"},
    {"num-layers-at-start-in-bf16 num-layers-at-end-in-bf16", "first-last-layers-bf16"},
    {"mhc-num-residual-streams", "enable-mhc-connections"},
    {"mhc-num-residual-streams", "enable-hyper-connections"},
    {"fp8-reduce-amax fp8-weight-cache fp8-weight-transpose-cache", "fp8"},
    {"zero-stage deepspeed-config", "deepspeed"},
});

/// Arguments of Megatron-DeepSpeed, whose list of experts, [1], says that there are none.
constexpr string_view of_deepspeed_experts =
    "topk expert-interval moe-expert-parallel-size moe-train-capacity-factor "
    "moe-top2-2nd-expert-sampling moe-token-dropping";

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// An argument of a line.
struct PrintedArgument {
    string_view name;
    string_view value;
    std::size_t column = 0;  ///< of the name, from 0
};

/// Characters of a name and its dots: 48, and 32 in old versions; a longer name has no dots.
constexpr std::size_t least_filled = 32;
constexpr std::size_t widest_name = 48;

/// "name ........ value".
std::optional<PrintedArgument> argument_in(string_view line) {
    for (std::size_t begin = 0; begin < line.size();) {
        if (!is_name_character(line[begin])) {
            ++begin;
            continue;
        }
        std::size_t end = begin;
        while (end < line.size() && is_name_character(line[end])) {
            ++end;
        }
        const string_view name = line.substr(begin, end - begin);
        std::size_t behind = end;
        if (behind < line.size() && line[behind] == ' ') {
            const std::size_t dots = ++behind;
            while (behind < line.size() && line[behind] == '.') {
                ++behind;
            }
            const std::size_t count = behind - dots;
            const bool is_filled =
                count > 0 ? name.size() + count >= least_filled : name.size() >= widest_name;
            if (is_filled && (behind == line.size() || line[behind] == ' ')) {
                const string_view value = line.substr(std::min(behind + 1, line.size()));
                return PrintedArgument{name, trimmed_line(value), begin};
            }
        }
        begin = end;
    }
    return std::nullopt;
}

/// A number of Python's that is whole, without the zeros behind its point: "1" of "1.0".
string_view without_zero_fraction(string_view word) {
    const std::size_t point = word.find('.');
    const bool is_whole =
        point != string_view::npos && point > 0 &&
        word.find_first_not_of("0123456789", word.front() == '-' ? 1 : 0) == point &&
        word.find_first_not_of('0', point + 1) == string_view::npos;
    return is_whole ? word.substr(0, point) : word;
}

/// The words of a value: of a list of Python's its elements, without quotes; types of torch as
/// flags have them.
std::vector<SettingWord> words_of(string_view value, const std::string& place) {
    const bool is_list = value.size() > 1 && ((value.front() == '[' && value.back() == ']') ||
                                              (value.front() == '(' && value.back() == ')'));
    std::vector<SettingWord> words;
    const auto add = [&](string_view word) {
        word = trimmed_line(word);
        const bool is_quoted = word.size() > 1 && (word.front() == '\'' || word.front() == '"') &&
                               word.front() == word.back();
        word = is_quoted ? word.substr(1, word.size() - 2) : word;
        word = word == "torch.float32" || word == "torch.float"  ? "fp32"
               : word == "torch.float16" || word == "torch.half" ? "fp16"
               : word == "torch.bfloat16"                        ? "bf16"
               : word == "torch.uint8"                           ? "fp8"
                                                                 : without_zero_fraction(word);
        words.push_back({.text = std::string(word), .place = place});
    };
    if (!is_list) {
        add(value);
        return words;
    }
    value = value.substr(1, value.size() - 2);
    while (!trimmed_line(value).empty()) {
        const std::size_t end = std::min(value.find(','), value.size());
        add(value.substr(0, end));
        value.remove_prefix(std::min(end + 1, value.size()));
    }
    return words;
}

/// Whether a value says that there is none.
bool is_nothing(string_view value) {
    return value.empty() || value == "None" || value == "[]" || value == "()" || value == "{}";
}

/// Reads the blocks of one log; one object for each.
class PrintedBlocks {
  public:
    PrintedBlocks(string_view text, string_view place) : place_(place) {
        for_each_log_line(text, [this](string_view line, int number) { take(line, number); });
    }

    LaunchFile read() {
        expect_whole_block();
        take_processes();
        for (const auto& [name, argument] : arguments_) {
            if (!is_derived(name)) {
                file_.settings.push_back(setting_of(name, argument));
            }
        }
        std::ranges::sort(file_.settings, {}, [this](const Setting& setting) {
            return arguments_.at(setting.name).line;
        });
        if (vocabulary_ && !has_value("padded-vocab-size")) {
            std::erase_if(file_.settings, [](const Setting& setting) {
                return setting.name == "padded-vocab-size";
            });
            file_.settings.push_back(setting_of("padded-vocab-size", *vocabulary_));
        }
        file_.is_printed = true;
        return std::move(file_);
    }

  private:
    struct Argument {
        std::string written;
        std::string value;
        int line = 0;
        std::size_t column = 0;
    };

    [[noreturn]] void refuse(int line, std::string what, std::string hint) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}", place_, line),
                    std::move(what),
                    std::move(hint));
    }

    void take(string_view line, int number) {
        if (line.find(first_line) != string_view::npos) {
            first_begin_ = begins_ == 0 ? number : first_begin_;
            last_begin_ = number;
            ++begins_;
        } else if (line.find(last_line) != string_view::npos) {
            ends_ += begins_ > ends_ ? 1 : 0;  // that of a block whose begin is not in the log
        } else if (begins_ > 0) {
            const std::optional<PrintedArgument> argument =
                begins_ > ends_ ? argument_in(line) : std::nullopt;
            if (argument) {
                add(*argument, number);
            } else {
                take_vocabulary(line, number);
            }
        }
    }

    void add(const PrintedArgument& argument, int line) {
        std::string name(argument.name);
        std::ranges::replace(name, '_', '-');
        const Argument found{.written = std::string(argument.name),
                             .value = std::string(argument.value),
                             .line = line,
                             .column = argument.column};
        const auto [entry, is_new] = arguments_.emplace(name, found);
        const bool may_differ = has_word(derived, name) || is_harmless_flag(name);
        if (!is_new && !may_differ && entry->second.value != found.value) {
            const bool is_one = begins_ == 1;
            refuse(line,
                   fmt::format("{} = {}, but {} in line {}: {}",
                               found.written,
                               found.value,
                               entry->second.value,
                               entry->second.line,
                               is_one ? "the block of arguments says both"
                                      : "the blocks of arguments differ"),
                   is_one
                       ? "import the log as the program wrote it"
                       : "they are of two runs, or of ranks that disagree: import the log of one "
                         "run");
        }
    }

    /// " > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)".
    void take_vocabulary(string_view line, int number) {
        constexpr string_view begin = "padded vocab (size:";
        constexpr string_view size = "(new size: ";
        const std::size_t at = line.find(size);
        if (line.find(begin) != string_view::npos && at != string_view::npos) {
            const string_view rest = line.substr(at + size.size());
            vocabulary_ = Argument{.written = "padded_vocab_size",
                                   .value = std::string(rest.substr(0, rest.find(')'))),
                                   .line = number,
                                   .column = at};
        }
    }

    void expect_whole_block() {
        if (ends_ == 0) {
            refuse(last_begin_,
                   "the block of arguments that begins here has no line 'end of arguments': the "
                   "log ends in the middle",
                   "import the log from its beginning to at least that line");
        }
        if (begins_ > ends_) {
            file_.notes.push_back(fmt::format(
                "{}: {} of {} blocks of arguments without a line 'end of arguments': what "
                "they have is read, too",
                place_,
                begins_ - ends_,
                begins_));
        }
        if (arguments_.empty()) {
            refuse(first_begin_,
                   "a block of arguments without any, expected lines such as 'num_layers ....... "
                   "24'",
                   "import the log as the program wrote it");
        }
    }

    void take_processes() {
        const auto found = arguments_.find("world-size");
        if (found == arguments_.end()) {
            return;
        }
        const int number = whole_value(setting_of(found->first, found->second), 1);
        file_.all_processes = number;
        arguments_.erase(found);
    }

    const std::string* value_of(string_view name) const {
        const auto found = arguments_.find(name);
        return found == arguments_.end() ? nullptr : &found->second.value;
    }

    bool has_value(string_view name) const {
        const std::string* const value = value_of(name);
        return value != nullptr && !is_nothing(*value);
    }

    bool is_off(string_view name) const {
        const std::string* const value = value_of(name);
        return value != nullptr && *value == "False";
    }

    /// What the program works out, or turns off, because of other arguments.
    bool is_derived(string_view name) const {
        for (const auto& [copy, original] : copies) {
            const std::string* const value = value_of(original);
            if (name == copy && value != nullptr && *value == *value_of(copy)) {
                return true;
            }
        }
        const bool is_interleaved = has_value("num-layers-per-virtual-pipeline-stage") ||
                                    has_value("num-virtual-stages-per-pipeline-rank") ||
                                    has_value("pipeline-model-parallel-layout");
        if (name == "virtual-pipeline-model-parallel-size") {
            return is_interleaved;
        }
        // Only ranks with several stages send and receive beside their work.
        const bool has_chunks = is_interleaved || has_value("virtual-pipeline-model-parallel-size");
        if (name == "overlap-p2p-comm" || name == "microbatch-group-size-per-vp-stage") {
            return !has_chunks;
        }
        if (name == "moe-grouped-gemm") {
            return is_off(name) && !has_value("num-experts");
        }
        if (has_word(of_deepspeed_experts, name) || name == "num-experts") {
            const std::string* const experts = value_of("num-experts");
            return experts != nullptr && *experts == "[1]";
        }
        const bool has_no_effect = std::ranges::any_of(dependents, [&](const auto& row) {
            const auto& [names, needed] = row;
            return has_word(names, name) &&
                   (is_off(needed) || (value_of(needed) != nullptr && !has_value(needed)));
        });
        return has_no_effect || has_word(derived, name);
    }

    Setting setting_of(const std::string& name, const Argument& argument) const {
        const std::string place =
            fmt::format("{}:{}:{}", place_, argument.line, argument.column + 1);
        return {.name = name,
                .written = argument.written,
                .place = place,
                .values = words_of(argument.value, place),
                .is_key = true,
                .sections = {},
                .is_unset = is_nothing(argument.value)};
    }

    std::string place_;
    LaunchFile file_;
    std::map<std::string, Argument, std::less<>> arguments_;
    std::optional<Argument> vocabulary_;
    int begins_ = 0;
    int ends_ = 0;
    int first_begin_ = 1;
    int last_begin_ = 1;
};

}  // namespace

bool has_printed_arguments(string_view text) {
    return text.find(first_line) != string_view::npos;
}

LaunchFile parse_printed_arguments(string_view text, string_view place) {
    return PrintedBlocks(text, place).read();
}

}  // namespace pipetwin
