// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/stack_toml.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/costs/devices/number_type.h"
#include "core/text/toml_table.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr int stack_schema_version = 1;
constexpr const char* page_of_stacks = "docs/devices.md";
constexpr Range any_amount{0, std::int64_t{1} << 53};

/// In the order of FactKind.
constexpr std::array<string_view, 5> fact_words{
    "measured", "counted", "datasheet", "estimated", "fitted"};

/// Reads one file; every function reads one of its tables.
class StackReader {
  public:
    StackReader(string_view text, std::string place)
        : document_(text, std::move(place), {}, page_of_stacks), root_(document_.root()) {}

    Stack read() {
        root_.expect_keys(std::array<string_view, 20>{
            "schema_version", "name",    "description", "year",        "frameworks",
            "kernels",        "passes",  "products",    "sustained",   "attention",
            "casts",          "overlap", "context",     "collectives", "launch",
            "stored",         "memory",  "calibrated",  "measured",    "sources"});
        root_.required_int("schema_version", {stack_schema_version, stack_schema_version});
        stack_.name = required_text(root_, "name");
        stack_.description = required_text(root_, "description");
        stack_.year = root_.required_int("year", {2000, 2100});
        stack_.frameworks = required_texts(root_, "frameworks");
        read_kernels(required_table(root_, "kernels"));
        read_passes(required_table(root_, "passes"));
        for (const TomlTable& row : root_.tables("products")) {
            read_products(row);
        }
        for (const TomlTable& row : root_.tables("sustained")) {
            stack_.sustained.push_back(
                {.devices = required_texts(row, "devices"),
                 .precisions = row.has("precisions") ? required_texts(row, "precisions")
                                                     : std::vector<std::string>{},
                 .share = fact<double>(row,
                                       {"devices", "precisions", "share"},
                                       [](const TomlTable& of) { return share(of, "share"); })});
        }
        for (const TomlTable& row : root_.tables("attention")) {
            read_attention(row);
        }
        for (const TomlTable& row : root_.tables("casts")) {
            read_casts(row);
        }
        read_overlap(required_table(root_, "overlap"));
        read_collectives(required_table(root_, "collectives"));
        read_launch(required_table(root_, "launch"));
        read_stored(required_table(root_, "stored"));
        read_memory(required_table(root_, "memory"));
        read_context();
        for (const TomlTable& row : root_.tables("calibrated")) {
            read_calibrated(row);
        }
        for (const TomlTable& row : root_.tables("measured")) {
            read_measured(row);
        }
        expect_whole();
        return std::move(stack_);
    }

  private:
    static TomlTable required_table(const TomlTable& of, string_view key) {
        if (!of.has(key)) {
            of.missing(key, "a table");
        }
        return of.table(key);
    }

    static std::string required_text(const TomlTable& of, string_view key) {
        std::optional<std::string> text = of.text(key);
        if (!text) {
            of.missing(key, "a string in quotes");
        }
        if (text->empty()) {
            of.refuse(key, "a text that is not empty");
        }
        return *std::move(text);
    }

    static std::vector<std::string> required_texts(const TomlTable& of, string_view key) {
        std::optional<std::vector<std::string>> texts = of.texts(key);
        if (!texts) {
            of.missing(key, "a list of strings");
        }
        if (texts->empty()) {
            of.refuse(key, "at least one string");
        }
        return *std::move(texts);
    }

    template <class Word, std::size_t count>
    static Word required_word(const TomlTable& of,
                              string_view key,
                              const std::array<string_view, count>& words) {
        const std::optional<std::size_t> index = of.choice(key, words);
        if (!index) {
            of.missing(key, fmt::format("one of {}", fmt::join(words, ", ")));
        }
        return static_cast<Word>(*index);
    }

    static double amount(const TomlTable& of, string_view key) {
        const std::optional<double> number = of.number(key, any_amount);
        if (!number) {
            of.missing(key, "a number");
        }
        return *number;
    }

    static double amount_or_none(const TomlTable& of, string_view key) {
        return of.has(key) ? amount(of, key) : 0;
    }

