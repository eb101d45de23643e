// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/nsys_events.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_trace.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

#ifdef PIPETWIN_SQLITE

#include <sqlite3.h>

namespace pipetwin {
namespace nsys_events_test {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class NsysEvents : public ::testing::Test {
  protected:
    /// Writes a database with these statements and returns its path.
    std::filesystem::path database(const std::string& statements) const {
        const std::filesystem::path path = folder_.path() / "report.sqlite";
        std::filesystem::remove(path);
        sqlite3* opened = nullptr;
        EXPECT_EQ(sqlite3_open(path.c_str(), &opened), SQLITE_OK);
        char* message = nullptr;
        EXPECT_EQ(sqlite3_exec(opened, statements.c_str(), nullptr, nullptr, &message), SQLITE_OK)
            << (message != nullptr ? message : "");
        sqlite3_close(opened);
        return path;
    }

    tests::ScratchFolder folder_;
};

/// The tables as nsys 2023 to 2025 export them, with the columns that are read and some others.
constexpr const char* tables = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT,
                          globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
                                         deviceId INTEGER, contextId INTEGER, streamId INTEGER,
                                         correlationId INTEGER, globalPid INTEGER,
                                         demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
                                          globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_SendRecv'), (3, 'PP:1B0'),
                             (4, 'cudaLaunchKernel');
)";

/// Process 1 (16777216 in nsys' numbers) on device 1, process 2 on device 0.
constexpr const char* two_processes = R"(
INSERT INTO NVTX_EVENTS VALUES
    (100, 200, 59, 'PP:1F0, seq = 0', 16777217, NULL, 0),
    (300, 400, 59, NULL, 16777217, 3, 0),
    (50, NULL, 34, 'a mark', 16777217, NULL, 0),
    (100, 200, 59, 'PP:0F0', 33554433, NULL, 0),
    (300, 400, 59, 'PP:0B0', 33554433, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
    (110, 112, 1, 16777217, 7, 4), (310, 312, 1, 16777218, 8, 4), (120, 122, 1, 16777217, 9, 4),
    (110, 112, 1, 33554433, 7, 4), (310, 312, 1, 33554434, 8, 4);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
    (1000, 4000, 1, 1, 7, 7, 16777216, 1, 1), (4000, 9000, 1, 1, 7, 8, 16777216, 1, 1),
    (500, 99000, 1, 1, 20, 9, 16777216, 2, 2),
    (1000, 3000, 0, 1, 7, 7, 33554432, 1, 1), (4000, 8000, 0, 1, 7, 8, 33554432, 1, 1);
)";

TEST_F(NsysEvents, ARankIsAProcessAndItsRangesAreAsLongAsTheirKernels) {
    const auto file = database(std::string(tables) + two_processes);
    ASSERT_TRUE(is_nsys_file(file));
    const std::vector<TorchTrace> ranks = read_torch_traces(file);
    ASSERT_THAT(ranks, SizeIs(2));  // in the order of their devices
    EXPECT_TRUE(ranks[0].on_gpu);
    EXPECT_THAT(ranks[0].stages.at(0).forward, ElementsAre(2us));
    EXPECT_THAT(ranks[0].stages.at(0).backward, ElementsAre(4us));
    EXPECT_THAT(ranks[1].stages.at(1).forward, ElementsAre(3us));
    EXPECT_THAT(ranks[1].stages.at(1).backward, ElementsAre(5us));
}

TEST_F(NsysEvents, NamesByPattern) {
    const auto file = database(std::string(tables) + R"(
INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'forward mb 3', 16777217, NULL, 0),
                               (300, 400, 59, 'backward mb 3', 16777217, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 112, 1, 16777217, 7, 4),
                                               (310, 312, 1, 16777218, 8, 4);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 4000, 0, 1, 7, 7, 16777216, 1, 1),
                                              (4000, 9000, 0, 1, 7, 8, 16777216, 1, 1);)");
    const RangeNames names({{.op = Op::Forward, .text = "forward mb {micro_batch}"},
                            {.op = Op::Backward, .text = "backward mb {micro_batch}"}});
    const std::vector<TorchTrace> ranks = read_torch_traces(file, names);
    ASSERT_THAT(ranks, SizeIs(1));
    EXPECT_THAT(ranks[0].stages.at(own_stage).forward, ElementsAre(3us));
    EXPECT_EQ(to_string(ranks[0].spans.at(1).action).substr(2), "B3");
}

TEST_F(NsysEvents, WhatIsNoExportIsRefusedWithTheWayToMakeOne) {
    const Error other =
        error_of([&] { read_torch_traces(database("CREATE TABLE something (id INTEGER);")); });
    EXPECT_THAT(other.place(), HasSubstr("report.sqlite"));
    EXPECT_THAT(other.text(), HasSubstr("no table StringIds"));
    EXPECT_THAT(other.hint(), HasSubstr("nsys export --type sqlite"));
    const Error empty = error_of([&] { read_torch_traces(database(tables)); });
    EXPECT_THAT(empty.text(), HasSubstr("no kernels"));
    const auto damaged =
        folder_.write("damaged.sqlite", std::string("SQLite format 3\0 and no more", 29));
    EXPECT_EQ(error_of([&] { read_torch_traces(damaged); }).kind(), ErrorKind::BadInput);
}

// SQLite overlooks what stands behind the last page.
TEST_F(NsysEvents, BytesBehindTheLastPageAreRefused) {
    for (const int page_bytes : {512, 4096, 65536}) {
        const auto file = database("PRAGMA page_size = " + std::to_string(page_bytes) + ";" +
                                   std::string(tables) + two_processes);
        EXPECT_THAT(read_torch_traces(file), SizeIs(2));
        const std::uintmax_t size = std::filesystem::file_size(file);
        for (const std::size_t more : {std::size_t{1}, std::size_t{65536}}) {
            std::filesystem::resize_file(file, size + more);
            const Error error = error_of([&] { read_torch_traces(file); });
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            EXPECT_THAT(error.place(), HasSubstr("report.sqlite: byte " + std::to_string(size)));
            EXPECT_THAT(error.text(), HasSubstr(" behind the last page of the database"));
        }
    }
}

}  // namespace nsys_events_test
}  // namespace pipetwin

#endif
