// SPDX-License-Identifier: Apache-2.0
#include "cli/base/shell_word.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/printable.h"

namespace pipetwin::cli {
namespace shell_word_test {

/// What bash hands to a command for a word that was typed.
std::string read_by_bash(const std::string& word) {
    // What bash reads comes from its standard input: no shell reads it before.
    const std::string command = "bash <<'END_OF_INPUT'\nprintf %s " + word + "\nEND_OF_INPUT\n";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                               ::pclose);
    std::string text;
    std::array<char, 256> bytes{};
    while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe.get())) {
        text.append(bytes.data(), count);
    }
    return text;
}

TEST(ShellWord, IsReadByBashAsTheWord) {
    for (const std::string& word : std::vector<std::string>{"runs/1",
                                                            "my run",
                                                            "it's",
                                                            "$HOME `id` \"quoted\" \\n",
                                                            "a*b?[c]",
                                                            "größer",
                                                            "two\nlines",
                                                            "it's\x1b[2J\\",
                                                            "\xff\xfe",
                                                            "x\nerror: y"}) {
        EXPECT_EQ(read_by_bash(shell_word(word)), word) << shell_word(word);
        EXPECT_TRUE(is_printable(shell_word(word)));
    }
}

}  // namespace shell_word_test
}  // namespace pipetwin::cli
