// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/text/json_output.h"
#include "cli/text/sentences.h"
#include "cli/tour/tour.h"
#include "cli/tour/tour_page.h"
#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

/// Options of `demo`.
struct DemoOptions {
    CommonOptions common;
    std::optional<int> from;  ///< number of the first step; none: the first that is not done
    std::optional<int> to;    ///< number of the last step; none: the last there is
    bool list = false;        ///< list the steps, do none
};

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
    std::error_code ignored;
    return fs::exists(file, ignored);
}

/// The tour in one folder: which of its steps are done, and how to do them.
class Tour {
  public:
    Tour(const DemoOptions& options, Console& console)
        : options_(options),
          console_(console),
          folder_(options.common.out.empty() ? fs::path("pipetwin-demo") : options.common.out),
          steps_(tour_steps(folder_)) {
        check_number(options.from, "--from");
        check_number(options.to, "--to");
    }

    /// Does the steps that were asked for, the first step that is not done first.
    void go() {
        const int first = options_.from.value_or(next());
        const int last = options_.to.value_or(count());
        if (first > count() && !options_.common.json) {
            say_all_done();
            return;
        }
        if (first > last) {
            throw Error(
                ErrorKind::Usage,
                "--to",
                fmt::format(
                    "step {} comes before step {}, where the tour would begin", last, first),
                typed_line(words({"--from", std::to_string(last), "--to", std::to_string(last)})));
        }
        forget(first);
        for (int number = first; number <= last; ++number) {
            expect_needed(number);
            try_step(number);
        }
        if (!options_.common.json) {
            say_where(last);
        }
    }

    void list() const {
        std::string text = fmt::format("The tour in {}\n", folder_.string());
        for (int number = 1; number <= count(); ++number) {
            const std::string_view state = is_done(number)    ? "done"
                                           : number == next() ? "next"
                                                              : "";
            text += fmt::format("  {}  {:<4}  {}\n", number, state, step(number).title);
        }
        console_.result(text);
    }

    Json json() const {
        Json list = Json::array();
        for (int number = 1; number <= count(); ++number) {
            const TourStep& of = step(number);
            Json commands = Json::array();
            for (const CommandWords& command : of.commands) {
                commands.push_back(typed_line(command));
            }
            Json files = Json::array();
            for (const fs::path& file : of.files) {
                files.push_back(file.string());
            }
            list.push_back({{"step", number},
                            {"name", of.name},
                            {"title", of.title},
                            {"why", of.why},
                            {"commands", commands},
                            {"by_hand", of.by_hand.empty() ? Json() : Json(of.by_hand)},
                            {"files", files},
                            {"done", is_done(number)}});
        }
        Json json = json_head();
        json["folder"] = folder_.string();
        json["page"] = page().string();
        json["steps"] = list;
        return json;
    }

  private:
    int count() const { return static_cast<int>(steps_.size()); }
    const TourStep& step(int number) const { return steps_[as_index(number - 1)]; }
    fs::path text_file(int number) const { return step_text_file(folder_, number, step(number)); }
    /// The file that exists from the begin of a step to its end.
    fs::path begun_file(int number) const { return text_file(number).replace_extension(".begun"); }
    fs::path page() const { return tour_folder(folder_) / "index.html"; }
    bool is_done(int number) const { return is_there(text_file(number)); }

    /// First step that is not done; one more than the last where all are done and stay.
    int next() const {
        for (int number = 1; number <= count(); ++number) {
            if (!is_done(number)) {
                return number;
            }
        }
        return options_.common.force ? 1 : count() + 1;
    }

    /// Words of a `demo` command for this folder.
    CommandWords words(const CommandWords& more) const {
        CommandWords all{"demo"};
        all.insert(all.end(), more.begin(), more.end());
        if (!options_.common.out.empty()) {
            all.emplace_back("--out");
            all.push_back(folder_.string());
        }
        return all;
    }

    void check_number(const std::optional<int>& number, std::string_view option) const {
        if (number && (*number < 1 || *number > count())) {
            throw Error(ErrorKind::Usage,
                        std::string(option),
                        fmt::format("there is no step {}, expected 1 to {}", *number, count()),
                        "'pipetwin demo --list' lists the steps");
        }
    }

    void expect_needed(int number) const {
        const std::optional<int> needed = step(number).needs;
        if (needed && !is_done(*needed)) {
            throw Error(ErrorKind::Usage,
                        fmt::format("step {}", number),
                        fmt::format("it shows the results of step {}, which is not done", *needed),
                        typed_line(words({"--from", std::to_string(*needed)})));
        }
    }

