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

/// The words of a loss that is 0 or is not printed are no evidence of NaN; the norm of the gradient
/// and the counter are.
TEST(LoggedLosses, AMissingLossIsNoNumberWithEvidenceAlone) {
    const std::string log = step_line(1, "lm loss: 9E+00 |") + step_line(2, "loss scale: 1.0 |") +
                            step_line(3, "grad norm: 1.5 |");
    EXPECT_EQ(losses_of(log), std::vector<double>{9});
    const std::vector<double> counted =
        losses_of(log + step_line(4, "number of nan iterations: 1 |"));
    ASSERT_EQ(counted.size(), 2U);
    EXPECT_TRUE(std::isnan(counted.back()));
}

/// Megatron-LM prints the mean of the iterations that have a loss, and counts the others.
TEST(LoggedLosses, IterationsWithoutANumberInAReportWithALossAreNoted) {
    const auto report = [](int iteration, int skipped, int nan) {
        return step_line(iteration,
                         "lm loss: 8E+00 |",
                         fmt::format("number of skipped iterations: {} | number of nan iterations: "
                                     "{} |",
                                     skipped,
                                     nan));
    };
    const TrainingLog log =
        parse_training_log(report(10, 0, 0) + report(20, 0, 2) + report(30, 1, 1));
    ASSERT_EQ(log.losses.size(), 3U);
    EXPECT_EQ(log.losses.back().loss, 8);
    ASSERT_EQ(log.notes.size(), 1U);
    EXPECT_EQ(log.notes.front(),
              "the loss was no number in 3 iterations of 2 reports that print a loss of the "
              "others, the first in line 2");
}

/// "8." may be the beginning of 8.5E+00.
TEST(LoggedLosses, ANumberThatTheEndOfTheLogCutsIsNotRead) {
    const std::string whole = step_line(1, "lm loss: 9.5E+00 |");
    const std::string second = step_line(2, "lm loss: 8.5E+00");
    const std::size_t number = second.find("8.5E+00");
    for (std::size_t end = number + 1; end < second.size(); ++end) {
        const TrainingLog log = parse_training_log(whole + second.substr(0, end));
        ASSERT_EQ(log.losses.size(), 1U) << end;
        ASSERT_EQ(log.notes.size(), 1U) << end;
        EXPECT_EQ(log.notes.front(),
                  fmt::format("the log ends within line 2, so its last number, '{}', may be cut "
                              "and was not read",
                              second.substr(number, end - number)));
    }
    const TrainingLog ended = parse_training_log(whole + second);
    EXPECT_EQ(ended.losses.size(), 2U);
    EXPECT_TRUE(ended.notes.empty());
    EXPECT_TRUE(parse_training_log(whole + "Epoch 3").notes.empty());
    EXPECT_TRUE(
        parse_training_log(" iteration 1/ 9 | elapsed time per iteration (ms): 86").steps.empty());
}

TEST(LoggedLosses, ALaterStartThatRepeatsIterationsIsNoted) {
    std::string run;
    for (int iteration = 1; iteration <= 5; ++iteration) {
        run += step_line(iteration, "lm loss: 9E+00 |");
    }
    const TrainingLog twice = parse_training_log(run + run + step_line(6, "lm loss: 8E+00 |"));
    EXPECT_EQ(twice.losses.size(), 6U);
    ASSERT_EQ(twice.notes.size(), 1U);
    EXPECT_EQ(twice.notes.front(),
              "lines 6 to 10 repeat iterations that lines 1 to 5 report: of these the first start "
              "was read, and the later 5 reports left out");
    const std::string block = "------------ end of arguments ------------\n";
    const std::string one = step_line(1, "lm loss: 9E+00 |");
    EXPECT_EQ(parse_training_log(block + one + block + one).notes.size(), 1U);
    std::string ranks;  // two of them print each report
    for (int iteration = 1; iteration <= 5; ++iteration) {
        ranks +=
            step_line(iteration, "lm loss: 9E+00 |") + step_line(iteration, "lm loss: 9E+00 |");
    }
    EXPECT_TRUE(parse_training_log(ranks).notes.empty());
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
