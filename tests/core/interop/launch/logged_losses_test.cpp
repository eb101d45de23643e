// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/logged_losses.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/interop/launch/training_log.h"

namespace pipetwin {
namespace logged_losses_test {

std::vector<double> losses_of(std::string_view log) {
    std::vector<double> losses;
    for (const LoggedLoss& loss : parse_training_log(log).losses) {
        losses.push_back(loss.loss);
    }
    return losses;
}

/// The words of each program, as its logs in public issues and its sources have them.
TEST(LoggedLosses, EachProgramHasItsWords) {
    const std::vector<double> expected{2.5, 2.25};
    const auto expect_losses = [&](const std::string& first, const std::string& second) {
        EXPECT_EQ(losses_of(first + "\n" + second + "\n"), expected) << first;
    };
    const auto megatron = [](int iteration, std::string_view loss) {
        return fmt::format(
            " iteration {:8}/ 250000 | elapsed time per iteration (ms): 865.2 | learning rate: "
            "9.1E-06 | global batch size: 1024 | {} | mtp_1 loss: 7.9E+00 | loss scale: 1.0 |",
            iteration,
            loss);
    };
    expect_losses(megatron(1, "lm loss: 2.500000E+00"), megatron(2, "lm loss: 2.250000E+00"));
    expect_losses(megatron(1, "lm_loss: 2.500000E+00"), megatron(2, "lm_loss: 2.250000E+00"));
    expect_losses("[titan] step:  1  loss:  2.50000  memory: 66.91GiB(37%)  tps: 10,050  mfu: 9%",
                  "[titan] step:  2  loss:  2.25000  memory: 66.91GiB(37%)  tps: 10,050  mfu: 9%");
    expect_losses("steps: 10 loss: 2.5000 iter time (s): 2.5 samples/sec: 25.6",
                  "steps: 20 loss: 2.2500 iter time (s): 2.0 samples/sec: 32.0");
    expect_losses(
        "iteration: 1 / 9 | elapsed_time_per_iteration_ms: 11.5K | lm_loss: 2.5 | lr: 1e-05",
        "iteration: 2 / 9 | elapsed_time_per_iteration_ms: 11.5K | lm_loss: 2.25 | lr: 1e-05");
    expect_losses("completed step: 1, seconds: 1.5, TFLOP/s/device: 86.0, loss: 2.500",
                  "completed step: 2, seconds: 1.5, TFLOP/s/device: 86.0, loss: 2.250");
    expect_losses(
        "Training epoch 0, iteration 1/9 | global_step: 1 | reduced_train_loss: 2.5 | "
        "train_step_timing in s: 27.01",
        "Training epoch 0, iteration 2/9 | global_step: 2 | reduced_train_loss: 2.25 | "
        "train_step_timing in s: 27.01");
    expect_losses(
        "{'loss': '2.5', 'grad_norm': 1, 'iteration': '10/100', 'elapsed_time': '1m 44s', "
        "'train_speed(s/it)': '10.4'}",
        "{'loss': 2.25, 'grad_norm': 1, 'iteration': '20/100', 'elapsed_time': '3m 28s', "
        "'train_speed(s/it)': 10.4}");
    expect_losses("{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}",
                  "{'loss': '2.25', 'grad_norm': '1.0', 'learning_rate': '1e-05', 'epoch': '0.2'}");
    EXPECT_TRUE(losses_of("{'train_runtime': 9.5, 'train_samples_per_second': 8.4, 'train_loss': "
                          "2.1, 'epoch': 1.0}\n{'eval_loss': 2.0, 'epoch': 1.0}\n")
                    .empty());
}

std::string step_line(int iteration, std::string_view loss, std::string_view rest = "") {
    return fmt::format(
        " iteration {}/ 100 | elapsed time per iteration (ms): 8 | {}{}\n", iteration, loss, rest);
}

/// Megatron-LM prints averages above 0, so it leaves NaN out; an overflow of the loss scale, which
/// skips an iteration, is none.
TEST(LoggedLosses, MegatronLeavesOutWhatIsNoNumber) {
    const std::string skipped = "number of skipped iterations: 1 | number of nan iterations: ";
    const std::string log = step_line(1, "", skipped + "0 |") + step_line(2, "lm loss: 9E+00 |") +
                            step_line(2, "lm loss: 9E+00 |") + step_line(3, "lm loss: 8E+00 |") +
                            step_line(4, "", skipped + "0 |") + step_line(5, "grad norm: nan |") +
                            step_line(6, "", skipped + "1 |") + step_line(7, "lm loss: 7E+00 |");
    const std::optional<LossCourse> course = loss_course(parse_training_log(log).losses);
    ASSERT_TRUE(course.has_value());
    EXPECT_EQ(course->reports, 5);
    EXPECT_EQ(course->first->loss, 9);
    EXPECT_EQ(course->first->iteration, 2);
    EXPECT_EQ(course->last->loss, 7);
    EXPECT_EQ(course->not_finite, 2);
    EXPECT_EQ(course->first_not_finite->iteration, 5);
    EXPECT_EQ(course->first_not_finite->line, 6);
    const auto titan = loss_course(
        parse_training_log("step: 1  loss:     nan  memory: 1.0GiB(1%)  tps: 10  mfu: 1%\n")
            .losses);
    EXPECT_EQ(titan->first, std::nullopt);
    EXPECT_EQ(titan->not_finite, 1);
    EXPECT_EQ(loss_course({}), std::nullopt);
}

/// Losses before the block of arguments are of another run.
TEST(LoggedLosses, BelongToTheRunOfTheArguments) {
    EXPECT_EQ(losses_of(step_line(50, "lm loss: 3E+00 |") +
                        "------------ end of arguments ------------\n" +
                        step_line(1, "lm loss: 9E+00 |")),
              std::vector<double>{9});
}

/// The median of 3, 3.1, 2.9 and 3 is 3: 3.7 is 0.7 above, less than a quarter; 4 is a third above.
TEST(LoggedLosses, ASpikeIsFarAboveTheReportsBefore) {
    const auto course_of = [](const std::vector<double>& losses) {
        std::vector<LoggedLoss> reports;
        for (const double loss : losses) {
            const int number = static_cast<int>(reports.size()) + 1;
            reports.push_back({.line = number, .iteration = number, .loss = loss});
        }
        return loss_course(reports).value();
    };
    EXPECT_EQ(course_of({3, 3.1, 2.9, 3, 3.7, 3}).spike, std::nullopt);
    EXPECT_EQ(course_of({3, 3.1, 9, 3, 3}).spike, std::nullopt) << "behind two reports alone";
    EXPECT_EQ(course_of({0.3, 0.3, 0.3, 0.3, 0.7}).spike, std::nullopt) << "0.4 above";
    const LossCourse course = course_of({3, 3.1, 2.9, 3, 4, 3, 5, 3});
    ASSERT_TRUE(course.spike.has_value());
    EXPECT_EQ(course.spike->at.loss, 5);
    EXPECT_EQ(course.spike->at.iteration, 7);
    EXPECT_EQ(course.spike->before, 3);
    EXPECT_EQ(course.last->loss, 3);
}

}  // namespace logged_losses_test
}  // namespace pipetwin