    static double share(const TomlTable& of, string_view key) {
        const double number = amount(of, key);
        if (!(number > 0 && number <= 1)) {
            of.refuse(key, "a share above 0 and up to 1");
        }
        return number;
    }

    static bool flag(const TomlTable& of, string_view key) {
        const std::optional<bool> value = of.boolean(key);
        if (!value) {
            of.missing(key, "true or false");
        }
        return *value;
    }

    /// The value that `read_value` makes of a table with the `keys`, its kind and its source.
    template <class T, class Read>
    Fact<T> fact(const TomlTable& table, std::vector<string_view> keys, Read read_value) const {
        constexpr std::array<string_view, 4> of_every_fact{
            "kind", "source", "fitted_to", "leave_one_out_percent"};
        keys.insert(keys.end(), of_every_fact.begin(), of_every_fact.end());
        table.expect_keys(keys);
        Fact<T> fact{.value = read_value(table)};
        fact.kind = required_word<FactKind>(table, "kind", fact_words);
        fact.source = required_text(table, "source");
        expect_sources(table, fact.source);
        const bool is_fitted = fact.kind == FactKind::Fitted;
        if (is_fitted) {
            fact.fitted_to = required_text(table, "fitted_to");
        } else if (table.has("fitted_to") || table.has("leave_one_out_percent")) {
            table.refuse("kind", "\"fitted\" where the rows of a fit are named");
        }
        fact.leave_one_out_percent = table.number("leave_one_out_percent", {0, 100});
        return fact;
    }

    /// {value = 0.85, kind = "measured", source = "norms"} under a key.
    template <class T, class Read>
    Fact<T> value(const TomlTable& parent, string_view key, Read read_value) const {
        return fact<T>(required_table(parent, key), {"value"}, [&read_value](const TomlTable& of) {
            return read_value(of, "value");
        });
    }

    Fact<double> amount_of(const TomlTable& parent, string_view key) const {
        return value<double>(parent, key, &StackReader::amount);
    }

    std::optional<Fact<double>> amount_if_there(const TomlTable& parent, string_view key) const {
        return parent.has(key) ? std::optional(amount_of(parent, key)) : std::nullopt;
    }

    void expect_sources(const TomlTable& table, string_view names) const {
        constexpr string_view between = ", ";
        const TomlTable sources = root_.table("sources");
        for (string_view rest = names; !rest.empty();) {
            const std::size_t end = std::min(rest.find(between), rest.size());
            if (!sources.has(rest.substr(0, end))) {
                table.refuse("source",
                             "keys of the table [sources]",
                             fmt::format("add '{}' to it, with what it is and where it stands",
                                         rest.substr(0, end)));
            }
            rest.remove_prefix(std::min(end + between.size(), rest.size()));
        }
    }

