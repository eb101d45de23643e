#include "core/interop/megatron_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

using std::string_view;

struct Number {
    string_view flag;
    std::optional<int> MegatronFlags::*value;
};

/// In the order in which they are written.
constexpr std::array numbers{
    Number{"--num-layers", &MegatronFlags::layers},
    Number{"--hidden-size", &MegatronFlags::hidden_size},
    Number{"--ffn-hidden-size", &MegatronFlags::feed_forward},
    Number{"--num-attention-heads", &MegatronFlags::heads},
    Number{"--seq-length", &MegatronFlags::sequence},
    Number{"--vocab-size", &MegatronFlags::vocabulary},
    Number{"--tensor-model-parallel-size", &MegatronFlags::tensor_size},
    Number{"--pipeline-model-parallel-size", &MegatronFlags::pipeline_size},
    Number{"--num-layers-per-virtual-pipeline-stage", &MegatronFlags::virtual_stage_layers},
    Number{"--num-virtual-stages-per-pipeline-rank", &MegatronFlags::virtual_stages},
    Number{"--micro-batch-size", &MegatronFlags::micro_batch_size},
    Number{"--global-batch-size", &MegatronFlags::global_batch_size},
    Number{"--recompute-num-layers", &MegatronFlags::recompute_layers},
};
constexpr string_view layout_flag = "--pipeline-model-parallel-layout";
constexpr string_view granularity_flag = "--recompute-granularity";
constexpr string_view method_flag = "--recompute-method";
constexpr string_view activations_flag = "--recompute-activations";
constexpr string_view sharding_flag = "--use-distributed-optimizer";
constexpr int largest = 1 << 30;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// One word of the command line, without its quotes.
struct Word {
    std::string text;
    std::size_t at = 0;
};

class Flags {
  public:
    Flags(string_view text, string_view place) : text_(text), place_(place) { split(); }

