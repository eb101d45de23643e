// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/nsys_events.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/base/units.h"
#include "core/text/input_file.h"

#ifdef PIPETWIN_SQLITE
#include <sqlite3.h>
#endif

namespace pipetwin {

bool is_nsys_file(const std::filesystem::path& file) {
    constexpr std::string_view magic("SQLite format 3\0", 16);
    try {
        return InputFile(file).read_up_to(magic.size()) == magic;
    } catch (const Error&) {
        return false;  // whoever reads it says why it cannot be read
    }
}

#ifdef PIPETWIN_SQLITE

namespace {

constexpr const char* how_to_export =
    "nsys export --type sqlite --output rank0.sqlite rank0.nsys-rep, of a report by 'nsys profile "
    "--trace cuda,nvtx'";

/// The process of a thread in nsys' numbering, which has the thread in the lowest 24 bits.
constexpr std::int64_t process_of(std::int64_t global_thread) {
    return global_thread - global_thread % (std::int64_t{1} << 24);
}

/// A number of so many bytes, the highest first.
std::uint64_t big_endian(std::string_view bytes) {
    std::uint64_t number = 0;
    for (const char byte : bytes) {
        number = number << 8U | static_cast<unsigned char>(byte);
    }
    return number;
}

/// Refuses bytes behind the last page of a database, which SQLite overlooks. Its header is that of
/// section 1.3 of "Database File Format": at 16 the size of a page, where 1 means 65536, at 28
/// their number, which counts where 24 and 92 are the same.
void expect_whole_pages(InputFile& file, const std::string& place) {
    constexpr std::size_t header_bytes = 100;
    const std::string header = file.read_up_to(header_bytes);
    if (header.size() < header_bytes) {
        return;  // SQLite says what it lacks
    }
    const auto number = [&header](std::size_t at, std::size_t bytes) {
        return big_endian(std::string_view(header).substr(at, bytes));
    };
    const std::uint64_t page_bytes = number(16, 2) == 1 ? 65536 : number(16, 2);
    if (page_bytes == 0) {
        return;
    }
    const bool is_counted = number(28, 4) > 0 && number(24, 4) == number(92, 4);
    const std::uint64_t pages = is_counted ? number(28, 4) : file.size() / page_bytes;
    if (file.size() > pages * page_bytes) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: byte {}", place, pages * page_bytes),
                    fmt::format("{} behind the last page of the database",
                                counted(file.size() - pages * page_bytes, "byte")),
                    "copy or export it again, without what was put behind it");
    }
}

/// An open database.
class Database {
  public:
    explicit Database(const std::filesystem::path& file) : place_(file.string()) {
        InputFile regular(file);  // SQLite would wait for a FIFO
        expect_whole_pages(regular, place_);
        sqlite3* opened = nullptr;
        const int status = sqlite3_open_v2(place_.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
        database_.reset(opened);
        if (status != SQLITE_OK) {
            refuse(sqlite3_errstr(status));
        }
        // A file's own views, triggers and expressions may ask for anything.
        sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
        sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
        sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, static_cast<int>(TraceLimits{}.token_bytes));
    }

    /// The columns of a table; empty where there is no such table. A view is none: it may have more
    /// rows than any file.
    std::set<std::string> columns(const std::string& table) const {
        std::set<std::string> names;
        for_each(fmt::format("SELECT name FROM pragma_table_info('{0}') WHERE EXISTS (SELECT 1 "
                             "FROM sqlite_master WHERE type = 'table' AND name = '{0}' AND sql "
                             "LIKE 'CREATE TABLE%')",
                             table),
                 [&](sqlite3_stmt* row) { names.insert(text(row, 0)); });
        return names;
    }

    /// Calls `take` with each row of a query.
    template <class Take>
    void for_each(const std::string& query, Take take) const {
        sqlite3_stmt* prepared = nullptr;
        const int status =
            sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &prepared, nullptr);
        const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> rows(prepared,
                                                                         &sqlite3_finalize);
        if (status != SQLITE_OK) {
            refuse(sqlite3_errmsg(database_.get()));
        }
        int step = sqlite3_step(rows.get());
        for (; step == SQLITE_ROW; step = sqlite3_step(rows.get())) {
            take(rows.get());
        }
        if (step != SQLITE_DONE) {
            refuse(sqlite3_errmsg(database_.get()));
        }
    }

    /// Throws Error(BadInput) once all texts together are longer than the limit of bytes: columns
    /// may be computed.
    std::string text(sqlite3_stmt* row, int column) const {
        const auto* const bytes = sqlite3_column_text(row, column);
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, column));
        text_bytes_ += size;
        if (text_bytes_ > TraceLimits{}.bytes) {
            refuse(
                fmt::format("more than {} of text",
                            format_bytes(Bytes{static_cast<std::int64_t>(TraceLimits{}.bytes)})));
        }
        std::string copied;
        for (std::size_t i = 0; bytes != nullptr && i < size; ++i) {
            copied += static_cast<char>(bytes[i]);
        }
        return printable(copied);
    }

    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(ErrorKind::BadInput, place_, what, how_to_export);
    }

  private:
    struct Close {
        void operator()(sqlite3* database) const { sqlite3_close(database); }
    };

    std::string place_;
    std::unique_ptr<sqlite3, Close> database_;
    mutable std::uint64_t text_bytes_ = 0;
};