    void read_kernels(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 3>{"blocks", "loss", "attention"});
        stack_.kernels = {
            .blocks = required_word<BlockKernels>(table, "blocks", block_words),
            .loss = required_word<LossKernels>(table, "loss", loss_words),
            .attention = required_word<AttentionKernels>(table, "attention", attention_words)};
    }

    void read_passes(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 9>{"copies",
                                                     "activations",
                                                     "norms_forward",
                                                     "norms_backward",
                                                     "loss_forward_bytes",
                                                     "loss_backward_bytes",
                                                     "rows",
                                                     "update_bytes",
                                                     "gradient_bytes"});
        const auto share_of = [&](string_view key) {
            return value<double>(table, key, &StackReader::share);
        };
        stack_.passes = {.copies = share_of("copies"),
                         .activations = share_of("activations"),
                         .norms_forward = share_of("norms_forward"),
                         .norms_backward = share_of("norms_backward"),
                         .loss_forward_bytes = amount_of(table, "loss_forward_bytes"),
                         .loss_backward_bytes = amount_of(table, "loss_backward_bytes"),
                         .rows = table.has("rows") ? std::optional(share_of("rows")) : std::nullopt,
                         .update_bytes = amount_if_there(table, "update_bytes"),
                         .gradient_bytes = amount_if_there(table, "gradient_bytes")};
    }

    /// Throws Error(BadInput) for a word that is none of `words`.
    static std::string read_precision(const TomlTable& row, std::span<const string_view> words) {
        const std::optional<std::size_t> index = row.choice("precision", words);
        if (!index) {
            row.missing("precision", fmt::format("one of {}", fmt::join(words, ", ")));
        }
        return std::string(words[*index]);
    }

    void read_products(const TomlTable& row) {
        Stack::Products products{
            .devices = required_texts(row, "devices"),
            .precision = read_precision(row, precision_words),
            .reached = fact<MatrixEfficiency>(
                row, {"devices", "precision", "large", "half_size"}, [](const TomlTable& of) {
                    return MatrixEfficiency{.large = share(of, "large"),
                                            .half_size = amount(of, "half_size")};
                })};
        for (const std::string& device : products.devices) {
            const std::vector<std::string> known = stack_.precisions_of(device);
            if (std::ranges::count(known, products.precision) > 0) {
                row.refuse("devices", fmt::format("{} once for each precision", device));
            }
        }
        stack_.products.push_back(std::move(products));
    }

    void read_attention(const TomlTable& row) {
        constexpr int largest_head = 4096;
        stack_.attention.push_back(
            {.devices = required_texts(row, "devices"),
             .implementation = required_text(row, "implementation"),
             .head_size = row.required_int("head_size", {1, largest_head}),
             .reached = fact<AttentionShares>(
                 row,
                 {"devices",
                  "implementation",
                  "head_size",
                  "forward",
                  "half_forward",
                  "half_work_forward",
                  "backward",
                  "half_backward",
                  "half_work_backward"},
                 [](const TomlTable& of) {
                     return AttentionShares{
                         .forward = {.share = share(of, "forward"),
                                     .half_sequence = amount(of, "half_forward"),
                                     .half_work = amount(of, "half_work_forward")},
                         .backward = {.share = share(of, "backward"),
                                      .half_sequence = amount(of, "half_backward"),
                                      .half_work = amount(of, "half_work_backward")}};
                 })});
    }

    void read_casts(const TomlTable& row) {
        constexpr std::array<string_view, 2> times{"every micro-batch", "once a step"};
        stack_.casts.push_back(
            {.devices =
                 row.has("devices") ? required_texts(row, "devices") : std::vector<std::string>{},
             .precision = read_precision(row, narrow_precisions),
             .bytes = fact<CastBytes>(
                 row,
                 {"devices",
                  "precision",
                  "input_bytes",
                  "gradient_bytes",
                  "weight_bytes",
                  "weights",
                  "memory_share",
                  "grouped_kernels",
                  "grouped_bytes",
                  "kept_weight_bytes"},
                 [&times](const TomlTable& of) {
                     return CastBytes{.of_inputs = amount(of, "input_bytes"),
                                      .of_gradients = amount(of, "gradient_bytes"),
                                      .of_weights = amount(of, "weight_bytes"),
                                      .once_a_step = required_word<bool>(of, "weights", times),
                                      .memory_share = share(of, "memory_share"),
                                      .grouped_kernels = amount_or_none(of, "grouped_kernels"),
                                      .grouped_bytes = amount_or_none(of, "grouped_bytes"),
                                      .kept_of_weights = amount(of, "kept_weight_bytes")};
                 })});
    }

    /// {hidden = true, multiprocessors = 16, ...} with the keys that it has under this one.
    Fact<HiddenMessage> message(const TomlTable& parent,
                                string_view key,
                                const std::vector<string_view>& keys) const {
        constexpr int most = 1 << 10;
        const auto has = [&keys](string_view one) {
            return std::ranges::find(keys, one) != keys.end();
        };
        return fact<HiddenMessage>(required_table(parent, key), keys, [&](const TomlTable& of) {
            return HiddenMessage{.is_hidden = !has("hidden") || flag(of, "hidden"),
                                 .multiprocessors = of.required_int("multiprocessors", {0, most}),
                                 .chunks = has("chunks") ? of.required_int("chunks", {1, most}) : 0,
                                 .in_8_bits = has("in_8_bits") && flag(of, "in_8_bits")};
        });
    }

    void read_overlap(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 6>{
            "tensor", "tensor_gather", "tensor_sum", "tensor_bulk", "gradients", "weights"});
        stack_.overlap = {
            .tensor = fact<bool>(required_table(table, "tensor"),
                                 {"hidden"},
                                 [](const TomlTable& of) { return flag(of, "hidden"); }),
            .tensor_gather =
                message(table, "tensor_gather", {"multiprocessors", "chunks", "in_8_bits"}),
            .tensor_sum = message(table, "tensor_sum", {"multiprocessors", "chunks"}),
            .tensor_bulk = message(table, "tensor_bulk", {"multiprocessors"}),
            .gradients = message(table, "gradients", {"hidden", "multiprocessors"}),
            .weights = message(table, "weights", {"hidden", "multiprocessors"})};
    }

    void read_context() {
        if (!root_.has("context")) {
            return;
        }
        stack_.context = fact<Stack::Context>(
            required_table(root_, "context"),
            {"output_bytes",
             "query_bytes",
             "key_bytes",
             "message_bytes",
             "gradient_bytes",
             "repeats_keys"},
            [](const TomlTable& of) {
                return Stack::Context{.output_bytes = amount(of, "output_bytes"),
                                      .query_bytes = amount(of, "query_bytes"),
                                      .key_bytes = amount(of, "key_bytes"),
                                      .message_bytes = amount(of, "message_bytes"),
                                      .gradient_bytes = amount(of, "gradient_bytes"),
                                      .repeats_keys = flag(of, "repeats_keys")};
            });
    }

    void read_collectives(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 9>{"latency_us",
                                                     "per_device_us",
                                                     "per_node_us",
                                                     "bucket_numbers",
                                                     "bucket_bytes",
                                                     "straggler",
                                                     "zero1",
                                                     "broadcast_us_per_device",
                                                     "sum_us_per_hop_and_bucket"});
        using Collectives = Stack::Collectives;
        constexpr std::array<string_view, 2> updates{"bucketed", "broadcast"};
        stack_.collectives = {
            .latency_us = amount_of(table, "latency_us"),
            .per_device_us = amount_of(table, "per_device_us"),
            .per_node_us = amount_of(table, "per_node_us"),
            .bucket_numbers = fact<Collectives::Buckets>(
                required_table(table, "bucket_numbers"),
                {"least", "per_replica"},
                [](const TomlTable& of) {
                    return Collectives::Buckets{.least = amount(of, "least"),
                                                .per_replica = amount(of, "per_replica")};
                }),
            .bucket_bytes = amount_if_there(table, "bucket_bytes"),
            .straggler = fact<double>(required_table(table, "straggler"),
                                      {"sigma"},
                                      [](const TomlTable& of) { return amount(of, "sigma"); }),
            .zero1 = required_word<WeightUpdates>(table, "zero1", updates),
            .broadcast_us_per_device = amount_if_there(table, "broadcast_us_per_device"),
            .sum_us_per_hop_and_bucket = amount_if_there(table, "sum_us_per_hop_and_bucket")};
    }

    void read_launch(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 5>{
            "gap_ns", "kernel_ns", "graphs", "experts_gap_ns", "experts_host"});
        const auto time = [&](string_view key) {
            return value<Duration>(table, key, [](const TomlTable& of, string_view under) {
                constexpr int longest = 1'000'000'000;
                return Duration{of.required_int(under, {0, longest})};
            });
        };
        stack_.launch = {.gap = time("gap_ns"),
                         .host = time("kernel_ns"),
                         .graphs = flag(table, "graphs"),
                         .experts_gap = table.has("experts_gap_ns")
                                            ? std::optional(time("experts_gap_ns"))
                                            : std::nullopt,
                         .expert_host = expert_host_if_there(table)};
    }

    std::optional<Fact<Stack::Launch::ExpertHost>> expert_host_if_there(
        const TomlTable& table) const {
        constexpr string_view key = "experts_host";
        if (!table.has(key)) {
            return std::nullopt;
        }
        using ExpertHost = Stack::Launch::ExpertHost;
        return fact<ExpertHost>(
            required_table(table, key), {"kernel_ns", "matrix_ns"}, [](const TomlTable& of) {
                constexpr int longest = 1'000'000'000;
                return ExpertHost{.kernel = Duration{of.required_int("kernel_ns", {1, longest})},
                                  .matrix = Duration{of.required_int("matrix_ns", {0, longest})}};
            });
    }

    std::optional<Fact<bool>> flag_if_there(const TomlTable& table, string_view key) const {
        return table.has(key) ? std::optional(value<bool>(table, key, &StackReader::flag))
                              : std::nullopt;
    }

    void read_stored(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 8>{"gradients",
                                                     "gradients_beside_sums",
                                                     "gate_activations",
                                                     "gate_products",
                                                     "beside_logits_bytes",
                                                     "inputs_in_8_bits",
                                                     "reshard_after_forward",
                                                     "offload_blocks"});
        constexpr std::array<string_view, 3> beside{"none", "parameters", "buckets"};
        constexpr std::array<string_view, 2> offloads{"none", "as-needed"};
        constexpr std::array<string_view, 2> gradients{"bf16", "fp32"};
        constexpr std::array<string_view, 4> reshard{
            "always", "last-micro-batch", "last-of-run", "never"};
        stack_.stored = {
            .fp32_gradients = required_word<bool>(table, "gradients", gradients),
            .beside_sums = static_cast<GradientsBesideSums>(
                table.choice("gradients_beside_sums", beside).value_or(0)),
            .inputs_in_8_bits = value<bool>(table, "inputs_in_8_bits", &StackReader::flag),
            .gate_activations = flag_if_there(table, "gate_activations"),
            .gate_products = flag_if_there(table, "gate_products"),
            .beside_logits = amount_if_there(table, "beside_logits_bytes"),
            .reshard = required_word<Reshard>(table, "reshard_after_forward", reshard),
            .offloads_as_needed = required_word<bool>(table, "offload_blocks", offloads)};
    }

    std::optional<Fact<Stack::Memory::ProcessGroups>> process_groups_if_there(
        const TomlTable& table) const {
        constexpr string_view key = "process_groups";
        if (!table.has(key)) {
            return std::nullopt;
        }
        return fact<Stack::Memory::ProcessGroups>(required_table(table, key),
                                                  {"always", "stages", "replicas", "tensor"},
                                                  [](const TomlTable& of) {
                                                      return Stack::Memory::ProcessGroups{
                                                          .always = amount(of, "always"),
                                                          .stages = amount(of, "stages"),
                                                          .replicas = amount(of, "replicas"),
                                                          .tensor = amount(of, "tensor")};
                                                  });
    }

    std::optional<Fact<Stack::Memory::Kept>> kept_messages_if_there(const TomlTable& table) const {
        constexpr string_view key = "kept_messages";
        if (!table.has(key)) {
            return std::nullopt;
        }
        return fact<Stack::Memory::Kept>(
            required_table(table, key),
            {"tensor_sums", "gathered_weights", "tensor_copies"},
            [](const TomlTable& of) {
                return Stack::Memory::Kept{
                    .tensor_sums = amount(of, "tensor_sums"),
                    .gathered_weights = amount(of, "gathered_weights"),
                    .tensor_copies = of.has("tensor_copies") ? amount(of, "tensor_copies") : 0};
            });
    }

    void read_memory(const TomlTable& table) {
        table.expect_keys(std::array<string_view, 7>{"products_workspace_bytes",
                                                     "communicator_bytes",
                                                     "runtime_bytes",
                                                     "process_groups",
                                                     "tensor_buffers",
                                                     "allocator_reserve",
                                                     "kept_messages"});
        const auto bytes = [&](string_view key) {
            return value<Bytes>(table, key, [](const TomlTable& of, string_view under) {
                if (!of.has(under)) {
                    of.missing(under, "a number of bytes");
                }
                return *of.bytes(under);
            });
        };
        stack_.memory = {
            .products_workspace = bytes("products_workspace_bytes"),
            .communicator = bytes("communicator_bytes"),
            .runtime =
                table.has("runtime_bytes") ? std::optional(bytes("runtime_bytes")) : std::nullopt,
            .process_groups = process_groups_if_there(table),
            .tensor_buffers = fact<double>(required_table(table, "tensor_buffers"),
                                           {"count"},
                                           [](const TomlTable& of) { return amount(of, "count"); }),
            .allocator_reserve = amount_of(table, "allocator_reserve"),
            .kept_messages = kept_messages_if_there(table)};
    }

    static double factor(const TomlTable& of, string_view key) {
        const double number = amount(of, key);
        if (!(number > 0)) {
            of.refuse(key, "a factor above 0");
        }
        return number;
    }

    void read_calibrated(const TomlTable& row) {
        Stack::Calibrated calibrated{
            .device = required_text(row, "device"),
            .precision = read_precision(row, precision_words),
            .factors = fact<MeasuredFactors>(row,
                                             {"device",
                                              "precision",
                                              "products",
                                              "attention",
                                              "passes",
                                              "inside",
                                              "between",
                                              "activations"},
                                             [](const TomlTable& of) {
                                                 return MeasuredFactors{
                                                     .products = factor(of, "products"),
                                                     .attention = factor(of, "attention"),
                                                     .passes = factor(of, "passes"),
                                                     .inside = factor(of, "inside"),
                                                     .between = factor(of, "between"),
                                                     .activations = factor(of, "activations")};
                                             })};
        if (std::ranges::any_of(stack_.calibrated, [&calibrated](const Stack::Calibrated& of) {
                return of.device == calibrated.device && of.precision == calibrated.precision;
            })) {
            row.refuse("device", "each device once for each precision");
        }
        stack_.calibrated.push_back(std::move(calibrated));
    }

    void read_measured(const TomlTable& row) {
        row.expect_keys(measured_layout_keys);
        constexpr Range count{1, 1 << 30};
        const auto degree = [&](string_view key) {
            return row.has(key) ? row.required_int(key, count) : 1;
        };
        MeasuredLayout layout{.name = required_text(row, "name"),
                              .parameters = static_cast<std::int64_t>(amount(row, "parameters")),
                              .sequence = row.required_int("sequence", {0, count.high}),
                              .device = required_text(row, "device"),
                              .precision = read_precision(row, precision_words),
                              .devices = row.required_int("devices", count),
                              .stages = row.required_int("stages", count),
                              .chunks = row.required_int("chunks", count),
                              .tensor_parallel = row.required_int("tensor_parallel", count),
                              .context_parallel = degree("context_parallel"),
                              .expert_parallel = degree("expert_parallel"),
                              .micro_batch_size = row.required_int("micro_batch_size", count),
                              .recompute = required_text(row, "recompute"),
                              .shard = required_text(row, "shard"),
                              .schedule = required_text(row, "schedule")};
        if (row.has("left_out")) {
            layout.left_out = amount(row, "left_out");
        }
        stack_.measured.push_back(std::move(layout));
    }

    /// Throws Error(BadInput) where a device has products and no sustained share or attention, or a
    /// narrow precision no casts.
    void expect_whole() const {
        for (const std::string& device : stack_.devices()) {
            const auto has = [&device](const Stack::Sustained& row) {
                return row.precisions.empty() &&
                       std::ranges::find(row.devices, device) != row.devices.end();
            };
            if (std::ranges::count_if(stack_.sustained, has) != 1) {
                root_.missing("sustained",
                              fmt::format("one entry with the device '{}' for all precisions that "
                                          "no other entry lists",
                                          device));
            }
            if (stack_.attention_of(device, 1) == nullptr) {
                root_.missing("attention", fmt::format("an entry with the device '{}'", device));
            }
            for (const std::string& precision : stack_.precisions_of(device)) {
                if (has_narrow_products(precision) &&
                    stack_.casts_of(device, precision) == nullptr) {
                    root_.missing("casts",
                                  fmt::format("an entry with precision = \"{}\"", precision));
                }
                if (!stack_.products_of(device, kept_precision(precision))) {
                    root_.missing("products",
                                  fmt::format("an entry of '{}' with precision = \"{}\"",
                                              device,
                                              kept_precision(precision)));
                }
            }
        }
    }

    TomlDocument document_;
    TomlTable root_;
    Stack stack_{};
};

}  // namespace

