#include "cli/base/progress.h"

#include <algorithm>
#include <sstream>

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

}  // namespace progress_test
}  // namespace pipetwin::cli
