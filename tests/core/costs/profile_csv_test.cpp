// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile_csv.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/costs/profile_json.h"
#include "tests/support/code_blocks.h"
#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace profile_csv_test {

using testing::error_of;

constexpr std::string_view header =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes";

Error refusal(const std::string& text) {
    return error_of([&] { parse_profile_csv(text, "x.csv"); });
}

TEST(ParseProfileCsv, ReadsALayerPerLine) {
    const Profile profile = parse_profile_csv(
        fmt::format("{}\na,1.5,3,100,200,400\nb,0.25,0.5,0,10,0\n", header), "x.csv");
    ASSERT_EQ(profile.layers.size(), 2U);
    EXPECT_EQ(profile.source, CostSource::Estimated);
    EXPECT_EQ(profile.layers[0],
              (LayerCost{.name = "a",
                         .parameter_bytes = Bytes{400},
                         .samples = {{.micro_batch_size = 1,
                                      .forward = Duration{1'500'000},
                                      .backward_input = Duration{1'500'000},
                                      .backward_weight = Duration{1'500'000},
                                      .output = Bytes{100},
                                      .saved = Bytes{200}}}}));
}

TEST(ParseProfileCsv, HalvesAnOddBackwardWithoutLosingANanosecond) {
    const Profile profile =
        parse_profile_csv(fmt::format("{}\na,1,0.000003,0,0,0", header), "x.csv");
    EXPECT_EQ(profile.layers[0].samples[0].backward_input, Duration{1});
    EXPECT_EQ(profile.layers[0].samples[0].backward_weight, Duration{2});
}

TEST(ParseProfileCsv, ReadsTheOptionalColumnsInAnyOrder) {
    const Profile profile = parse_profile_csv(
        "inputs,backward_weight_ms,backward_input_ms,parameter_bytes,saved_bytes,output_bytes,"
        "backward_ms,forward_ms,name\r\n,1,2,0,0,0,3,1,\"a,b\"\r\n,1,2,0,0,0,3,1,\"say "
        "\"\"c\"\"\"\r\n"
        "\"a,b;say \"\"c\"\"\",1,2,0,0,0,3,1,d\r\n",
        "x.csv");
    ASSERT_EQ(profile.layers.size(), 3U);
    EXPECT_EQ(profile.layers[1].name, "say \"c\"");
    EXPECT_EQ(profile.layers[2].inputs, (std::vector<std::string>{"a,b", "say \"c\""}));
    EXPECT_EQ(profile.layers[0].samples[0].backward_input, Duration{2'000'000});
    EXPECT_EQ(profile.layers[0].samples[0].backward_weight, Duration{1'000'000});
}

TEST(ParseProfileCsv, ReadsTheExampleOfItsDocumentation) {
    for (const std::string& block : testing::code_blocks("docs/formats.md", "")) {
        if (block.starts_with("name,")) {
            EXPECT_EQ(parse_profile_csv(block, "docs/formats.md").layers[2].name, "head, loss");
            return;
        }
    }
    FAIL() << "no example found";
}

TEST(ParseProfileCsv, ReadsWhatSpreadsheetsMakeOfATable) {
    const std::string plain = fmt::format("{}\na,1.5,3,100,200,400\n\"b;c\",1,2,0,10,0\n", header);
    const Profile expected = parse_profile_csv(plain, "x.csv");
    const auto with = [&plain](std::string_view old, std::string_view instead) {
        std::string text = plain;
        for (std::size_t at = text.find(old); at != text.npos;
             at = text.find(old, at + instead.size())) {
            text.replace(at, old.size(), instead);
        }
        return text;
    };
    for (const std::string& text : {"\xEF\xBB\xBF" + plain,
                                    with("\n", "\r"),
                                    with("\n", "\r\n"),
                                    with(",", ";"),
                                    "sep=;\r\n" + with(",", ";"),
                                    with(",", "\t"),
                                    plain + ",,,,,\n,,,,,\n",
                                    with("a,1.5,3,100,200,400", "\"a,1.5,3,100,200,400\"")}) {
        EXPECT_EQ(parse_profile_csv(text, "x.csv"), expected) << text;
    }
    const Error decimals =
        refusal("sep=;\n" + with(",", ";").replace(with(",", ";").find("1.5"), 3, "1,5"));
    EXPECT_EQ(decimals.place(), "x.csv:3:3");
    EXPECT_EQ(decimals.hint(), "write a point in front of the decimals");
    EXPECT_EQ(refusal("\x1f\x8b\x08").text(), "a file packed by gzip, expected costs as CSV");
}