Stack parse_stack(std::string_view text, std::string place) {
    return StackReader(text, std::move(place)).read();
}

std::vector<std::string> source_texts(std::string_view text,
                                      std::string place,
                                      std::string_view keys) {
    constexpr string_view between = ", ";
    const TomlDocument document(text, std::move(place), {}, "docs/devices.md");
    const TomlTable sources = document.root().table("sources");
    std::vector<std::string> texts;
    for (string_view rest = keys; !rest.empty();) {
        const std::size_t end = std::min(rest.find(between), rest.size());
        texts.push_back(sources.text(rest.substr(0, end)).value_or(""));
        rest.remove_prefix(std::min(end + between.size(), rest.size()));
    }
    return texts;
}

namespace {

/// A string of TOML: one of JSON is one, too.
std::string toml_text(const std::string& text) {
    return nlohmann::json(text).dump();
}

/// A number of TOML, exact, which may not begin or end with its point.
std::string toml_number(double number) {
    return nlohmann::json(number).dump();
}

std::string calibrated_table(const Stack::Calibrated& of) {
    const MeasuredFactors& by = of.factors.value;
    std::string text = fmt::format(
        "\n[[calibrated]]  # times as long as above, activations times as large\n"
        "device = {}\nprecision = {}\n",
        toml_text(of.device),
        toml_text(of.precision));
    for (const auto& [key, factor] : {std::pair("products", by.products),
                                      std::pair("attention", by.attention),
                                      std::pair("passes", by.passes),
                                      std::pair("inside", by.inside),
                                      std::pair("between", by.between),
                                      std::pair("activations", by.activations)}) {
        text += fmt::format("{} = {}\n", key, toml_number(factor));
    }
    text += fmt::format("kind = \"fitted\"\nsource = {}\nfitted_to = {}\n",
                        toml_text(of.factors.source),
                        toml_text(of.factors.fitted_to));
    if (of.factors.leave_one_out_percent) {
        text += fmt::format("leave_one_out_percent = {}\n",
                            toml_number(*of.factors.leave_one_out_percent));
    }
    return text;
}

std::string measured_table(const MeasuredLayout& of) {
    std::string degrees;
    for (const auto& [key, degree] : divided_degrees(of)) {
        degrees += fmt::format("{} = {}\n", key, degree);
    }
    std::string text = fmt::format(
        "\n[[measured]]\nname = {}\nparameters = {}\nsequence = {}\ndevice = {}\nprecision = {}\n"
        "devices = {}\nstages = {}\nchunks = {}\ntensor_parallel = {}\n{}micro_batch_size = {}\n"
        "recompute = {}\nshard = {}\nschedule = {}\n",
        toml_text(of.name),
        of.parameters,
        of.sequence,
        toml_text(of.device),
        toml_text(of.precision),
        of.devices,
        of.stages,
        of.chunks,
        of.tensor_parallel,
        degrees,
        of.micro_batch_size,
        toml_text(of.recompute),
        toml_text(of.shard),
        toml_text(of.schedule));
    if (of.left_out) {
        text += fmt::format("left_out = {}\n", toml_number(*of.left_out));
    }
    return text;
}

/// Puts another line in place of the first one of a file that begins with `begin`.
void replace_line(std::string& text,
                  const std::string& begin,
                  const std::string& line,
                  const std::string& place) {
    const std::size_t at = ("\n" + text).find("\n" + begin);
    if (at == std::string::npos) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("no line begins with '{}'", begin),
                    "write it as the files of profiles/stacks have it");
    }
    text.replace(at, std::min(text.find('\n', at), text.size()) - at, line);
}

}  // namespace

std::string print_calibrated(std::string base, const std::string& place, const Stack& stack) {
    std::string text = std::move(base);
    replace_line(text, "name = ", fmt::format("name = {}", toml_text(stack.name)), place);
    replace_line(text,
                 "description = ",
                 fmt::format("description = {}", toml_text(stack.description)),
                 place);
    replace_line(text,
                 "[sources]",
                 fmt::format("[sources]\n{} = \"steps that were measured\"", source_of_runs),
                 place);
    for (const Stack::Calibrated& of : stack.calibrated) {
        text += calibrated_table(of);
    }
    for (const MeasuredLayout& of : stack.measured) {
        text += measured_table(of);
    }
    return text;
}

}  // namespace pipetwin
