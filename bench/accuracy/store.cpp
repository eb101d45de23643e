// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/store.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace pipetwin::accuracy {

namespace {

using nlohmann::json;

std::string print(const Scalars& scalars, Precision precision) {
    json short_runs = json::array();
    for (const RoundsVerdict& verdict : scalars.short_runs) {
        short_runs.push_back(verdict_json(verdict));
    }
    const LinkCost& link = scalars.base.bytes.links.front();
    return json{{"scalars", std::string(pipetwin::to_string(precision))},
                {"interference", scalars.base.interference},
                {"hop_ns", scalars.hop.count()},
                {"link", {link.latency.count(), link.bytes_per_second, link.half_bandwidth.count}},
                {"short_runs", short_runs},
                {"fit_error_percent", scalars.fit_error_percent},
                {"leave_one_out_percent", scalars.leave_one_out_percent}}
        .dump();
}

Scalars parse(const json& object, const Profile& sizes) {
    Scalars scalars;
    scalars.base.bytes = sizes;
    scalars.base.bytes.links = {
        {.latency = Duration{object.at("link").at(0).get<std::int64_t>()},
         .bytes_per_second = object.at("link").at(1),
         .half_bandwidth = Bytes{object.at("link").at(2).get<std::int64_t>()}}};
    scalars.base.interference = object.at("interference");
    scalars.hop = Duration{object.at("hop_ns").get<std::int64_t>()};
    for (const json& verdict : object.at("short_runs")) {
        scalars.short_runs.push_back(parse_verdict(verdict));
    }
    scalars.fit_error_percent = object.at("fit_error_percent").get<std::vector<double>>();
    scalars.leave_one_out_percent = object.at("leave_one_out_percent").get<std::vector<double>>();
    return scalars;
}

}  // namespace

AccuracyStore::AccuracyStore(const std::filesystem::path& path) : path_(path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const json object = json::parse(line, nullptr, false);
        if (object.is_discarded()) {
            continue;
        }
        if (object.contains("cell")) {
            CellResult cell = parse_cell(line);
            std::erase_if(cells_, [&](const CellResult& older) { return older.cell == cell.cell; });
            cells_.push_back(std::move(cell));
        } else if (object.contains("scalars")) {
            scalars_[object.at("scalars")] = line;
        }
    }
}

void AccuracyStore::add(const CellResult& result) const {
    add_line(print_cell(result));
}

void AccuracyStore::add(const Scalars& scalars, Precision precision) const {
    add_line(print(scalars, precision));
}

const CellResult* AccuracyStore::find(const std::string& cell) const {
    const auto found = std::ranges::find(cells_, cell, &CellResult::cell);
    return found == cells_.end() ? nullptr : &*found;
}

std::optional<Scalars> AccuracyStore::scalars(Precision precision, const Profile& sizes) const {
    const auto found = scalars_.find(std::string(pipetwin::to_string(precision)));
    return found == scalars_.end() ? std::nullopt
                                   : std::optional(parse(json::parse(found->second), sizes));
}

void AccuracyStore::add_line(const std::string& line) const {
    std::ofstream file(path_, std::ios::app);
    file << '\n' << line << '\n' << std::flush;  // begins a line, whatever a kill left behind
    if (!file) {
        throw Error(ErrorKind::Io, path_.string(), "the store could not be written");
    }
}

}  // namespace pipetwin::accuracy
