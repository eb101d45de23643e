#include "core/text/json_dialect.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/text/json_text.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace json_dialect_test {

using testing::error_of;
using ::testing::HasSubstr;

TEST(JsonDialect, NumbersOfPythonBecomeNull) {
    EXPECT_EQ(without_python_numbers(R"({"a": [0.0, Infinity], "b": -Infinity})"),
              R"({"a": [0.0, null    ], "b": null     })");
    EXPECT_EQ(without_python_numbers("[NaN,NaN]"), "[null,null]");
    EXPECT_EQ(parse_json(without_python_numbers(R"({"a":NaN})"), "x"),
              nlohmann::json::parse(R"({"a": null})"));
}

TEST(JsonDialect, WhatIsNoNumberOfPythonStaysAsItIs) {
    for (const char* text : {R"({"NaN": "Infinity", "x": "-Infinity, NaN"})",
                             R"({"a": "\"", "b": ": Infinity"})",
                             R"([Infinity8, NaNs, "\\"])",
                             "Infinity",
                             "{NaN: 1}",
                             "[-1, -]",
                             "\"unfinished: NaN"}) {
        EXPECT_EQ(without_python_numbers(text), text);
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
          Case{"version https://git-lfs.github.com/spec/v1", "x:1:1", "Git LFS"}}) {
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
