// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/event_queue.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/soak.h"

namespace pipetwin::sim {
namespace event_queue_test {

TEST(EventQueue, GivesTheEarliestFirstAndOfEqualTimesTheLowestSource) {
    EventQueue queue(5);
    queue.announce(4, Duration{7});
    queue.announce(1, Duration{9});
    queue.announce(2, Duration{7});
    for (const auto& [time, source] : {std::pair{7, 2U}, {7, 4U}, {9, 1U}}) {
        const std::optional<Event> event = queue.take_next();
        ASSERT_TRUE(event.has_value());
        EXPECT_EQ(event->time, Duration{time});
        EXPECT_EQ(event->source, source);
    }
    EXPECT_EQ(queue.take_next(), std::nullopt);
}

TEST(EventQueue, ANewAnnouncementTakesThePlaceOfTheOldOne) {
    EventQueue queue(2);
    queue.announce(0, Duration{3});
    queue.announce(1, Duration{4});
    queue.announce(0, Duration{5});
    EXPECT_EQ(queue.take_next(), (Event{Duration{4}, 1}));
    EXPECT_EQ(queue.take_next(), (Event{Duration{5}, 0}));
    EXPECT_EQ(queue.take_next(), std::nullopt);
}

TEST(EventQueue, WithoutSourcesHasNothingToCome) {
    EXPECT_EQ(EventQueue(0).take_next(), std::nullopt);
}

/// Against an ordered map, for numbers of sources that are no power of two as well.
TEST(EventQueue, DoesWhatAnOrderedMapDoes) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < tests::soaked(200); ++round) {
        const std::size_t sources = 1 + random() % 40;
        EventQueue queue(sources);
        std::map<std::size_t, Duration> expected;
        for (int step = 0; step < 200; ++step) {
            if (random() % 3 > 0) {
                const std::size_t source = random() % sources;
                expected[source] = Duration{static_cast<std::int64_t>(random() % 20)};
                queue.announce(source, expected[source]);
                continue;
            }
            const auto earliest = std::ranges::min_element(expected, {}, [](const auto& announced) {
                return std::pair{announced.second, announced.first};
            });
            const std::optional<Event> event = queue.take_next();
            ASSERT_EQ(event.has_value(), earliest != expected.end());
            if (event) {
                ASSERT_EQ(*event, (Event{earliest->second, earliest->first}));
                expected.erase(earliest);
            }
        }
    }
}

}  // namespace event_queue_test
}  // namespace pipetwin::sim
