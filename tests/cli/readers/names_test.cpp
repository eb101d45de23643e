// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/printable.h"
#include "core/text/json_text.h"
#include "tests/cli/readers/readers.h"

namespace pipetwin::cli {
namespace names_test {

/// A name as a hostile file has it.
struct Name {
    std::string what;
    std::string bytes;
};

const std::vector<Name>& hostile_names() {
    static const std::vector<Name> all{
        {"ESC", "x\x1b[2J\x1b]0;title\x07y"},
        {"a colour", "x\x1b[31my"},
        {"newlines", "x\nerror: injected\nhint: injected"},
        {"a carriage return", "x\ry"},
        {"NUL", std::string("x\0y", 3)},
        {"C1",
         "x\xc2\x9b"
         "2Jy"},
        {"a right-to-left override", "x\xe2\x80\xaey"},
        {"no UTF-8", "x\xff\xfey"},
    };
    return all;
}

/// How a format writes a name inside of quotes.
enum class Quoting { None, Escapes };

/// Where a name stands in the good file of a reader: `old` is replaced by `put`, in which @ stands
/// for the name.
struct Place {
    std::string reader;
    std::string old;
    std::string put;
    Quoting quoting = Quoting::Escapes;
};

std::vector<Place> places_of_names() {
    return {
        {"a scenario", "\"mlp\"", "\"@\""},
        {"a scenario", "sizes", "\"@\""},
        {"a scenario", "[data]", "[\"@\"]"},
        {"a scenario", "\"synthetic\"", "\"text\"\npath = \"@\""},
        {"a scenario", "[training]", "[training]\nprecision = \"@\""},
        {"a scenario", "stages = 2", "stages = 2\nschedule = \"@\""},
        {"a scenario", "[pipeline]", "[cluster]\ndevice = \"@\"\n[pipeline]"},
        {"a scenario", "[pipeline]", "[cluster]\nlink = \"@\"\n[pipeline]"},
        {"a scenario", "[pipeline]", "[cluster]\nprofile = \"@\"\n[pipeline]"},
        {"a scenario", "[pipeline]", "@\n[pipeline]", Quoting::None},
        {"a scenario",
         "sizes = [8, 16, 4]",
         "[[model.layer]]\nname = \"@\"\ntype = \"linear\"\noutputs = 4"},
        {"costs as CSV", "linear0", "@", Quoting::None},
        {"costs as CSV", "saved_bytes", "@", Quoting::None},
        {"costs as CSV", "0.02", "@", Quoting::None},
        {"costs as JSON", "linear0", "@"},
        {"costs as JSON", "\"precision\": \"", "\"precision\": \"@"},
        {"costs as JSON", "schema_version", "@"},
        {"costs as JSON", "\"parameter_bytes\"", "\"kind\": \"@\", \"parameter_bytes\""},
        {"costs as JSON", "\"parameter_bytes\"", "\"inputs\": [\"@\"], \"parameter_bytes\""},
        {"costs that a scenario names", "linear1", "@", Quoting::None},
        {"a cluster that a scenario names", "count = 2", "count = 2\nnode_link = \"@\""},
        {"a cluster that a scenario names", "count", "\"@\""},
        {"measured runs", "mine", "@"},
        {"measured runs", "step_seconds", "@"},
        {"a schedule", "0F1", "@", Quoting::None},
        {"a schedule", "0F1", "(0F1;@)OVERLAP", Quoting::None},
        {"the plan of a run folder", "\"schedule\": \"", "\"schedule\": \"@"},
        {"the plan of a run folder", "cost_class", "@"},
        {"a trace", "PP:0F0", "@"},
        {"a trace", "\"schedule\":\"", "\"schedule\":\"@"},
        {"a trace", "\"plan_hash\":\"", "\"plan_hash\":\"@"},
        {"a trace", "traceEvents", "@"},
        {"a trace of ours", "PP:0F0", "@"},
        {"a trace of ours", "\"schedule\":\"", "\"schedule\":\"@"},
        {"a schedule to import", "0F1", "@", Quoting::None},
        {"a table of costs", "linear0", "@", Quoting::None},
        {"a config.json", "gpt2", "@"},
        {"a config.json", "bfloat16", "@"},
        {"a config.json", "n_head", "@"},
        {"weights", "wte.weight", "@"},
        {"weights", "BF16", "@"},
        {"weights", "data_offsets", "@"},
        {"an index of weights", "wte.weight", "@"},
        {"an index of weights", "model.safetensors", "@"},
        {"measured layers", "attention", "@"},
        {"measured layers", "forward_ns", "@"},
        {"Megatron's flags", "--lr 1.5e-4", "--lr '@'", Quoting::None},
        {"Megatron's flags", "--lr 1.5e-4", "--new-@ 1", Quoting::None},
        {"Megatron's flags", "--lr 1.5e-4", "--lr-decay-style \"@\"", Quoting::None},
        {"torchtitan's TOML", "1F1B", "@"},
        {"torchtitan's TOML", "8B", "@"},
        {"torchtitan's TOML", "seq_len", "\"@\""},
        {"torchtitan's TOML", "[optimizer]", "[optimizer]\nname = \"@\""},
        {"DeepSpeed's JSON", "AdamW", "@"},
        {"DeepSpeed's JSON", "gradient_clipping", "@"},
        {"PipeDream's graph", "Conv2d(3, 4)", "@", Quoting::None},
        {"PipeDream's graph", "node2", "@", Quoting::None},
        {"PipeDream's graph", "1.5", "@", Quoting::None},
        {"a trace of PyTorch's profiler", "PP:0F0", "@"},
        {"a trace of PyTorch's profiler", "PP:0F0", "PP:0F0@"},
        {"a trace of PyTorch's profiler", "user_annotation", "@"},
        {"a trace of PyTorch's profiler", "3000.5", "\"@\""},
        {"a trace to calibrate by", "PP:0F0", "PP:0F0@"},
        {"the manifest of a checkpoint", "\"optimizer\": \"", "\"optimizer\": \"@"},
        {"the manifest of a checkpoint", "000.weights.safetensors", "@"},
        {"the manifest of a checkpoint", "linear0", "@"},
        {"the weights of a checkpoint", "linear0", "@"},
        {"the metrics of a run to go on", "loss", "@"},
    };
}

/// The name inside of quotes in JSON and TOML, which have the same escapes for these characters.
/// Bytes that are no UTF-8 have none.
std::string quoted(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
        text +=
            static_cast<unsigned char>(c) < 0x20 ? fmt::format("\\u{:04x}", c) : std::string(1, c);
    }
    return text;
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
    for (std::size_t at = text.find(old); at != std::string::npos;
         at = text.find(old, at + by.size())) {
        text.replace(at, old.size(), by);
    }
    return text;
}

class Names : public Readers {
  protected:
    /// Text that does nothing to a terminal, and has no message that a name put there.
    static void expect_harmless(const std::string& text) {
        EXPECT_EQ(text, printable_lines(text));
        EXPECT_TRUE(is_utf8(text));
        for (const char* const message : {"error: injected", "hint: injected"}) {
            EXPECT_FALSE(text.starts_with(message));
            EXPECT_EQ(text.find(std::string("\n") + message), std::string::npos) << text;
        }
    }