TEST(ParseProfileCsv, RefusesBrokenHeaders) {
    EXPECT_EQ(refusal("").text(), "unknown column ''");
    EXPECT_EQ(refusal("name,foward_ms").hint(), "did you mean 'forward_ms'?");
    EXPECT_EQ(refusal("name,foward_ms").place(), "x.csv:1:6");
    EXPECT_EQ(refusal("name,name").text(), "column 'name' occurs twice");
    EXPECT_EQ(refusal("name,forward_ms").text(), "no column 'backward_ms' in the header");
    EXPECT_EQ(refusal(fmt::format("{},backward_input_ms", header)).text(),
              "one part of the backward without the other");
}

struct Breach {
    std::string row;
    std::string place;
    std::string text;  ///< part of the error
};

TEST(ParseProfileCsv, RefusesBrokenCellsWithLineAndColumn) {
    const std::vector<Breach> breaches{
        {"a,x,2,3,4,5", "x.csv:2:3", "forward_ms = 'x', expected a number of milliseconds"},
        {"a,-1,2,3,4,5", "x.csv:2:3", "forward_ms = '-1'"},
        {"a,nan,2,3,4,5", "x.csv:2:3", "forward_ms = 'nan'"},
        {"a,inf,2,3,4,5", "x.csv:2:3", "forward_ms = 'inf'"},
        {"a,1e400,2,3,4,5", "x.csv:2:3", "forward_ms = '1e400'"},
        {"a,1 ms,2,3,4,5", "x.csv:2:3", "forward_ms = '1 ms'"},
        {"a,1,,3,4,5", "x.csv:2:5", "backward_ms = ''"},
        {"a,1,2,3.5,4,5", "x.csv:2:7", "output_bytes = '3.5', expected a whole number of bytes"},
        {"a,1,2,-3,4,5", "x.csv:2:7", "output_bytes = '-3'"},
        {"a,1,2,3,18446744073709551616,5", "x.csv:2:9", "saved_bytes = '18446744073709551616'"},
        {"a,1,2,3,4,9007199254740993", "x.csv:2:11", "parameter_bytes = '9007199254740993'"},
        {"a,1,2,3,4", "x.csv:2:1", "5 cells, expected the 6 of the header"},
        {"a,1,2,3,4,5,6", "x.csv:2:1", "7 cells"},
        {"\"a,1,2,3,4,5", "x.csv:2:1", "the quote is not closed"},
        {"\"a\"x,1,2,3,4,5", "x.csv:2:4", "'x' after a closing quote, expected a comma"},
        {"\xff,1,2,3,4,5", "x.csv:2:1", "expected UTF-8"},
        {",1,2,3,4,5", "x.csv: /layers/0/name", "empty"},
        {"a,1,2,3,4,5\na,1,2,3,4,5", "x.csv: /layers/1/name", "names two layers"},
    };
    for (const Breach& breach : breaches) {
        const Error error = refusal(fmt::format("{}\n{}\n", header, breach.row));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), breach.place) << error.what();
        EXPECT_NE(error.text().find(breach.text), std::string::npos) << error.what();
    }
    EXPECT_EQ(refusal(std::string(header)).text(), "0 layers, expected 1 to 100000");
}

TEST(ParseProfileCsv, RefusesPartsThatDoNotAddUpToTheBackward) {
    const Error error =
        refusal(fmt::format("{},backward_input_ms,backward_weight_ms\na,1,4,0,0,0,1,2\n", header));
    EXPECT_EQ(error.place(), "x.csv:2:5");
    EXPECT_NE(error.text().find("the sum of backward_input_ms"), std::string::npos);
}

TEST(ParseProfileCsv, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    const std::string text = fmt::format(
        "{},inputs\r\na,1.5,3,100,200,400,\r\n\"b,c\",0.25,0.5,0,10,0,a\r\nd,1e-3,2,1,1,1,a;\"\"\n",
        header);
    for (int round = 0; round < tests::soaked(1000); ++round) {
        const std::string damaged = testing::mutated(text, random);
        try {
            const Profile profile = parse_profile_csv(damaged, "x.csv");
            ASSERT_EQ(parse_profile(print_profile(profile), "x.json"), profile) << damaged;
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << damaged;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << damaged;
        }
    }
}

}  // namespace profile_csv_test
}  // namespace pipetwin