/// The latest moment of an export, in nanoseconds since its process or 1970: the year 2096. So sums
/// fit.
constexpr std::int64_t latest_moment = 4'000'000'000'000'000'000;

bool is_moment(std::int64_t time) {
    return time >= 0 && time <= latest_moment;
}

/// One process of the report.
struct ProcessEvents {
    TraceEvents events;
    std::int64_t device = std::numeric_limits<std::int64_t>::max();  ///< the lowest that it used
    std::map<std::string, int> lanes;
    std::map<std::int64_t, int> kernel_names;  ///< [string]

    int lane(bool on_device, const std::string& name, std::int64_t of) {
        const auto [known, is_new] = lanes.emplace(fmt::format("{} {} {}", on_device, of, name),
                                                   static_cast<int>(events.lanes.size()));
        if (is_new) {
            events.lanes.push_back({.name = name, .on_device = on_device});
        }
        return known->second;
    }
};

/// Reads the tables of an export.
class NsysReader {
  public:
    NsysReader(const std::filesystem::path& file,
               const RangeNames& names,
               const TraceLimits& limits)
        : database_(file), place_(file.string()), names_(names), kept_(limits) {}

    std::vector<TraceEvents> read() {
        tells_processes_ = database_.columns("CUPTI_ACTIVITY_KIND_KERNEL").contains("globalPid") &&
                           database_.columns("NVTX_EVENTS").contains("globalTid");
        read_strings();
        read_ranges();
        read_kernels();
        read_launches();
        std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, TraceEvents*>> order;
        for (auto& [process, found] : processes_) {
            if (found.events.has_kernels || !found.events.ranges.empty()) {
                order.emplace_back(std::pair(found.device, process), &found.events);
            }
        }
        if (order.empty()) {
            database_.refuse("no kernels, and no NVTX ranges that are named as actions");
        }
        std::ranges::sort(order, {}, [](const auto& entry) { return entry.first; });
        std::vector<TraceEvents> all;
        for (auto& [key, events] : order) {
            all.push_back(std::move(*events));
        }
        return all;
    }

  private:
    static std::string pick(const std::set<std::string>& columns,
                            const std::string& column,
                            const std::string& otherwise) {
        return columns.contains(column) ? column : otherwise;
    }

    /// The process of a thread; 0 for all where the export does not say it everywhere.
    std::int64_t process_key(std::int64_t thread) const {
        return tells_processes_ ? process_of(thread) : 0;
    }

    const std::string& string_of(std::int64_t id) const {
        static const std::string none;
        const auto found = strings_.find(id);
        return found == strings_.end() ? none : found->second;
    }

    void read_strings() {
        if (database_.columns("StringIds").empty()) {
            database_.refuse("no table StringIds, expected an export of nsys");
        }
        database_.for_each("SELECT id, value FROM StringIds", [&](sqlite3_stmt* row) {
            std::string value = database_.text(row, 1);
            keep(node_bytes + value.size());
            strings_.emplace(sqlite3_column_int64(row, 0), std::move(value));
        });
    }

    /// NVTX ranges; PyTorch's emit_nvtx puts ", seq = 5" and the like behind a name.
    void read_ranges() {
        const std::set<std::string> columns = database_.columns("NVTX_EVENTS");
        if (columns.empty()) {
            return;
        }
        const std::string query = fmt::format(
            "SELECT start, \"end\", {}, {}, {} FROM NVTX_EVENTS WHERE \"end\" IS NOT NULL",
            pick(columns, "text", "NULL"),
            pick(columns, "textId", "NULL"),
            pick(columns, "globalTid", "0"));
        database_.for_each(query, [&](sqlite3_stmt* row) {
            std::string name = database_.text(row, 2);
            name = name.empty() ? string_of(sqlite3_column_int64(row, 3)) : name;
            for (const std::string_view more : {", seq = ", ", op_id = ", ", sizes = "}) {
                name.resize(std::min(name.find(more), name.size()));
            }
            const std::int64_t thread = sqlite3_column_int64(row, 4);
            const std::optional<NamedAction> action = names_.find(name);
            if (!action) {
                return;
            }
            ProcessEvents& process = processes_[process_key(thread)];
            if (action->is_pair) {
                ++process.events.overlapped_pairs;
                return;
            }
            const std::int64_t begin = sqlite3_column_int64(row, 0);
            const std::int64_t end = sqlite3_column_int64(row, 1);
            expect_order(begin, end, fmt::format("NVTX_EVENTS: range '{}'", name.substr(0, 80)));
            if (begin == end) {
                return;
            }
            keep(sizeof(TraceRange));
            process.events.ranges.push_back(
                {.action = *action,
                 .lane = process.lane(false, fmt::format("{}", thread % (1 << 24)), 0),
                 .begin = Duration{begin},
                 .length = Duration{end - begin}});
        });
    }