    /// A file of text, which another program may show on a terminal.
    static void expect_text(const std::string& content) {
        EXPECT_TRUE(is_utf8(content));
        for (const char c : content) {
            const bool is_blank = c == '\n' || c == '\r' || c == '\t';
            EXPECT_FALSE((static_cast<unsigned char>(c) < 0x20 && !is_blank) || c == '\x7f');
        }
    }

    static void expect_harmless(const Outcome& outcome) {
        expect_harmless(outcome.out);
        expect_harmless(outcome.err);
        EXPECT_THAT(outcome.err, ::testing::Not(::testing::HasSubstr("a bug in pipetwin")));
        EXPECT_THAT(outcome.err, ::testing::Not(::testing::HasSubstr("json.exception")));
        EXPECT_TRUE(outcome.code == 0 || (outcome.code >= 2 && outcome.code <= 6))
            << outcome.code << '\n'
            << outcome.err;
    }
};

TEST_F(Names, FromNoFileDoMoreThanBeingShown) {
    for (const Place& place : places_of_names()) {
        const std::vector<Reader> all = readers();
        const auto reader = std::ranges::find(all, place.reader, &Reader::name);
        ASSERT_NE(reader, all.end()) << place.reader;
        const std::string good = content_of(path(reader->file));
        ASSERT_THAT(good, ::testing::HasSubstr(place.old)) << place.reader;
        for (const Name& name : hostile_names()) {
            SCOPED_TRACE(fmt::format("{}, {}: {}", place.reader, place.put, name.what));
            const std::string text =
                place.quoting == Quoting::Escapes ? quoted(name.bytes) : name.bytes;
            file(reader->file, replaced(good, place.old, replaced(place.put, "@", text)));
            expect_harmless(run(*reader));
            expect_text(written(*reader));
        }
        file(reader->file, good);
    }
}

/// Names of files are those of folders that were unpacked, or that another user can write to.
TEST_F(Names, OfFilesDoNoMoreThanBeingShown) {
    for (const Name& name : hostile_names()) {
        if (name.what == "NUL") {
            continue;  // no file has one in its name
        }
        SCOPED_TRACE(name.what);
        const std::string costs = file(name.bytes + ".csv", small_profile);
        const std::string scenario = file(name.bytes + ".toml", small_scenario);
        const std::string run = path(name.bytes);
        for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
                 {"simulate", scenario, "--profile", costs},
                 {"simulate", scenario, "--profile", costs, "--json"},
                 {"simulate", scenario, "--profile", costs, "--out", run},
                 {"export", "svg", run, "--out", path("out")},
                 {"plan", scenario, "--profile", costs, "--json"},
                 {"check", scenario},
                 {"check", costs},
                 {"check", file(name.bytes + ".schedule.csv", "0F0,0B0\n"), "--json"},
                 {"simulate", run},
                 {"compare", run},
                 {"import", "csv", costs, "--out", path("out.profile.json")},
                 {"train", scenario, "--profile", costs, "--out", run, "--force"},
                 {"no-command-" + name.bytes},
                 {"simulate", scenario, "--set", "model." + name.bytes + "=1"},
                 {"simulate", scenario, "--set", "model.kind=" + name.bytes}}) {
            SCOPED_TRACE(args.front());
            std::filesystem::remove_all(path("out"));
            std::filesystem::remove_all(path("out.profile.json"));
            expect_harmless(pipetwin(args));
        }
        expect_harmless(content_of(path(name.bytes + "/report.html")));
        expect_harmless(content_of(path("out")));
    }
}

/// On a terminal, with colours, only those that the program sets itself get through.
TEST_F(Names, SetNoColourOnATerminal) {
    file("costs.csv", replaced(std::string(small_profile), "linear0", "\x1b[5m"));
    Terminal terminal;
    terminal.out = true;
    terminal.err = true;
    for (const char* const color : {"always", "never"}) {
        const Outcome outcome =
            pipetwin({"simulate", path("with_costs.toml"), "--color", color}, terminal);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_EQ((outcome.out + outcome.err).find("\x1b[5m"), std::string::npos);
    }
}

}  // namespace names_test
}  // namespace pipetwin::cli
