// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/shell_script.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/launch/shell_expansion.h"
#include "core/interop/launch/shell_words.h"

namespace pipetwin {

namespace {

/// Commands that show or move files, so that a program they name is not run.
constexpr std::string_view commands_that_run_nothing =
    "echo printf cat ls cp mv rm mkdir sed grep source . cd pip test [";

/// The words of a training command.
struct TrainingCommand {
    std::string program;
    std::vector<ShellText> launcher;   ///< words before the program
    std::vector<ShellText> arguments;  ///< words behind it
};

/// The words of a statement, and those of a command that one of them holds, as in
/// bash -c "torchrun x.py --bf16" and in eval "$COMMAND".
std::vector<ShellText> split_command(const std::vector<ShellText>& words) {
    std::vector<ShellText> all;
    const bool is_evaluated = !words.empty() && words.front().text == "eval";
    for (std::size_t i = is_evaluated ? 1 : 0; i < words.size(); ++i) {
        const std::string& before = i > 0 ? words[i - 1].text : std::string();
        const bool is_command = is_evaluated || before == "-c" || before == "-lc" ||
                                words[i].text.find(".py ") != std::string::npos;
        if (is_command) {
            std::ranges::move(split_at_blanks(words[i]), std::back_inserter(all));
        } else {
            all.push_back(words[i]);
        }
    }
    return all;
}

/// Python's modules that start the program behind them.
bool is_launcher(std::string_view module) {
    return module.starts_with("torch.distributed") || module.starts_with("accelerate");
}

/// Programs that start one whose name stands behind their own flags.
bool is_launching(const ShellText& word) {
    const std::string_view name =
        std::string_view(word.text).substr(word.text.find_last_of('/') + 1);
    return has_word("torchrun deepspeed accelerate mpirun srun", name) ||
           name.starts_with("torch.distributed");
}

/// The command of a launcher whose program only a variable names, as in torchrun $COMMAND; none
/// where the words are no such command.
std::optional<TrainingCommand> unseen_program(const std::vector<ShellText>& words) {
    const auto launcher = std::ranges::find_if(words, is_launching);
    const auto unseen = std::find_if(launcher, words.end(), [](const ShellText& word) {
        return word.text.empty() && !word.unknown.empty() && word.holds_flags;
    });
    if (unseen == words.end()) {
        return std::nullopt;
    }
    return TrainingCommand{
        .program = {}, .launcher = {words.begin(), unseen}, .arguments = {unseen, words.end()}};
}

std::optional<TrainingCommand> training_command(const std::vector<ShellText>& statement) {
    const std::vector<ShellText> words = split_command(statement);
    if (words.empty() || has_word(commands_that_run_nothing, words.front().text)) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool is_module = has_word("-m --module", words[i].text) && i + 1 < words.size() &&
                               !is_launcher(words[i + 1].text);
        const std::size_t program = is_module ? i + 1 : i;
        if (is_module || words[i].text.ends_with(".py")) {
            const auto at = words.begin() + static_cast<std::ptrdiff_t>(program);
            return TrainingCommand{.program = at->text,
                                   .launcher = {words.begin(), at},
                                   .arguments = {at + 1, words.end()}};
        }
    }
    return unseen_program(words);
}

bool is_flag(const ShellText& word) {
    return word.text.starts_with("--") && word.text.size() > 2 && word.text[2] != '=';
}

/// "seed=1" or "train.micro_batch_size=2".
bool is_key_with_value(const ShellText& word) {
    const std::size_t equals = word.text.find('=');
    const std::size_t first = word.text.find_first_not_of(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+~");
    return equals != std::string::npos && equals > 0 && first == equals;
}

/// "train.micro_batch_size=2", as Hydra's programs take it.
bool is_override(const ShellText& word) {
    return is_key_with_value(word) && word.text.find('.') < word.text.find('=');
}

/// Reads a script; one object for each.
class ScriptReader {
  public:
    ScriptReader(std::string_view script, std::string_view place, const LaunchVariables& given)
        : script_(script), place_(place), variables_(script, place) {
        for (const auto& [name, value] : given) {
            variables_.fix(name, value);
        }
    }

    LaunchFile read() {
        for (const ShellStatement& statement : shell_statements(script_, place_)) {
            take(statement);
            is_optional_ = statement.end == '&' || statement.end == '|';
        }
        file_.environment = variables_.values_of("NVTE_");
        if (commands_.empty()) {
            std::vector<ShellText> words = std::move(plain_words_);
            if (std::ranges::none_of(words, is_flag)) {
                words = variables_.all_words();
            }
            add_settings(words);
            return std::move(file_);
        }
        leave_helpers_out();
        const TrainingCommand& command = commands_.front();
        file_.program = command.program;
        read_launcher(command.launcher);
        add_settings(command.arguments);
        expect_same_flags();
        return std::move(file_);
    }

  private:
    std::string place_of(const ShellText& word) const {
        return text_place(script_, place_, word.begin());
    }

    void take(const ShellStatement& statement) {
        std::vector<ShellWord> words = statement.words;
        std::string opener;
        while (!words.empty() && take_keyword(words.front().text)) {
            opener = words.front().text;
            words.erase(words.begin());
        }
        if (words.empty()) {
            return;
        }
        if (opener == "for" && words.size() > 1 && words[1].text == "in") {
            take_loop(words);
            return;
        }
        if (has_word("export local declare readonly typeset", words.front().text)) {
            words.erase(words.begin());
            std::erase_if(words, [](const ShellWord& word) { return word.text.starts_with('-'); });
        }
        const auto command = std::ranges::find_if_not(
            words, [](const ShellWord& word) { return is_assignment(word.text); });
        if (command == words.end()) {
            for (const ShellWord& word : words) {
                variables_.assign(word, depth_ > 0 || is_optional_);
            }
            return;
        }
        take_command({command, words.end()});
    }

    /// Whether the word belongs to the shell's own grammar; counts how deep branches and loops are.
    bool take_keyword(std::string_view word) {
        if (has_word("if for while until case select", word)) {
            blocks_.push_back(1);
            ++depth_;
            return true;
        }
        if (has_word("fi done esac", word)) {
            depth_ = std::max(0, depth_ - (blocks_.empty() ? 1 : blocks_.back()));
            if (!blocks_.empty()) {
                blocks_.pop_back();
            }
            return true;
        }
        if (word == "{") {  // [ a ] && { X=1; Y=2; }
            groups_.push_back(is_optional_);
            depth_ += is_optional_ ? 1 : 0;
            return true;
        }
        if (word == "}") {
            if (!groups_.empty()) {
                depth_ = std::max(0, depth_ - (groups_.back() ? 1 : 0));
                groups_.pop_back();
            }
            return true;
        }
        return has_word("then do else elif ! time exec", word);
    }

    /// "NAME in words": a loop with one pass, or of which the user has chosen one, is carried out
    /// as that pass.
    void take_loop(const std::vector<ShellWord>& words) {
        const std::string name(words.front().text);
        std::vector<ShellText> passes;
        std::vector<std::string> values;
        bool is_known = true;
        for (std::size_t i = 2; i < words.size(); ++i) {
            for (ShellText& value : variables_.expand(words[i])) {
                const bool is_pattern = value.text.find_first_of("*?[") != std::string::npos;
                is_known = is_known && value.unknown.empty() && !is_pattern;
                values.push_back(value.text);
                passes.push_back(std::move(value));
            }
        }
        const bool is_single = is_known && values.size() == 1 && depth_ == 1;
        for (ShellText& value : passes) {
            variables_.set(name, std::move(value), !is_single);
        }
        if (is_single || variables_.is_fixed(name)) {
            depth_ -= blocks_.back();
            blocks_.back() = 0;
        } else if (is_known && !values.empty()) {
            loops_[name] = std::move(values);
        }
    }

    void take_command(const std::vector<ShellWord>& written) {
        std::vector<ShellText> words;
        for (const ShellWord& word : written) {
            std::ranges::move(variables_.expand(word), std::back_inserter(words));
        }
        if (std::optional<TrainingCommand> command = training_command(words)) {
            const std::vector<ShellText>& arguments = command->arguments;
            if (command->program.empty() || std::ranges::any_of(arguments, is_flag) ||
                std::ranges::any_of(arguments, is_override)) {
                commands_.push_back(*std::move(command));
            }
            return;
        }
        std::ranges::move(words, std::back_inserter(plain_words_));
    }

    void read_launcher(const std::vector<ShellText>& words) {
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (words[i].holds_flags) {
                note_unseen_flags(words[i]);
            }
            const std::string& word = words[i].text;
            const std::size_t equals = word.find('=');
            std::string name = word.substr(0, equals);
            std::ranges::replace(name, '_', '-');
            const bool of_node = has_word("--nproc-per-node --num-gpus", name);
            if (!of_node && !has_word("--nnodes --num-nodes", name)) {
                continue;
            }
            const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                                      : i + 1 < words.size()      ? words[i + 1].text
                                                                  : std::string();
            const std::optional<int> number = whole_in(value);
            (of_node ? file_.processes : file_.nodes) =
                number.value_or(0) > 0 ? number : std::nullopt;
            has_nodes_ = has_nodes_ || !of_node;
        }
        if (file_.processes && !has_nodes_) {
            file_.nodes = 1;  // what the launchers take without a word
            file_.has_usual_nodes = true;
        }
    }

    /// Takes programs without a flag of a training out, where others have one: they prepare data.
    void leave_helpers_out() {
        const auto is_training = [](const TrainingCommand& command) {
            return command.program.empty() ||
                   std::ranges::any_of(command.arguments, [](const ShellText& word) {
                       std::string flag = word.text.substr(0, word.text.find('='));
                       std::ranges::replace(flag, '_', '-');
                       return is_override(word) || word.holds_flags ||
                              has_word(
                                  "--num-layers --hidden-size --seq-length --micro-batch-size "
                                  "--global-batch-size --tensor-model-parallel-size "
                                  "--pipeline-model-parallel-size",
                                  flag);
                   });
        };
        if (std::ranges::none_of(commands_, is_training)) {
            return;
        }
        std::erase_if(commands_, [&](const TrainingCommand& command) {
            const bool is_helper = !is_training(command);
            if (is_helper) {
                file_.notes.push_back(fmt::format("{}: {} has no flag of a training: passed over",
                                                  command.arguments.empty()
                                                      ? std::string(place_)
                                                      : place_of(command.arguments.front()),
                                                  command.program));
            }
            return is_helper;
        });
    }

    void note_unseen_flags(const ShellText& word) {
        file_.unseen.push_back(word.unknown);
        file_.notes.push_back(
            fmt::format("{}: {} has no value in this file, or one under a condition: flags that it "
                        "holds are not seen",
                        place_of(word),
                        word.unknown));
    }

    void add_settings(const std::vector<ShellText>& words) {
        file_.settings.clear();
        const bool has_overrides = std::ranges::any_of(words, is_override);
        for (const ShellText& word : words) {
            if (is_flag(word)) {
                const std::size_t equals = word.text.find('=');
                std::string written = word.text.substr(0, equals);
                add(written.substr(2), written, word);
                if (equals != std::string::npos) {
                    add_value(word.from(equals + 1));
                }
            } else if (is_key_with_value(word) && (has_overrides || follows_a_value())) {
                add_override(word);
            } else if (!word.unknown.empty() && word.text.empty() &&
                       (word.holds_flags || !may_be_value(word.unknown))) {
                note_unseen_flags(word);
            } else if (!file_.settings.empty() && file_.settings.back().is_key) {
                file_.notes.push_back(
                    fmt::format("{}: '{}' is neither a flag nor key=value: left out",
                                place_of(word),
                                word.text.substr(0, 60)));
            } else if (!file_.settings.empty()) {
                add_value(word);
            }
        }
    }

    /// Whether a word of a command stands behind a setting that has its value.
    bool follows_a_value() const {
        return !commands_.empty() && !file_.settings.empty() &&
               !file_.settings.back().values.empty();
    }

    /// "train.micro_batch_size=2", "+seed=1".
    void add_override(const ShellText& word) {
        const std::size_t equals = word.text.find('=');
        const std::string written = word.text.substr(0, equals);
        const std::size_t begin = std::min(written.find_first_not_of("+~"), written.size());
        const std::size_t dot = written.rfind('.');
        add(written.substr(dot == std::string::npos ? begin : dot + 1), written, word);
        file_.settings.back().is_key = true;
        for (std::size_t at = begin; dot != std::string::npos && at < dot;) {
            const std::size_t end = written.find('.', at);
            file_.settings.back().sections.push_back(written.substr(at, end - at));
            at = end + 1;
        }
        add_value(word.from(equals + 1));
        const std::string& value = file_.settings.back().values.back().text;
        file_.settings.back().is_unset = has_word("null None", value);
    }

    /// Whether a variable that the script gives no value may be the value of the flag before it;
    /// its name tells where it holds flags.
    bool may_be_value(std::string_view variable) const {
        const auto holds = [variable](std::string_view part) {
            return variable.find(part) != std::string_view::npos;
        };
        const bool holds_flags = holds("ARG") || holds("OPT") || holds("FLAG") || holds("EXTRA") ||
                                 holds("@") || holds("args") || holds("opt") || holds("flag");
        return !holds_flags && !file_.settings.empty() && file_.settings.back().values.empty();
    }

    void add(std::string name, std::string written, const ShellText& word) {
        std::ranges::replace(name, '_', '-');
        file_.settings.push_back(
            {.name = std::move(name), .written = std::move(written), .place = place_of(word)});
    }

    void add_value(const ShellText& word) {
        SettingWord value{.text = word.text, .place = place_of(word), .unknown = word.unknown};
        if (const auto loop = loops_.find(variable_name(word.unknown)); loop != loops_.end()) {
            value.choices = loop->second;
        }
        file_.settings.back().values.push_back(std::move(value));
    }

    /// Two commands, as in both branches of an `if`, must ask for the same training.
    void expect_same_flags() {
        const std::vector<Setting> first = file_.settings;
        const std::vector<std::string> notes = file_.notes;
        const std::vector<std::string> unseen = file_.unseen;
        const auto same = [](const Setting& a, const Setting& b) {
            return a.name == b.name &&
                   std::ranges::equal(
                       a.values, b.values, {}, &SettingWord::text, &SettingWord::text);
        };
        for (std::size_t i = 1; i < commands_.size(); ++i) {
            add_settings(commands_[i].arguments);
            if (!std::ranges::equal(first, file_.settings, same)) {
                const std::string place =
                    file_.settings.empty() ? std::string(place_) : file_.settings.front().place;
                throw Error(
                    ErrorKind::BadInput,
                    place,
                    fmt::format("a second training command with other flags than the one at {}",
                                first.front().place),
                    "keep one of the two in the file");
            }
        }
        file_.settings = first;
        file_.notes = notes;
        file_.unseen = unseen;
    }

    std::string_view script_;
    std::string_view place_;
    ShellVariables variables_;
    int depth_ = 0;
    bool is_optional_ = false;
    std::vector<int> blocks_;  ///< open branches and loops: 1, or 0 for a loop with a chosen pass
    std::map<std::string, std::vector<std::string>, std::less<>> loops_;  ///< values by variables
    std::vector<bool> groups_;  ///< open braces: whether a condition stands before them
    bool has_nodes_ = false;
    std::vector<TrainingCommand> commands_;
    std::vector<ShellText> plain_words_;
    LaunchFile file_;
};

}  // namespace

LaunchFile parse_shell_script(std::string_view text,
                              std::string_view place,
                              const LaunchVariables& given) {
    return ScriptReader(text, place, given).read();
}

}  // namespace pipetwin