    MegatronFlags read() {
        for (std::size_t i = 0; i < words_.size(); ++i) {
            const std::string text = words_[i].text;  // a copy: words are inserted below
            if (!text.starts_with("--")) {
                continue;
            }
            const std::size_t equals = text.find('=');
            if (equals != std::string::npos) {
                words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                              {text.substr(equals + 1), words_[i].at + equals + 1});
                words_[i].text.resize(equals);
            }
            take(i);
        }
        return std::move(flags_);
    }

  private:
    [[noreturn]] void refuse(std::size_t at, std::string what, std::string hint = {}) const {
        const string_view before = text_.substr(0, at);
        const std::size_t line_end = before.rfind('\n');
        const std::size_t begin = line_end == string_view::npos ? 0 : line_end + 1;
        throw Error(
            ErrorKind::BadInput,
            fmt::format("{}:{}:{}", place_, 1 + std::ranges::count(before, '\n'), at - begin + 1),
            std::move(what),
            std::move(hint));
    }

    void split() {
        for (std::size_t i = 0; i < text_.size();) {
            const string_view rest = text_.substr(i);
            const bool line_goes_on =
                rest == "\\" || rest.starts_with("\\\n") || rest.starts_with("\\\r\n");
            if (is_space(text_[i]) || line_goes_on) {
                ++i;
            } else if (text_[i] == '#') {
                i = std::min(text_.find('\n', i), text_.size());
            } else {
                i = word(i);
            }
        }
    }

    /// Reads the word at `begin`; returns where it ends.
    std::size_t word(std::size_t begin) {
        Word word{.text = {}, .at = begin};
        std::size_t i = begin;
        while (i < text_.size() && !is_space(text_[i])) {
            const char c = text_[i];
            if (c == '"' || c == '\'') {
                const std::size_t end = text_.find(c, i + 1);
                if (end == string_view::npos) {
                    refuse(i, "the quote is not closed");
                }
                word.text += text_.substr(i + 1, end - i - 1);
                i = end + 1;
            } else if (c == '\\' && i + 1 < text_.size()) {
                if (!is_space(text_[i + 1])) {
                    word.text += text_[i + 1];
                    i += 2;
                } else {
                    break;
                }
            } else {
                word.text += c;
                ++i;
            }
        }
        if (i < text_.size() && text_[i] == '\\') {
            ++i;  // goes on in the next line
        }
        words_.push_back(std::move(word));
        return std::max(i, begin + 1);
    }

    void take(std::size_t i) {
        const string_view flag = words_[i].text;
        const auto* const number = std::ranges::find(numbers, flag, &Number::flag);
        if (number != numbers.end()) {
            once(i);
            flags_.*(number->value) = whole(i);
        } else if (flag == layout_flag) {
            once(i);
            const Word& written = value(i);
            flags_.layout =
                parse_megatron_layout(written.text, fmt::format("{}: {}", place_, layout_flag));
        } else if (flag == granularity_flag) {
            once(i);
            const Word& how = value(i);
            flags_.recompute_full = how.text == "full";
            flags_.recompute_selective = how.text == "selective";
            if (!flags_.recompute_full && !flags_.recompute_selective) {
                refuse(how.at, fmt::format("'{}', expected full or selective", how.text));
            }
        } else if (flag == activations_flag) {
            flags_.recompute_selective = true;
        } else if (flag == sharding_flag) {
            flags_.shard_optimizer = true;
        } else if (flag == method_flag) {
            const Word& how = value(i);
            if (how.text != "uniform" && how.text != "block") {
                refuse(how.at, fmt::format("'{}', expected uniform or block", how.text));
            }
            if (how.text == "block") {
                refuse(how.at,
                       "block recomputes some layers of a stage and keeps the others, which has no "
                       "word here",
                       "take --recompute-method uniform, or leave the recompute flags out");
            }
        } else {
            flags_.unused.emplace_back(flag);
        }
    }

    void once(std::size_t i) {
        for (std::size_t before = 0; before < i; ++before) {
            if (words_[before].text == words_[i].text) {
                refuse(words_[i].at, fmt::format("{} a second time", words_[i].text));
            }
        }
    }

    const Word& value(std::size_t i) const {
        if (i + 1 == words_.size() || words_[i + 1].text.starts_with("--")) {
            refuse(words_[i].at, fmt::format("{} without a value", words_[i].text));
        }
        return words_[i + 1];
    }

    int whole(std::size_t i) const {
        const Word& word = value(i);
        int number = 0;
        const char* const end = word.text.data() + word.text.size();
        const auto [rest, status] = std::from_chars(word.text.data(), end, number);
        if (status != std::errc{} || rest != end || number < 1 || number > largest) {
            refuse(word.at,
                   fmt::format("{} = '{}', expected a whole number of at least 1",
                               words_[i].text,
                               string_view(word.text).substr(0, 60)),
                   word.text.starts_with('$') ? "write the value in place of the shell's variable"
                                              : "");
        }
        return number;
    }

    string_view text_;
    string_view place_;
    std::vector<Word> words_;
    MegatronFlags flags_;
};

}  // namespace

bool are_megatron_flags(string_view text) {
    return text.find("--") != string_view::npos;  // a layout has no minus
}

MegatronFlags parse_megatron_flags(string_view text, string_view place) {
    return Flags(text, place).read();
}

std::string print_megatron_flags(const MegatronFlags& flags) {
    std::vector<std::string> words;
    for (const auto& [flag, value] : numbers) {
        if (flags.*value && value != &MegatronFlags::recompute_layers) {
            words.push_back(fmt::format("{} {}", flag, *(flags.*value)));
        }
    }
    if (flags.layout) {
        words.push_back(
            fmt::format("{} \"{}\"", layout_flag, print_megatron_layout(*flags.layout)));
    }
    if (flags.shard_optimizer) {
        words.emplace_back(sharding_flag);
    }
    if (flags.recompute_selective) {
        words.push_back(fmt::format("{} selective", granularity_flag));
    }
    if (flags.recompute_full) {
        words.push_back(fmt::format("{} full {} uniform", granularity_flag, method_flag));
    }
    if (flags.recompute_layers) {
        words.push_back(fmt::format("--recompute-num-layers {}", *flags.recompute_layers));
    }
    return fmt::format("{}\n", fmt::join(words, " "));
}

}  // namespace pipetwin
