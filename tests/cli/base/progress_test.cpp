// SPDX-License-Identifier: Apache-2.0
#include "cli/base/progress.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gmock/gmock.h>

namespace pipetwin::cli {
namespace progress_test {

using ::testing::HasSubstr;
using ::testing::Not;

/// A clock that the test sets.
Progress::Clock::time_point test_time{};

Progress::Clock::time_point test_now() {
    return test_time;
}

void pass(std::chrono::milliseconds time) {
    test_time += time;
}

struct Streams {
    std::ostringstream out;
    std::ostringstream err;
};

TEST(Progress, SaysNothingInTheFirstSecond) {
    Streams streams;
    Console console(streams.out, streams.err, {});
    {
        Progress progress(console, "training", &test_now);
        pass(std::chrono::milliseconds(900));
        progress.update(1.0);
    }
    EXPECT_EQ(streams.err.str(), "");
}

TEST(Progress, OffATerminalWritesALinePerTenPercent) {
    Streams streams;
    Console console(streams.out, streams.err, {});
    {
        Progress progress(console, "training", &test_now);
        pass(std::chrono::seconds(2));
        for (int step = 1; step <= 100; ++step) {
            progress.update(step / 100.0);
        }
    }
    const std::string text = streams.err.str();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
    EXPECT_THAT(text, HasSubstr("training: 100 %\n"));
    EXPECT_EQ(streams.out.str(), "");
}

TEST(Progress, OnATerminalRedrawsOneLineAndClearsIt) {
    Streams streams;
    Console console(streams.out, streams.err, {.err = true});
    {
        Progress progress(console, "training", &test_now);
        pass(std::chrono::seconds(2));
        progress.update(0.25, "step 1");
        progress.update(0.26, "too soon after the last");
    }
    const std::string text = streams.err.str();
    EXPECT_THAT(text, HasSubstr("25 %  step 1"));
    EXPECT_THAT(text, Not(HasSubstr("too soon")));
    EXPECT_THAT(text, Not(HasSubstr("\n")));
    EXPECT_TRUE(text.ends_with("\r\x1b[K"));
}

TEST(Progress, IsSilentWhenQuiet) {
    Streams streams;
    Console console(streams.out, streams.err, {.err = true});
    CommonOptions options;
    options.quiet = true;
    console.configure(options);
    {
        Progress progress(console, "training", &test_now);
        pass(std::chrono::seconds(2));
        progress.update(0.5);
    }
    EXPECT_EQ(streams.err.str(), "");
}

TEST(Progress, OnATerminalWithoutEscapeSequencesWritesLines) {
    Streams streams;
    Console console(streams.out, streams.err, {.err = true, .no_color = true, .dumb = true});
    {
        Progress progress(console, "training", &test_now);
        pass(std::chrono::seconds(2));
        progress.update(0.25, "step 1");
    }
    EXPECT_EQ(streams.err.str(), "training: 25 %  step 1\n");
}

/// Sets an environment variable for a scope.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) {
        const char* const old = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
        had_ = old != nullptr;
        old_ = had_ ? old : "";
        setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
    }
    ~Variable() {
        if (had_) {
            setenv(name_, old_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
        } else {
            unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
        }
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
    bool had_ = false;
    std::string old_;
};

TEST(ThisTerminal, KnowsNoEscapeSequencesWhereTermIsDumbOrMissing) {
    for (const char* kind : {"dumb", ""}) {
        const Variable term("TERM", kind);
        EXPECT_TRUE(this_terminal().dumb) << kind;
        EXPECT_TRUE(this_terminal().no_color) << kind;
    }
    const Variable term("TERM", "xterm-256color");
    EXPECT_FALSE(this_terminal().dumb);
}

TEST(ThisTerminal, IsAsWideAsColumnsSays) {
    {
        const Variable columns("COLUMNS", "57");
        EXPECT_EQ(this_terminal().width, 57);
    }
    const Variable none("COLUMNS", "");
    const int otherwise = this_terminal().width;
    for (const char* no_width : {"0", "-80", "8x", "1000000", "99999999999999999999"}) {
        const Variable columns("COLUMNS", no_width);
        EXPECT_EQ(this_terminal().width, otherwise) << no_width;
    }
}

}  // namespace progress_test
}  // namespace pipetwin::cli
