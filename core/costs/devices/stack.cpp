// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/stack.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace pipetwin {

namespace {

template <class Row>
bool lists_device(const Row& row, std::string_view device) {
    return std::ranges::find(row.devices, device) != row.devices.end();
}

/// Adds the texts that are not there yet.
void add_new(std::vector<std::string>& all, const std::vector<std::string>& more) {
    for (const std::string& text : more) {
        if (std::ranges::find(all, text) == all.end()) {
            all.push_back(text);
        }
    }
}

}  // namespace

std::string_view to_string(FactKind kind) {
    switch (kind) {
        case FactKind::Measured:
            return "measured";
        case FactKind::Counted:
            return "counted";
        case FactKind::Datasheet:
            return "datasheet";
        case FactKind::Estimated:
            return "estimated";
        case FactKind::Fitted:
            return "fitted";
    }
    PIPETWIN_EXPECT(false, "kind of a fact out of range");
}

const Stack::Sustained* Stack::sustained_of(std::string_view device,
                                            std::string_view precision) const {
    const auto row_of = [&](auto lists) {
        const auto row = std::ranges::find_if(sustained, [&](const Sustained& of) {
            return lists_device(of, device) && lists(of.precisions);
        });
        return row == sustained.end() ? nullptr : &*row;
    };
    const Sustained* const own = row_of([&](const std::vector<std::string>& precisions) {
        return std::ranges::find(precisions, precision) != precisions.end();
    });
    return own != nullptr ? own : row_of([](const auto& precisions) { return precisions.empty(); });
}

std::optional<MatrixEfficiency> Stack::products_of(std::string_view device,
                                                   std::string_view precision) const {
    const auto row_of = [&](std::string_view wanted) {
        return std::ranges::find_if(products, [&](const Products& of) {
            return of.precision == wanted && lists_device(of, device);
        });
    };
    auto row = row_of(precision);
    if (row == products.end() && precision == "fp16") {
        row = row_of("bf16");  // units multiply both at one rate
    }
    if (row == products.end()) {
        return std::nullopt;
    }
    MatrixEfficiency reached = row->reached.value;
    if (const Sustained* const of = sustained_of(device, row->precision)) {
        reached.large *= of->share.value;
    }
    return reached;
}

const Stack::Attention* Stack::attention_of(std::string_view device, double head_size) const {
    const Attention* nearest = nullptr;
    const auto distance = [head_size](const Attention& row) {
        return std::abs(std::log(head_size / row.head_size));
    };
    for (const Attention& row : attention) {
        if (lists_device(row, device) &&
            (nearest == nullptr || distance(row) < distance(*nearest))) {
            nearest = &row;
        }
    }
    return nearest;
}

MessageLanes Stack::lanes(const DeviceProfile& device) const {
    constexpr int of_h100 = 132;
    const auto lane = [&](const HiddenMessage& message) {
        const int all = device.multiprocessors ? device.multiprocessors->value : of_h100;
        return MessageLane{
            .share = std::min(0.5, static_cast<double>(message.multiprocessors) / all),
            .chunks = message.chunks};
    };
    return {.hides_tensor = overlap.tensor.value,
            .has_narrow_gathers = overlap.tensor_gather.value.in_8_bits,
            .tensor_gather = lane(overlap.tensor_gather.value),
            .tensor_sum = lane(overlap.tensor_sum.value),
            .tensor_bulk = lane(overlap.tensor_bulk.value),
            .hides_weights = overlap.weights.value.is_hidden,
            .gradients = lane(overlap.gradients.value),
            .weights = lane(overlap.weights.value)};
}

MeasuredFactors Stack::factors_of(std::string_view device, std::string_view precision) const {
    const auto row = std::ranges::find_if(calibrated, [&](const Calibrated& of) {
        return of.device == device && of.precision == precision;
    });
    return row == calibrated.end() ? MeasuredFactors{} : row->factors.value;
}

const CastBytes* Stack::casts_of(std::string_view device, std::string_view precision) const {
    const auto row_of = [&](auto has) {
        const auto row = std::ranges::find_if(
            casts, [&](const Casts& of) { return of.precision == precision && has(of); });
        return row == casts.end() ? nullptr : &row->bytes.value;
    };
    const CastBytes* const own =
        row_of([device](const Casts& of) { return lists_device(of, device); });
    return own != nullptr ? own : row_of([](const Casts& of) { return of.devices.empty(); });
}

int Stack::Collectives::buckets_of(std::int64_t numbers, Bytes bytes, int replicas) const {
    const Buckets& size = bucket_numbers.value;
    const double all = static_cast<double>(bucket_bytes ? bytes.count : numbers);
    const double each =
        bucket_bytes ? bucket_bytes->value : std::max(size.least, size.per_replica * replicas);
    constexpr double most = 1e9;
    return each > 0 ? static_cast<int>(std::clamp(std::ceil(all / each), 1.0, most)) : 1;
}

std::vector<std::string> Stack::devices() const {
    std::vector<std::string> all;
    for (const Products& row : products) {
        add_new(all, row.devices);
    }
    return all;
}

std::vector<std::string> Stack::precisions_of(std::string_view device) const {
    std::vector<std::string> all;
    for (const Products& row : products) {
        if (lists_device(row, device)) {
            add_new(all, {row.precision});
        }
    }
    return all;
}

}  // namespace pipetwin