    void read_kernels() {
        const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
        const std::set<std::string> columns = database_.columns(table);
        if (columns.empty()) {
            return;
        }
        const std::string query = fmt::format(
            "SELECT start, \"end\", {}, {}, {}, {}, {} FROM {} WHERE \"end\" IS NOT NULL",
            pick(columns, "demangledName", pick(columns, "shortName", "0")),
            pick(columns, "streamId", "0"),
            pick(columns, "deviceId", "0"),
            pick(columns, "correlationId", "NULL"),
            pick(columns, "globalPid", "0"),
            table);
        database_.for_each(query, [&](sqlite3_stmt* row) {
            ProcessEvents& process = processes_[process_key(sqlite3_column_int64(row, 6))];
            const std::int64_t device = sqlite3_column_int64(row, 4);
            process.device = std::min(process.device, device);
            process.events.has_kernels = true;
            const std::int64_t begin = sqlite3_column_int64(row, 0);
            const std::int64_t end = sqlite3_column_int64(row, 1);
            const int name = kernel_name(process, sqlite3_column_int64(row, 2));
            if (!is_moment(begin) || !is_moment(end) || end < begin) {
                TraceEvents& events = process.events;
                if (events.damaged_kernels++ == 0) {
                    events.damaged_kernel = events.kernel_names[static_cast<std::size_t>(name)];
                }
                return;
            }
            keep(sizeof(TraceKernel));
            process.events.kernels.push_back(
                {.lane =
                     process.lane(true, fmt::format("{}", sqlite3_column_int64(row, 3)), device),
                 .name = name,
                 .work =
                     kernel_work(process.events.kernel_names[static_cast<std::size_t>(name)], ""),
                 .begin = Duration{begin},
                 .length = Duration{end - begin},
                 .correlation = sqlite3_column_type(row, 5) == SQLITE_NULL
                                    ? std::nullopt
                                    : std::optional(sqlite3_column_int64(row, 5))});
        });
    }

    int kernel_name(ProcessEvents& process, std::int64_t id) const {
        const auto [known, is_new] =
            process.kernel_names.emplace(id, static_cast<int>(process.events.kernel_names.size()));
        if (is_new) {
            keep(node_bytes + string_of(id).size());
            process.events.kernel_names.push_back(string_of(id));
        }
        return known->second;
    }

    /// Counts the memory for something that is kept.
    void keep(std::size_t bytes) const {
        kept_.add(bytes, [this] { return place_; });
    }

    void expect_order(std::int64_t begin, std::int64_t end, const std::string& what) const {
        if (!is_moment(begin) || !is_moment(end) || end < begin) {
            database_.refuse(fmt::format(
                "{} lasts from {} to {}, expected two moments in this order", what, begin, end));
        }
    }

    void read_launches() {
        const std::string table = "CUPTI_ACTIVITY_KIND_RUNTIME";
        const std::set<std::string> columns = database_.columns(table);
        if (columns.empty() || !columns.contains("correlationId")) {
            return;
        }
        const std::string query = fmt::format(
            "SELECT start, correlationId, {} FROM {}", pick(columns, "globalTid", "0"), table);
        database_.for_each(query, [&](sqlite3_stmt* row) {
            const std::int64_t thread = sqlite3_column_int64(row, 2);
            const auto process = processes_.find(process_key(thread));
            if (process == processes_.end()) {
                return;
            }
            if (!is_moment(sqlite3_column_int64(row, 0))) {
                return;
            }
            keep(sizeof(TraceLaunch));
            process->second.events.launches.push_back(
                {.correlation = sqlite3_column_int64(row, 1),
                 .lane = process->second.lane(false, fmt::format("{}", thread % (1 << 24)), 0),
                 .begin = Duration{sqlite3_column_int64(row, 0)}});
        });
    }

    static constexpr std::size_t node_bytes = 128;  ///< of a map's entry, about

    Database database_;
    std::string place_;
    const RangeNames& names_;
    mutable KeptMemory kept_;
    bool tells_processes_ = false;
    std::map<std::int64_t, std::string> strings_;
    std::map<std::int64_t, ProcessEvents> processes_;
};

}  // namespace

std::vector<TraceEvents> read_nsys_events(const std::filesystem::path& file,
                                          const RangeNames& names,
                                          const TraceLimits& limits) {
    try {
        return NsysReader(file, names, limits).read();
    } catch (const Error& error) {
        throw error.place().empty() ? error.at(file.string()) : error;
    }
}

#else

std::vector<TraceEvents> read_nsys_events(const std::filesystem::path& file,
                                          const RangeNames&,
                                          const TraceLimits&) {
    throw Error(
        ErrorKind::Unavailable,
        file.string(),
        "an SQLite database, and this build has no SQLite to read it with",
        "build with libsqlite3-dev installed, or export the report for Chrome's trace viewer");
}

#endif

}  // namespace pipetwin
