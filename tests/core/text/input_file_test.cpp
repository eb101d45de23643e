// SPDX-License-Identifier: Apache-2.0
#include "core/text/input_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>

#include "core/text/own_file.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace input_file_test {

namespace fs = std::filesystem;
using testing::error_of;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
  protected:
    fs::path path(std::string_view name) const { return folder_ / name; }
    fs::path file(std::string_view name, std::string_view content) const {
        return folder_.write(name, content);
    }
    static std::string content(const fs::path& at) { return InputFile(at).read_up_to(1000); }

  private:
    tests::ScratchFolder folder_;
};

using InputFiles = Files;
using OwnFiles = Files;

TEST_F(InputFiles, KnowTheirSizeAndGiveTheirBytes) {
    InputFile opened(file("a", "0123456789"));
    EXPECT_EQ(opened.size(), 10U);
    EXPECT_EQ(opened.read_up_to(4), "0123");
    opened.go_to(8);
    EXPECT_EQ(opened.read_up_to(100), "89");
    EXPECT_EQ(opened.read_up_to(100), "");
}

TEST_F(InputFiles, AreNothingButRegularFiles) {
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    const auto text_of = [](const fs::path& at) {
        const Error error = error_of([&] { InputFile{at}; });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(error.hint(), "");
        return error.text();
    };
    EXPECT_EQ(text_of(path("fifo")), "a FIFO, expected a regular file");
    EXPECT_EQ(text_of(path("")), "a folder, expected a regular file");
    EXPECT_EQ(text_of("/dev/null"), "a device, expected a regular file");
    EXPECT_EQ(text_of("/dev/zero"), "a device, expected a regular file");
}

/// A socket cannot even be opened (ENXIO).
TEST_F(InputFiles, AreNoSockets) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path("socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(error_of([&] { InputFile{path("socket")}; }).kind(), ErrorKind::Io);
    ::close(socket);
}

TEST_F(InputFiles, LeaveNoDescriptorOpenWhereTheyAreRefused) {
    const auto open_ones = [] {
        return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    const auto before = open_ones();
    for (const fs::path& at : {path(""), fs::path("/dev/zero"), path("none")}) {
        error_of([&] { InputFile{at}; });
    }
    error_of([&] { InputFile(path(""), "../../etc/passwd"); });
    EXPECT_EQ(open_ones(), before);
}

TEST_F(InputFiles, BeneathAFolderStayThere) {
    fs::create_directories(path("inside/deeper"));
    file("outside", "no");
    file("inside/a", "yes");
    file("inside/deeper/b", "yes");
    fs::create_symlink("deeper/b", path("inside/link"));
    fs::create_symlink("../outside", path("inside/out"));
    fs::create_symlink(path("inside/a"), path("inside/absolute"));
    for (const char* const name : {"a", "deeper/b", "link", "deeper/../a"}) {
        EXPECT_EQ(InputFile(path("inside"), name).read_up_to(10), "yes") << name;
    }
    const std::string absolute = path("inside/a");
    for (const std::string& name :
         {std::string("../outside"), std::string("out"), std::string("absolute"), absolute}) {
        const Error error = error_of([&] { InputFile(path("inside"), name); });
        EXPECT_EQ(error.kind(), ErrorKind::Io) << name;
        EXPECT_THAT(error.text(), HasSubstr("the name leads out of the folder")) << name;
    }
}

TEST_F(OwnFiles, AreReplacedAndNotWrittenThrough) {
    file("outside", "mine");
    fs::create_symlink("outside", path("link"));
    fs::create_symlink("nothing", path("dangling"));
    fs::create_hard_link(path("outside"), path("second"));
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    for (const char* const name : {"link", "dangling", "second", "fifo", "new"}) {
        replace_file(path(name), "written");
        EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path(name)))) << name;
        EXPECT_EQ(content(path(name)), "written");
    }
    EXPECT_EQ(content(path("outside")), "mine");
    EXPECT_FALSE(fs::exists(path("nothing")));
}

TEST_F(OwnFiles, AreOpenedOnlyWhereTheyAreFilesOfTheirFolderAlone) {
    file("outside", "mine");
    fs::create_symlink("outside", path("link"));
    fs::create_symlink("nothing", path("dangling"));
    fs::create_hard_link(path("outside"), path("second"));
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    for (const char* const name : {"link", "dangling", "second", "fifo", ""}) {
        const Error error = error_of([&] { ::close(open_own_file(path(name))); });
        EXPECT_EQ(error.kind(), ErrorKind::Io) << name;
        EXPECT_THAT(error.hint(), HasSubstr("--out DIR")) << name;
    }
    EXPECT_EQ(content(path("outside")), "mine");
    EXPECT_FALSE(fs::exists(path("nothing")));
    ::close(open_own_file(path("new")));
    EXPECT_EQ(content(path("new")), "");
}

TEST_F(OwnFiles, AreInNoFolderThatIsALink) {
    fs::create_directory(path("folder"));
    fs::create_directory_symlink("folder", path("link"));
    EXPECT_NO_THROW(expect_own_folder(path("folder")));
    EXPECT_NO_THROW(expect_own_folder(path("none")));
    EXPECT_EQ(error_of([&] { expect_own_folder(path("link")); }).kind(), ErrorKind::Io);
}

}  // namespace input_file_test
}  // namespace pipetwin
