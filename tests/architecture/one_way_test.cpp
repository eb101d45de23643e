// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/places.h"

// What all sources do in one way: open what they read (core/text/input_file.h), write what is
// theirs (core/text/own_file.h), print (cli/base/console.h, which escapes what a terminal would
// obey), show in a window (gui/base/plain_text.h), and read and write numbers without the locale. A
// source that needs another way has a line here that says why.

namespace one_way_test {

namespace fs = std::filesystem;

/// Something that has one way, and where it stands.
struct OneWay {
    std::string what;
    std::vector<std::string> words;              ///< that show it, each where it begins a name
    std::map<std::string, std::string> allowed;  ///< [file]: why
};

const std::vector<OneWay>& one_ways() {
    static const std::vector<OneWay> all{
        {"opens a file past core/text/input_file.h and core/text/own_file.h",
         {"ifstream",
          "ofstream",
          "fopen(",
          "gzopen(",
          "openat(",
          "SYS_openat",
          "QFile out",
          "QFile file",
          "sqlite3_open",
          "O_RDONLY",
          "O_WRONLY",
          "O_RDWR",
          "O_CREAT"},
         {{"core/text/input_file.cpp", "the way itself"},
          {"core/text/own_file.cpp", "the way itself"},
          {"core/text/json_text.cpp", "writes to a device or FIFO that the user names"},
          {"core/interop/traces/nsys_events.cpp", "SQLite, behind an InputFile"},
          {"exec/base/durable_file.cpp", "new files (O_EXCL), and folders"},
          {"cli/run_folder/growing_file.cpp", "files that grow, behind is_own_file"},
          {"cli/run_folder/run_folder.cpp", "asks whether a lock is held, and reads nothing"},
          {"cli/base/memory_left.cpp", "/proc"},
          {"cli/processes/processes.cpp", "/proc"},
          {"cli/commands/devices.cpp", "/proc"},
          {"cli/commands/launch.cpp", "/proc"}}},
        {"prints past the console",
         {"std::cout",
          "std::cerr",
          "std::clog",
          "fmt::print(",
          "printf(",
          "fprintf(",
          "puts(",
          "fputs(",
          "perror(",
          "qWarning",
          "qDebug",
          "qInfo",
          "write(STD"},
         {{"cli/main.cpp", "hands the streams to the console"},
          {"cli/base/exit.cpp", "flushes them"},
          {"gui/window/main.cpp", "has one function that prints, through printable_lines"}}},
        {"depends on the locale",
         {"strtod(",  "strtof(",  "stod(",     "stof(",    "atof(",     "sscanf(",   "setlocale",
          "tolower(", "toupper(", "isalpha(",  "isdigit(", "isspace(",  "isalnum(",  "isprint(",
          "iscntrl(", "isupper(", "islower(",  "ispunct(", "isxdigit(", "snprintf(", "strftime(",
          "put_time", "cctype",   "toDouble(", "toFloat("},
         {{"gui/window/main.cpp", "sets the locale of numbers"},
          {"gui/timeline/timeline_view.cpp", "a number in a QVariant, and no text"}}},
        {"shows a text that may look like HTML past gui/base/plain_text.h",
         {"new QLabel",
          "make_unique<QLabel",
          "setToolTip(",
          "setWhatsThis(",
          "QToolTip::showText(",
          "ToolTipRole",
          "QMessageBox",
          "QErrorMessage",
          "QProgressDialog",
          "QInputDialog",
          "QTextEdit",
          "QTextBrowser(",
          "setHtml(",
          "setRichText",
          "RichText",
          "AutoText"},
         {{"gui/base/plain_text.cpp", "the way itself"},
          {"gui/panels/op_table.cpp", "a sentence of ours on a column"},
          {"gui/run/run_list.cpp", "through plain_tip"},
          {"gui/window/main_window_menus.cpp", "tables of keys and words of ours"},
          {"gui/window/main_window_pages.cpp", "the About, in Qt::PlainText"}}},
        {"writes a file that no full disk is waited for, past cli/base/output_file.h",
         {"write_file(", "replace_file("},
         {{"cli/base/output_file.cpp", "the way itself"},
          {"core/text/json_text.h", "what it is made of"},
          {"core/text/json_text.cpp", "what it is made of"},
          {"core/text/own_file.h", "what it is made of"},
          {"core/text/own_file.cpp", "what it is made of"},
          {"cli/run_folder/run_folder.cpp", "keeps what it cannot write, and tries again"},
          {"cli/run_folder/growing_file.cpp", "a file that goes on, before the first step"},
          {"gui/timeline/export_view.cpp", "a picture: its user asks for it again"}}},
        {"decides what a limit on the size of files does",
         {"SIGXFSZ"},
         {{"core/text/open_file.cpp", "the way itself"}}}};
    return all;
}

bool is_of_a_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool has_word(std::string_view line, std::string_view word) {
    for (std::size_t at = line.find(word); at != std::string_view::npos;
         at = line.find(word, at + 1)) {
        if (at == 0 || !is_of_a_name(line[at - 1])) {
            return true;
        }
    }
    return false;
}

bool shows(std::string_view line, const OneWay& way) {
    return std::ranges::any_of(way.words,
                               [line](const std::string& word) { return has_word(line, word); });
}

bool is_source(const fs::path& path) {
    return path.extension() == ".h" || path.extension() == ".cpp" || path.extension() == ".cu";
}

/// The line without what stands behind "//".
std::string_view code_of(std::string_view line) {
    return line.substr(0, line.find("//"));
}

TEST(OneWay, EverySourceTakesIt) {
    const fs::path root = pipetwin::places::source_folder();
    std::set<std::string> used;
    for (const char* const folder : {"core", "sim", "exec", "gui", "cli"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            if (!entry.is_regular_file() || !is_source(entry.path())) {
                continue;
            }
            const std::string path = fs::relative(entry.path(), root).generic_string();
            std::ifstream stream(entry.path());
            int number = 1;
            for (std::string line; std::getline(stream, line); ++number) {
                for (const OneWay& way : one_ways()) {
                    if (!shows(code_of(line), way)) {
                        continue;
                    }
                    used.insert(way.what + path);
                    EXPECT_TRUE(way.allowed.contains(path))
                        << fmt::format("{}:{} {}: {}", path, number, way.what, line);
                }
            }
        }
    }
    for (const OneWay& way : one_ways()) {
        for (const auto& [path, why] : way.allowed) {
            EXPECT_TRUE(used.contains(way.what + path))
                << path << " no longer needs its line: " << way.what;
        }
    }
}

// The checker itself.
TEST(OneWay, IsTold) {
    const auto told = [](std::string_view line) {
        return static_cast<int>(std::ranges::count_if(
            one_ways(), [&](const OneWay& way) { return shows(code_of(line), way); }));
    };
    for (const char* const line : {"std::ifstream in(path);",
                                   "const int file = open(path.c_str(), O_RDONLY);",
                                   "gzopen(path.c_str(), mode)",
                                   "std::cerr << name;",
                                   "fmt::print(\"{}\", name);",
                                   "std::printf(\"%s\", name);",
                                   "std::tolower(c)",
                                   "std::stod(text)",
                                   "auto* const label = new QLabel(name);",
                                   "label->setToolTip(name);",
                                   "#include <cctype>"}) {
        EXPECT_EQ(told(line), 1) << line;
    }
    for (const char* const line : {"group.open({.peer = peer});",
                                   "ascii::lower(c)",
                                   "text += fmt::format(\"{}\", name);",
                                   "// std::cerr"}) {
        EXPECT_EQ(told(line), 0) << line;
    }
}

}  // namespace one_way_test
