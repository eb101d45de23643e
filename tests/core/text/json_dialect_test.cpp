// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_dialect.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/text/json_text.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace json_dialect_test {

using testing::error_of;
using ::testing::HasSubstr;

TEST(JsonDialect, NumbersOfPythonAreReadWhereTheyAreWanted) {
    EXPECT_EQ(with_zeros_for_python_numbers(R"({"a": [0.0, Infinity], "b": -Infinity})"),
              R"({"a": [0.0, 0.000000], "b": 0.0000000})");
    EXPECT_EQ(with_zeros_for_python_numbers("[NaN,NaN]"), "[0.0,0.0]");
    const nlohmann::json read = parse_python_json(
        R"({"a": [0.0, Infinity,NaN], "b":-Infinity, "c": 0.0, "d": 1e30, "e": -0.0, "f": "NaN"})",
        "x");
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(read["a"][0], 0.0);
    EXPECT_EQ(read["a"][1], infinity);
    EXPECT_TRUE(std::isnan(read["a"][2].get<double>()));
    EXPECT_EQ(read["b"], -infinity);
    EXPECT_EQ(read["c"], 0.0);
    EXPECT_EQ(read["d"], 1e30);
    EXPECT_EQ(read["e"], 0.0);
    EXPECT_EQ(read["f"], "NaN");
}

TEST(JsonDialect, NumbersOfPythonMayComeCharacterByCharacter) {
    const auto passed = [](const std::string& text) {
        PythonNumberFilter filter;
        std::string seen;
        for (const char c : text) {
            seen += filter.pass(c);
        }
        return seen;
    };
    const std::string text = R"({"NaN": [NaN,Infinity, -Infinity], "\"NaN": "\\", "x":NaN})";
    const nlohmann::json seen = nlohmann::json::parse(passed(text));
    EXPECT_EQ(seen["NaN"], nlohmann::json({0.0, 0.0, 0.0}));
    EXPECT_EQ(seen["\"NaN"], "\\");
    EXPECT_EQ(seen["x"], 0.0);
    EXPECT_EQ(passed(R"({"a": [1.5, true, null, "NaN"]})"), R"({"a": [1.5, true, null, "NaN"]})");
    PythonNumberFilter filter;
    for (const char c : std::string_view("[-Infinity")) {
        filter.pass(c);
    }
    EXPECT_EQ(filter.take_word(), "-Infinity");
    EXPECT_EQ(filter.take_word(), "");
}

TEST(JsonDialect, WholeNumbersOfPythonMayBeLong) {
    // tokenizers write int(1e30) for "no limit"
    for (const char* digits : {"1000000000000000019884624838656",
                               "-1000000000000000019884624838656",
                               "9007199254740993",
                               "-9007199254740993",
                               "18446744073709551615"}) {
        EXPECT_DOUBLE_EQ(parse_python_json(digits, "x").get<double>(), std::stod(digits));
    }
    EXPECT_EQ(parse_python_json("9007199254740992", "x"), 9007199254740992);
}

TEST(JsonDialect, PlacesBehindNumbersOfPythonAreThoseOfTheFile) {
    const Error error =
        error_of([] { parse_python_json("[NaN, Infinity, -Infinity, NaN oops]", "x"); });
    EXPECT_EQ(error.place(), "x:1:32");
    EXPECT_EQ(error_of([] { parse_python_json("{\"a\": NaN, \"a\": 1}", "x"); }).place(), "x:1:12");
}

TEST(JsonDialect, WhatIsNoNumberOfPythonStaysAsItIs) {
    for (const char* text : {R"({"NaN": "Infinity", "x": "-Infinity, NaN"})",
                             R"({"a": "\"", "b": ": Infinity"})",
                             R"([Infinity8, NaNs, "\\"])",
                             "Infinity",
                             "{NaN: 1}",
                             "[-1, -]",
                             "\"unfinished: NaN"}) {
        EXPECT_EQ(with_zeros_for_python_numbers(text), text);
    }
}

TEST(JsonDialect, DamageIsNamed) {
    struct Case {
        const char* text;
        const char* place;
        const char* what;
    };
    for (const Case& one :
         {Case{"{\n  // sizes\n}", "x:2:3", "a comment, and JSON has none"},
          Case{"{\"a\": 1 /* one */}", "x:1:9", "a comment"},
          Case{"# sizes\n{}", "x:1:1", "a comment"},
          Case{"{\"a\": NaN}", "x:1:7", "NaN, which is no number of JSON"},
          Case{"[Infinity]", "x:1:2", "Infinity, which is no number of JSON"},
          Case{"{\"a\": None}", "x:1:7", "None, a word of Python"},
          Case{"{\"a\": True}", "x:1:7", "True, a word of Python"},
          Case{"{'a': 1}", "x:1:2", "a text in single quotes"},
          Case{"{\"a\": 1,}", "x:1:9", "a comma in front of '}'"},
          Case{"[1, 2, ]", "x:1:8", "a comma in front of ']'"},
          Case{"<!DOCTYPE html>", "x:1:1", "a page of HTML or XML"},
          Case{"version https://git-lfs.github.com/spec/v1", "x:1:1", "Git LFS"},
          Case{"\x1f\x8b\x08", "x:1:1", "a file packed by gzip"},
          Case{" \n", "x:2:1", "no content, expected JSON"},
          Case{"", "x:1:1", "no content, expected JSON"},
          Case{"{\"a\": [1, 2", "x:1:12", "unexpected end of input"},
          Case{"{\"a\": \"b", "x:1:9", "missing closing quote"},
          Case{"{\"a\": 1e400}", "x:1:7", "1e400 is too large, expected a number of at most"},
          Case{"[-1e400]", "x:1:2", "-1e400 is too large"}}) {
        const Error error = error_of([&] { parse_json(one.text, "x"); });
        EXPECT_EQ(error.place(), one.place) << one.text;
        EXPECT_THAT(error.text(), HasSubstr(one.what)) << one.text;
        EXPECT_FALSE(error.hint().empty()) << one.text;
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    }
    EXPECT_THAT(error_of([] { parse_json("{\"a\": nul}", "x"); }).text(), HasSubstr("invalid"));
}

}  // namespace json_dialect_test
}  // namespace pipetwin
