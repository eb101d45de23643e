// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace hints_test {

/// A small pipeline, of which one may or may not be possible.
struct Shape {
    std::string_view schedule;
    int stages = 1;
    int chunks = 1;
    int micro_batches = 1;
    int group_size = 0;  ///< 0: it is not written
    int layers = 1;
    int batch = 1;
};

std::string text_of(const Shape& shape) {
    return fmt::format(
        "[model]\nkind = \"profile\"\nfile = \"p.json\"\n[training]\nbatch = {}\n[pipeline]\n"
        "schedule = \"{}\"\nstages = {}\nchunks = {}\nmicro_batches = {}\n{}",
        shape.batch,
        shape.schedule,
        shape.stages,
        shape.chunks,
        shape.micro_batches,
        shape.group_size > 0 ? fmt::format("group_size = {}\n", shape.group_size) : "");
}

/// Shapes of a schedule, those that break its rules and those that do not.
std::vector<Shape> shapes_of(std::string_view schedule) {
    std::vector<Shape> shapes;
    for (int i = 0; i < 4 * 3 * 5 * 6 * 2 * 2; ++i) {
        auto next = [rest = i](int base) mutable {
            const int value = rest % base;
            rest /= base;
            return value;
        };
        Shape shape{.schedule = schedule};
        shape.stages = 1 + next(4);
        shape.chunks = 1 + next(3);
        shape.micro_batches = 1 + next(5);
        shape.layers = 1 + next(6);
        shape.batch = next(2) == 0 ? 3 : 16;
        shape.group_size = next(2) == 0 ? 0 : 2;
        shapes.push_back(shape);
    }
    return shapes;
}

Profile profile_of(int layers) {
    Profile profile;
    for (int layer = 0; layer < layers; ++layer) {
        profile.layers.push_back(testing::layer(fmt::format("layer{}", layer), 100, 10, 20));
    }
    return profile;
}

/// What is thrown where the scenario has no plan; none where it has one.
std::optional<Error> refusal(const std::string& text,
                             const std::vector<Override>& overrides,
                             const Profile& profile) {
    try {
        const SettledScenario scenario = settle(parse_scenario(text, "x.toml", overrides));
        make_plan(scenario, scenario_model(scenario, &profile), profile);
        return std::nullopt;
    } catch (const Error& error) {
        return error;
    }
}

// 3 units, 2 stages, 2 chunks, interleaved-1f1b: the hint was "set stages to a number from 1 to 3",
// which 2 is.
TEST(Hint, OfAShapeThatIsImpossibleLeadsToAPlanOrToAnotherError) {
    int followed = 0;
    for (const ScheduleName& schedule : known_schedules()) {
        for (const Shape& shape : shapes_of(schedule.name)) {
            const Profile profile = profile_of(shape.layers);
            const std::string text = text_of(shape);
            const std::optional<Error> error = refusal(text, {}, profile);
            if (!error) {
                continue;
            }
            EXPECT_FALSE(error->key().empty()) << error->what() << "\n" << text;
            EXPECT_FALSE(error->advice().settings.empty()) << error->what() << "\n" << text;
            for (const KeyValue& setting : error->advice().settings) {
                ++followed;
                const std::optional<Error> after = refusal(text, {setting}, profile);
                EXPECT_TRUE(!after || after->text() != error->text())
                    << error->what() << "\nleads to itself with " << with_its_table(setting) << "\n"
                    << text << shape.layers << " layers";
                if (::testing::Test::HasFailure()) {
                    return;
                }
            }
        }
    }
    EXPECT_GT(followed, 10'000);
}

}  // namespace hints_test
}  // namespace pipetwin