    /// Steps from `first` on count as begun only, so that their files may be overwritten.
    void forget(int first) const {
        for (int number = first; number <= count(); ++number) {
            if (is_done(number)) {
                std::error_code status;
                fs::rename(text_file(number), begun_file(number), status);
                if (status) {
                    throw Error(ErrorKind::Io,
                                text_file(number).string(),
                                fmt::format("cannot rename the file: {}", status.message()),
                                "name another folder with --out DIR");
                }
            }
        }
    }

    void try_step(int number) {
        try {
            do_step(number);
        } catch (...) {
            console_.note(fmt::format("the tour stopped in step {} of {}; continue with: {}",
                                      number,
                                      count(),
                                      typed_line(words({}))));
            throw;
        }
    }

    void do_step(int number) {
        const TourStep& of = step(number);
        const bool overwrites = options_.common.force || is_there(begun_file(number));
        const std::string title = console_.styled(
            Style::Strong, fmt::format("Step {} of {}: {}", number, count(), of.title));
        say(paragraph_text({.heading = title, .lines = {std::string(of.why)}}, console_.width()));
        fs::create_directories(tour_folder(folder_));
        write_own_output(begun_file(number), "", console_);
        std::string printed;
        for (CommandWords command : of.commands) {
            if (overwrites) {
                command.emplace_back("--force");
            }
            printed += do_command(command, of.shown, text_file(number));
        }
        if (!of.by_hand.empty()) {
            printed += fmt::format("$ {}\n", of.by_hand);
            say(fmt::format("\n{}\n", console_.styled(Style::Hint, "$ " + of.by_hand)));
        }
        write_own_output(text_file(number), without_colours(printed), console_);
        fs::remove(begun_file(number));
        write_own_output(page(), tour_page(folder_), console_);
        say_files(of);
    }

    /// Runs a command as if it had been typed, and returns its line with all that it printed.
    std::string do_command(const CommandWords& command,
                           const ShownLines& shown,
                           const fs::path& text_file) {
        const std::string line = "$ " + typed_line(command);
        say(fmt::format("\n{}\n", console_.styled(Style::Hint, line)));
        std::ostringstream printed;
        Console own = console_.with_results_in(printed);
        execute_command(std::get<Command>(parse_options(command)), own);
        own.finish();
        say(folded(printed.str(), shown, text_file));
        return line + '\n' + printed.str();
    }

    /// Prints a part of the result at once; nothing where that is to be JSON.
    void say(std::string_view text) {
        if (!options_.common.json) {
            console_.result(text);
            console_.flush();
        }
    }

    void say_files(const TourStep& of) {
        std::string text;
        for (const fs::path& file : of.files) {
            if (is_there(file)) {
                text += fmt::format("{}{}", text.empty() ? "look at: " : ", ", file.string());
            }
        }
        say(text.empty() ? "\n" : fmt::format("\n{}\n\n", console_.styled(Style::Good, text)));
    }

    void say_where(int last) {
        say(fmt::format("All steps on one page: {}\n", page().string()));
        if (last < count()) {
            say(fmt::format("Continue the tour with: {}\n", typed_line(words({}))));
        }
    }

    void say_all_done() {
        say(fmt::format("Every step of the tour in {} is done.\n", folder_.string()));
        say_where(count());
        say(fmt::format("Repeat the tour with: {}\n", typed_line(words({"--from", "1"}))));
    }

    const DemoOptions& options_;
    Console& console_;
    fs::path folder_;
    std::vector<TourStep> steps_;
};

void execute_demo(const DemoOptions& options, Console& console) {
    Tour tour(options, console);
    if (!options.list) {
        tour.go();
    }
    if (options.common.json) {
        console.result(json_text(tour.json()));
    } else if (options.list) {
        tour.list();
    }
}

Command declare_demo(CLI::App& app) {
    const auto options = std::make_shared<DemoOptions>();
    app.get_option("--out")->description("Folder of the tour (default pipetwin-demo)");
    app.get_option("--force")->description(
        "Begin again if all steps are done, and overwrite existing files");
    leave_out_of_help(app, {"--set", "--seed"});
    app.add_option("--from",
                   options->from,
                   "Begin at step N, even if it is done (default: the first step that is not done)")
        ->type_name("N");
    app.add_option("--to", options->to, "End after step N (default: the last)")->type_name("N");
    app.add_flag("--list", options->list, "List the steps, and which of them are done");
    Command command = command_with(options, execute_demo);
    command.extra_word = "--from";
    return command;
}

}  // namespace

CommandRow demo_command() {
    return {
        .name = "demo",
        .help = "Take a guided tour: seven steps from one schedule to a trained and measured model",
        .declare = declare_demo};
}

}  // namespace pipetwin::cli
