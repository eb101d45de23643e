// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/cli/support.h"

/// Mistakes with the words of `plan` for several clusters, numbers of nodes and stacks. Each is
/// refused before anything is searched, at its place, with one suggestion.
namespace pipetwin::cli {
namespace plan_table_mistakes_test {

using ::testing::HasSubstr;

struct WrongTable {
    std::vector<std::string> more;  ///< words behind `plan MODEL --cluster NAME`
    std::string place;
    std::string found;
    std::string suggestion;
};

const std::vector<std::string> plan_gpt2{"plan", "gpt2-124m", "--cluster", "8x-rtx-4090"};

class PlanTableMistakes : public InFolder {
  protected:
    /// Expects the refusal of a whole command line.
    static void expect_refused(const std::vector<std::string>& args, const WrongTable& wrong) {
        const Outcome outcome = pipetwin(args);
        std::string words;
        for (const std::string& word : args) {
            words += word + ' ';
        }
        EXPECT_THAT(outcome.code, ::testing::AnyOf(2, 3)) << words << outcome.out << outcome.err;
        EXPECT_THAT(outcome.out, ::testing::IsEmpty()) << words;
        EXPECT_THAT(outcome.err, HasSubstr("error: " + wrong.place)) << words;
        EXPECT_THAT(outcome.err, HasSubstr(wrong.found)) << words;
        EXPECT_THAT(outcome.err, HasSubstr("hint: ")) << words;
        EXPECT_THAT(outcome.err.substr(outcome.err.find("hint: ")), HasSubstr(wrong.suggestion))
            << words;
    }
    static void expect_each_refused(const std::vector<WrongTable>& all) {
        for (const WrongTable& wrong : all) {
            expect_refused(joined(plan_gpt2, wrong.more), wrong);
        }
    }
};

TEST_F(PlanTableMistakes, NumbersOfNodes) {
    expect_each_refused({
        {{"--nodes", "4,,6"}, "--nodes", "the list '4,,6' has an empty entry", "--nodes 4,8"},
        {{"--nodes", "4,"}, "--nodes", "has an empty entry", "--nodes 4,8"},
        {{"--nodes", ",4"}, "--nodes", "has an empty entry", "--nodes 4,8"},
        {{"--nodes", "4,0"}, "--nodes", "'0', expected a whole number from 1", "--nodes 4,8"},
        {{"--nodes", "4,-2"}, "--nodes", "'-2', expected a whole number from 1", "--nodes 4,8"},
        {{"--nodes", "0"}, "--nodes", "'0', expected a whole number from 1", "--nodes 8"},
        {{"--nodes", "4,4"}, "--nodes", "'4' is in the list more than once", "--nodes 4\n"},
        {{"--nodes", "4,6,4"}, "--nodes", "'4' is in the list more than once", "--nodes 4,6\n"},
        {{"--nodes", "4-8"}, "--nodes", "'4-8'", "--nodes 4,8"},
        {{"--nodes", "4..8"}, "--nodes", "'4..8'", "--nodes 4,8"},
        {{"--nodes", "4:8"}, "--nodes", "'4:8'", "--nodes 4,8"},
        {{"--nodes", "4;8"}, "--nodes", "is no list with commas", "did you mean '4,8'?"},
        {{"--nodes", "4 6 8"}, "--nodes", "is no list with commas", "did you mean '4,6,8'?"},
        {{"--nodes", "[4,8]"}, "--nodes", "is no list with commas", "did you mean '4,8'?"},
        {{"--nodes", "4", "6", "8"}, "", "6", "--nodes 4,6,8"},
        {{"--nodes", "1.5,2"}, "--nodes", "'1.5', expected a whole number", "--nodes 4,8"},
        {{"--nodes", "four,six"}, "--nodes", "'four', expected a whole number", "--nodes 4,8"},
        {{"--nodes", "70000"}, "--nodes", "from 1 to 65536", "--nodes 8"},
        {{"--nodes", "4x"}, "--nodes", "'4x'", "--nodes 8"},
    });
}

TEST_F(PlanTableMistakes, ClustersAndStacks) {
    const auto with_cluster = [](const std::string& list) {
        return std::vector<std::string>{"plan", "gpt2-124m", "--cluster", list};
    };
    for (const WrongTable& wrong : std::vector<WrongTable>{
             {{"8x-h100-sxm,8x-h100-sxm"},
              "--cluster",
              "more than once",
              "--cluster 8x-h100-sxm\n"},
             {{"8x-h100-sxm,"}, "--cluster", "has an empty entry", "--cluster 8x-h100-sxm,8x-h200"},
             {{"8x-h100-sxm;8x-b200"}, "--cluster", "no list", "'8x-h100-sxm,8x-b200'"},
             {{"8x-h100-sxm 8x-b200"}, "--cluster", "no list", "'8x-h100-sxm,8x-b200'"},
             {{"8x-h100-sxm,8x-h200"}, "--cluster", "'8x-h200'", "did you mean '8x-h200-sxm'?"},
             {{"8x-h100-sxm,8x-b20"}, "--cluster", "'8x-b20'", "did you mean '8x-b200'?"},
             {{"h100,b200"}, "--cluster", "'h100'", "8x-h100-sxm"}}) {
        expect_refused(with_cluster(wrong.more.front()), wrong);
    }
    expect_refused({"plan", "gpt2-124m", "--cluster", "8x-h100-sxm", "8x-b200"},
                   {{}, "", "'8x-b200'", "--cluster 8x-h100-sxm,8x-b200"});
    expect_each_refused({
        {{"--stack", "megatron-2026,megatron-2026"},
         "--stack",
         "more than once",
         "megatron-2026\n"},
        {{"--stack", "megatron-2026,"}, "--stack", "has an empty entry", "--stack megatron-bridge"},
        {{"--stack", "megatron-2026,torchtitan-2025"},
         "--stack",
         "torchtitan-2025",
         "torchtitan-202"},
        {{"--stack", "megatron-2026,nemo"}, "--stack", "nemo", "nemo-2024"},
    });
}

TEST_F(PlanTableMistakes, Deadlines) {
    const std::vector<std::string> tokens{"--tokens", "1T"};
    for (const WrongTable& wrong : std::vector<WrongTable>{
             {{"--days", "-1"}, "--days", "'-1'", "--days 30"},
             {{"--days", "0"}, "--days", "'0'", "--days 30"},
             {{"--days", "a month"}, "--days", "'a month'", "--days 30"},
             {{"--days", "30d"}, "--days", "'30d'", "'30'"},
             {{"--days", "30,5"}, "--days", "'30,5'", "'30.5'"},
             {{"--days", "2027-03-31"}, "--days", "'2027-03-31'", "--until 2027-03-31"},
             {{"--until", "2025-13-01"},
              "--until",
              "there is no month 13",
              "did you mean '2025-01-13'?"},
             {{"--until", "2027-00-01"}, "--until", "there is no month 00", "--until 2027-03-31"},
             {{"--until", "2027-02-30"},
              "--until",
              "this month has the days 01 to 28",
              "'2027-02-28'"},
             {{"--until", "2027-04-31"},
              "--until",
              "this month has the days 01 to 30",
              "'2027-04-30'"},
             {{"--until", "31.3.2027"},
              "--until",
              "expected a day as year-month-day",
              "'2027-03-31'"},
             {{"--until", "2027/03/31"},
              "--until",
              "expected a day as year-month-day",
              "'2027-03-31'"},
             {{"--until", "20270331"},
              "--until",
              "expected a day as year-month-day",
              "'2027-03-31'"},
             {{"--until", "2027-3-31"},
              "--until",
              "expected a day as year-month-day",
              "'2027-03-31'"},
             {{"--until", "tomorrow"}, "--until", "'tomorrow'", "--until 2027-03-31"},
             {{"--until", "30"}, "--until", "'30'", "--days 30"},
             {{"--until", "2027-03-31", "--from", "1.1.2027"},
              "--from",
              "'1.1.2027'",
              "'2027-01-01'"},
             {{"--until", "2027-01-01", "--from", "2027-03-31"},
              "--until",
              "2027-01-01 is not after 2027-03-31",
              "--from 2027-01-01 --until 2027-03-31"},
             {{"--until", "2027-01-01", "--from", "2027-01-01"},
              "--until",
              "is not after",
              "name a later day"},
             {{"--until", "2001-01-01"},
              "--until",
              "is not after",
              "--from DATE --until 2001-01-01"},
             {{"--from", "2027-01-01"},
              "--from",
              "--until counts, which is missing",
              "--until DATE"},
             {{"--days", "30", "--from", "2027-01-01"},
              "--from",
              "--days counts",
              "leave --from out"},
             {{"--days", "30", "--until", "2027-01-01"}, "--", "--until", "leave one"}}) {
        expect_refused(joined(joined(plan_gpt2, wrong.more), tokens), wrong);
    }
    expect_each_refused({
        {{"--days", "30"}, "--days", "needs --tokens", "add --tokens 15T"},
        {{"--until", "2099-01-01"}, "--until", "needs --tokens", "add --tokens 15T"},
    });
}

TEST_F(PlanTableMistakes, FailuresPricesAndForms) {
    expect_each_refused({
        {{"--mtbf-hours", "0"}, "--mtbf-hours", "'0'", "--mtbf-hours 10000"},
        {{"--mtbf-hours", "-5"}, "--mtbf-hours", "'-5'", "--mtbf-hours 10000"},
        {{"--checkpoint-s", "-1"}, "--checkpoint-s", "'-1'", "--checkpoint-s 10"},
        {{"--restart-s", "soon"}, "--restart-s", "'soon'", "--restart-s 60"},
        {{"--nodes", "1,2", "--tokens", "1T", "--price", "2,3"},
         "--price",
         "'2,3', expected a number above zero",
         "'2.3'"},
        {{"--nodes", "1,2", "--price", "2"}, "--price", "needs --tokens", "--tokens"},
        {{"--nodes", "1,2", "--tokens", "1T", "--price", "-2"}, "--price", "'-2'", "--price 2.5"},
        {{"--nodes", "1,2", "--svg", "x.svg"}, "--svg", "needs --tokens", "add --tokens 15T"},
        {{"--nodes", "1,2", "--tokens", "1T", "--svg", "x.pdf"}, "--svg", "ends in .pdf", "--pdf"},
        {{"--nodes", "1,2", "--width", "84mm"}, "--width", "none is asked for", "--svg FILE.svg"},
        {{"--nodes", "1,2", "--markdown", "--json"}, "--markdown", "JSON", "leave out --markdown"},
        {{"--nodes", "1,2", "--out", "x"}, "--out", "for one plan", "--nodes 1 --out x"},
        {{"--nodes", "1,2", "--hybrid"}, "--hybrid", "for one plan", "--nodes 1"},
        {{"--nodes", "1,2", "--heatmap", "x.svg"}, "--heatmap", "for one plan", "--nodes 1"},
        {{"--nodes", "1,2", "--sweep", "training.batch=8,16"},
         "--sweep",
         "plans of one cluster",
         "--nodes 1"},
    });
    const std::string scenario = file("s.toml", small_scenario);
    for (const WrongTable& wrong : std::vector<WrongTable>{
             {{"--days", "30"}, "--days", "is a scenario", "leave --days out"},
             {{"--markdown"}, "--markdown", "is a scenario", "leave --markdown out"},
             {{"--svg", "x.svg"}, "--svg", "is a scenario", "leave --svg out"},
             {{"--mtbf-hours", "9"}, "--mtbf-hours", "is a scenario", "leave --mtbf-hours out"},
             {{"--csv", "x.csv"}, "--csv", "there is one", "add --sweep"}}) {
        expect_refused(joined({"plan", scenario}, wrong.more), wrong);
    }
    expect_refused({"plan", "gpt2-124m", "--nodes", "1,2"},
                   {{}, "--nodes", "needs --cluster", "add --cluster"});
}

}  // namespace plan_table_mistakes_test
}  // namespace pipetwin::cli
