// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/interop/import/importers.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/costs/profile_json.h"
#include "core/interop/traces/message_times.h"
#include "core/interop/traces/otlp_events.h"
#include "core/interop/traces/peer_messages.h"
#include "core/interop/traces/torch_trace.h"

namespace pipetwin::cli {

namespace {

constexpr const char* why_size =
    "costs are for a number of samples per micro-batch, which a trace does not give";

Imported imported_stages(Profile profile) {
    Imported imported{.content = print_profile(profile), .result = {}};
    imported.result.layers = static_cast<int>(profile.layers.size());
    imported.result.stages = imported.result.layers.value();
    imported.notes.emplace_back(
        "a trace has times but no sizes: in the profile messages and memory are 0 bytes until "
        "they are filled in");
    return imported;
}

void append(std::vector<Duration>& to, const std::vector<Duration>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

/// The traces of all ranks, and what the user should know about them.
class Ranks {
  public:
    /// `micro_batch_size`: samples, as the user says.
    explicit Ranks(int micro_batch_size) : micro_batch_size_(micro_batch_size) {}

    /// Throws Error(BadInput) with `file` where the trace is of other micro-batches, or of a rank
    /// that another one is of.
    void add(const std::filesystem::path& file, TorchTrace trace) {
        if (trace.micro_batch_size.value_or(micro_batch_size_) != micro_batch_size_) {
            throw Error(ErrorKind::BadInput,
                        file.string(),
                        fmt::format("its micro-batches have {}, --micro-batch-size says {}",
                                    counted(*trace.micro_batch_size, "sample"),
                                    micro_batch_size_),
                        fmt::format("--micro-batch-size {}", *trace.micro_batch_size));
        }
        if (trace.rank) {
            const auto [seen, is_new] = files_.emplace(*trace.rank, file.string());
            if (!is_new) {
                throw Error(
                    ErrorKind::BadInput,
                    file.string(),
                    fmt::format(
                        "it is the trace of rank {}, and so is {}", *trace.rank, seen->second),
                    "give one trace per rank");
            }
        }
        expect_new(file, trace);
        names_.push_back(file.string());
        if (cut_.empty() && !trace.cut.empty()) {
            cut_ = fmt::format("{}: {}", file.string(), trace.cut);
        }
        world_size_ = std::max(world_size_, trace.world_size.value_or(0));
        pairs_ += trace.overlapped_pairs;
        on_gpu_ = on_gpu_ || trace.on_gpu;
        only_launches_ = only_launches_ || trace.only_launches;
        without_waits_ = without_waits_ && trace.without_waits;
        lacks_kernels_ = lacks_kernels_ || trace.lacks_kernels;
        traces_.push_back(std::move(trace));
    }

    /// To be called once all are there: numbers stages that the traces do not name.
    void finish() {
        const bool all_ranks = std::ranges::all_of(
            traces_, [](const TorchTrace& trace) { return trace.rank.has_value(); });
        if (all_ranks) {
            std::ranges::stable_sort(traces_, {}, [](const TorchTrace& t) { return *t.rank; });
        }
        for (TorchTrace& trace : traces_) {
            has_own_stages_ = has_own_stages_ || trace.stages.contains(own_stage);
        }
        const bool has_places = std::ranges::all_of(
            traces_, [](const TorchTrace& trace) { return trace.pipeline_rank.has_value(); });
        knows_stages_ = has_places;
        for (std::size_t place = 0; place < traces_.size(); ++place) {
            TorchTrace& trace = traces_[place];
            set_own_stage(trace, has_places ? *trace.pipeline_rank : static_cast<int>(place));
            for (const auto& [stage, durations] : trace.stages) {
                StageDurations& all = stages_[stage];
                append(all.forward, durations.forward);
                append(all.backward, durations.backward);
                append(all.backward_input, durations.backward_input);
                append(all.backward_weight, durations.backward_weight);
            }
        }
        transfers_ = measured_transfers(traces_, clock_notes_);
        if (transfers_.empty()) {
            pair_messages();
        }
    }

    const StageTimes& stages() const { return stages_; }

    /// Throws Error(BadInput) with `file` where the traces are not of all ranks of a pipeline that
    /// they know.
    void expect_all(const std::filesystem::path& file) const {
        std::set<int> places;
        for (const TorchTrace& trace : traces_) {
            places.insert(trace.pipeline_rank.value_or(-1));
        }
        const int ranks = traces_.front().pipeline_size.value_or(0);
        if (knows_stages_ && std::ssize(places) < ranks) {
            throw Error(
                ErrorKind::BadInput,
                file.string(),
                fmt::format(
                    "spans of {} of {} stages: {}", places.size(), ranks, fmt::join(places, ", ")),
                std::string(all_ranks_hint));
        }
    }

    int count() const { return static_cast<int>(traces_.size()); }

    /// Where the first of the files that are cut ends; empty: none is.
    const std::string& cut() const { return cut_; }

    /// The link between ranks that the messages tell; none where no receive was waited for.
    std::optional<LinkCost> link() const {
        return transfers_.empty()
                   ? std::nullopt
                   : std::optional(LinkCost{.between = "ranks", .latency = median(transfers_)});
    }

    std::vector<std::string> notes() const {
        std::vector<std::string> notes;
        if (count() < world_size_ && !knows_stages_) {
            notes.push_back(fmt::format(
                "{} of {} ranks given: stages beyond those found are not in the profile",
                count(),
                world_size_));
        }
        if (knows_stages_) {
            notes.emplace_back(
                "the ranks of a stage are those that Megatron numbers one after the other "
                "(pipeline stages outermost)");
        } else if (has_own_stages_ && count() > 1) {
            notes.emplace_back(
                "the ranges do not name a stage: the ranks are taken as stage 0, 1, ... in the "
                "order of their numbers (of the files, where they have none)");
        }
        if (only_launches_) {
            notes.emplace_back(
                "the traces hold GPU kernels, but ranges only of the CPU: the times are those of "
                "launching the work, not of the work (a later torch records ranges of the GPU, "
                "too)");
        } else if (!on_gpu_ && traces_.front().is_of_spans) {
            notes.push_back(fmt::format(
                "the spans are those of the CPU, which does not wait for the GPU: an action can "
                "take longer than its span{}",
                iteration_text()));
        } else if (!on_gpu_) {
            notes.emplace_back(
                without_waits_
                    ? "the times are those of the CPU, from the first operator of an action to its "
                      "last, without waits for messages"
                    : "the ranges are those of the CPU: where a range waits for its message, the "
                      "wait is in its time");
        }
        if (lacks_kernels_) {
            notes.emplace_back(
                "the machine had a GPU, but none of its kernels was recorded: if the run used it, "
                "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
        }
        if (pairs_ > 0) {
            notes.push_back(
                fmt::format("left out: {} of a pair (OVERLAP_F_B), because the pair does not show "
                            "how long each of the two took",
                            counted(pairs_, "range")));
        }
        add_notes_of_ranks(notes);
        notes.insert(notes.end(), clock_notes_.begin(), clock_notes_.end());
        if (!transfers_.empty() && !receives_.empty()) {
            notes.push_back(fmt::format(
                "messages take {}, the median of {}, from the later begin of a send and its "
                "receive "
                "on; the receives last {} with their waits; the profile's link has the time as its "
                "latency, as their sizes are not known",
                format_duration(median(transfers_)),
                transfers_.size(),
                format_duration(median(receives_))));
        } else if (!transfers_.empty()) {
            notes.push_back(fmt::format(
                "messages take {}: the median of {} whose receives were pending, without the wait "
                "for their computation; the profile's link has it as its latency, as their sizes "
                "are not known",
                format_duration(median(transfers_)),
                transfers_.size()));
        }
        return notes;
    }

  private:
    /// Throws Error(BadInput) where another file has the same actions at the same times.
    void expect_new(const std::filesystem::path& file, const TorchTrace& trace) const {
        for (std::size_t place = 0; place < traces_.size(); ++place) {
            if (is_same_trace(traces_[place], trace)) {
                throw Error(ErrorKind::BadInput,
                            file.string(),
                            fmt::format("it has the same actions at the same times as {}, "
                                        "expected those of another rank",
                                        names_[place]),
                            "give one trace per rank");
            }
        }
    }

    /// Takes messages that no range names with a micro-batch.
    void pair_messages() {
        PairedMessages paired = paired_messages(traces_);
        transfers_ = std::move(paired.transfers);
        receives_ = std::move(paired.receives);
        std::ranges::move(paired.notes, std::back_inserter(clock_notes_));
    }

    /// "; an iteration takes 1.2 s, the median of 20"; empty where there are none.
    std::string iteration_text() const {
        std::vector<Duration> lengths;
        for (const TorchTrace& trace : traces_) {
            append(lengths, trace.step_lengths);
        }
        return lengths.empty() ? ""
                               : fmt::format(
                                     "; an iteration takes {}, the median of {}, with all "
                                     "that it waits for",
                                     format_duration(median(lengths)),
                                     lengths.size());
    }

    void add_notes_of_ranks(std::vector<std::string>& notes) const {
        for (std::size_t place = 0; place < traces_.size(); ++place) {
            for (const std::string& note : traces_[place].notes) {
                notes.push_back(traces_.size() == 1 ? note
                                                    : fmt::format("rank {}: {}",
                                                                  traces_[place].rank.value_or(
                                                                      static_cast<int>(place)),
                                                                  note));
            }
        }
    }

    int micro_batch_size_;
    std::map<int, std::string> files_;
    std::vector<std::string> names_;  ///< [trace]: its file
    std::string cut_;
    std::vector<TorchTrace> traces_;
    StageTimes stages_;
    std::vector<Duration> transfers_;
    std::vector<Duration> receives_;  ///< of the same messages, with waits; empty: not known
    std::vector<std::string> clock_notes_;
    int world_size_ = 0;
    int pairs_ = 0;
    bool on_gpu_ = false;
    bool only_launches_ = false;
    bool without_waits_ = true;
    bool lacks_kernels_ = false;
    bool has_own_stages_ = false;
    bool knows_stages_ = false;  ///< the traces say their places in the pipeline
};

/// Throws as `stage_profile`; where a file is cut, the rest of it may have had what is missing.
Profile profile_of(const Ranks& ranks, int size, const ImportOptions& options) {
    try {
        return stage_profile(ranks.stages(), size, options.file.string());
    } catch (const Error& error) {
        if (ranks.cut().empty()) {
            throw;
        }
        throw error.with_text(fmt::format("{}; {}", error.text(), ranks.cut()))
            .with_hint("export the trace again");
    }
}

}  // namespace

Imported import_torch_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    const RangeNames names = range_names(options.ranges);
    Ranks ranks(size);
    const auto add = [&](const std::filesystem::path& file, const std::filesystem::path& source) {
        for (TorchTrace& trace : read_torch_traces(source, names)) {
            ranks.add(file, std::move(trace));
        }
    };
    add(options.file, options.file == "-" ? "/dev/stdin" : options.file);
    for (const std::filesystem::path& file : options.more_files) {
        add(file, file);
    }
    ranks.finish();
    ranks.expect_all(options.file);
    Profile profile = profile_of(ranks, size, options);
    if (const std::optional<LinkCost> link = ranks.link()) {
        profile.links.push_back(*link);
    }
    Imported imported = imported_stages(std::move(profile));
    imported.result.ranks = ranks.count();
    for (std::string& note : ranks.notes()) {
        imported.notes.push_back(std::move(note));
    }
    return imported;
}

Imported import_chrome_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    const Trace trace = read_chrome_trace(options.file);
    Imported imported =
        imported_stages(stage_profile(stage_times(trace), size, options.file.string()));
    imported.result.ranks = trace.schedule.rank_count();
    return imported;
}

}  // namespace pipetwin::cli
