// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include <gmock/gmock.h>

#include "tests/cli/readers/readers.h"

namespace pipetwin::cli {
namespace special_files_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// What lies in the place of a file.
struct InPlace {
    std::string name;
    std::function<void(const fs::path&)> make;
};

std::vector<InPlace> all_that_is_no_file() {
    const auto link_to = [](const char* target) {
        return [target](const fs::path& file) { fs::create_symlink(target, file); };
    };
    return {
        {"a FIFO that nobody writes to",
         [](const fs::path& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); }},
        {"a folder", [](const fs::path& file) { fs::create_directory(file); }},
        {"/dev/null", link_to("/dev/null")},
        {"/dev/zero", link_to("/dev/zero")},
        {"/dev/tty", link_to("/dev/tty")},
        {"a link to nothing", link_to("nothing")},
        {"a link to itself",
         [](const fs::path& file) { fs::create_symlink(file.filename(), file); }},
    };
}

class SpecialFiles : public Readers {
  protected:
    /// The command of a reader with something else in the place of its file, which is put back
    /// afterwards. A test that waits for ever is ended by the alarm, which names no test: the
    /// longest of the commands here takes a second.
    Outcome with_in_place(const Reader& reader, const InPlace& other) const {
        const fs::path in_place = folder() / reader.file;
        const fs::path kept = path("kept");
        fs::rename(in_place, kept);
        other.make(in_place);
        alarm(60);
        const auto begin = std::chrono::steady_clock::now();
        const Outcome outcome = run(reader);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
        alarm(0);
        fs::remove_all(in_place);
        fs::rename(kept, in_place);
        return outcome;
    }

    static void expect_refused(const Outcome& outcome, const Reader& reader) {
        EXPECT_TRUE(reader.codes.contains(outcome.code)) << outcome.code << '\n' << outcome.err;
        if (outcome.code != 0) {
            EXPECT_THAT(outcome.err, HasSubstr("error: "));
            EXPECT_THAT(outcome.err, HasSubstr("hint: "));
        }
    }
};

TEST_F(SpecialFiles, EveryReaderTakesItsGoodFile) {
    for (const Reader& reader : readers()) {
        if (reader.name == "an export of nsys") {
            continue;  // here it only stands for what it is replaced by
        }
        SCOPED_TRACE(reader.name);
        const Outcome outcome = run(reader);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
}

TEST_F(SpecialFiles, EveryReaderRefusesAtOnceWhatIsNoRegularFile) {
    for (const InPlace& other : all_that_is_no_file()) {
        for (const Reader& reader : readers()) {
            SCOPED_TRACE(reader.name + ": " + other.name);
            expect_refused(with_in_place(reader, other), reader);
        }
    }
}

TEST_F(SpecialFiles, EveryReaderRefusesAnEmptyFile) {
    for (const Reader& reader : readers()) {
        SCOPED_TRACE(reader.name);
        if (reader.name == "torchtitan's TOML") {
            continue;  // which may say nothing: torchtitan has a default for all of it
        }
        const Outcome outcome =
            with_in_place(reader, {"an empty file", [this](const fs::path& at) {
                                       file(fs::relative(at, folder()).string(), "");
                                   }});
        EXPECT_TRUE(reader.codes.contains(outcome.code)) << outcome.code << '\n' << outcome.err;
    }
}

TEST_F(SpecialFiles, EveryReaderFollowsALinkToARegularFile) {
    for (const Reader& reader : readers()) {
        SCOPED_TRACE(reader.name);
        const int code = run(reader).code;
        const Outcome linked = with_in_place(reader, {"a link", [this](const fs::path& at) {
                                                          fs::create_symlink(folder() / "kept", at);
                                                      }});
        // Names in a checkpoint lead nowhere out of its folder.
        const bool leads_out = reader.name == "the weights of a checkpoint";
        EXPECT_EQ(linked.code, leads_out ? 3 : code) << linked.err;
    }
}

TEST_F(SpecialFiles, EveryReaderSaysThatAFileMayNotBeRead) {
    constexpr uid_t nobody = 65534;
    fs::permissions(folder(), fs::perms::all);
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
        fs::permissions(entry.path(), fs::perms::all);
    }
    const bool is_root = geteuid() == 0;
    if (is_root && seteuid(nobody) != 0) {
        GTEST_SKIP() << "root may read everything, and cannot become another user here";
    }
    for (const Reader& reader : readers()) {
        SCOPED_TRACE(reader.name);
        const Outcome outcome =
            with_in_place(reader, {"unreadable", [this](const fs::path& at) {
                                       file(fs::relative(at, folder()).string(), "x");
                                       fs::permissions(at, fs::perms::none);
                                   }});
        expect_refused(outcome, reader);
    }
    if (is_root) {
        ASSERT_EQ(seteuid(0), 0);
    }
}

}  // namespace special_files_test
}  // namespace pipetwin::cli
