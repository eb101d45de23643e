// SPDX-License-Identifier: Apache-2.0
#include "exec/training/published_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cpu/products/bfloat16.h"

namespace pipetwin::exec {
namespace {

/// The number with so many bits as IEEE 754's binary16.
float from_half(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = bits >> 10U & 0x1FU;
    const std::uint32_t fraction = bits & 0x3FFU;
    if (exponent == 0) {  // zero, and numbers below 2^-14
        const float size = std::ldexp(static_cast<float>(fraction), -24);
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
    }
    constexpr std::uint32_t bias = 127 - 15;
    const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + bias;
    return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

/// Reads numbers of a dtype as numbers of type T.
template <class Stored, class T, class Convert>
void convert(std::span<const std::byte> bytes, std::span<T> numbers, const Convert& to_number) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        Stored stored{};
        std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
        numbers[i] = static_cast<T>(to_number(stored));
    }
}

template <class T>
void read_numbers(std::string_view dtype, std::span<const std::byte> bytes, std::span<T> numbers) {
    if (dtype == "F32") {
        convert<float>(bytes, numbers, [](float x) { return x; });
    } else if (dtype == "F64") {
        convert<double>(bytes, numbers, [](double x) { return x; });
    } else if (dtype == "BF16") {
        convert<BFloat16>(bytes, numbers, [](BFloat16 x) { return computed(x); });
    } else {
        PIPETWIN_EXPECT(dtype == "F16", "a matched tensor has a dtype of weights");
        convert<std::uint16_t>(bytes, numbers, from_half);
    }
}

/// The numbers of one parameter, row by row, as they are read from a folder.
template <class T>
class ParameterNumbers {
  public:
    ParameterNumbers(const HfFolder& folder, const HfParameter& parameter)
        : folder_(folder),
          parameter_(parameter),
          numbers_(as_index(parameter.rows * parameter.columns)) {}

    std::vector<T> read(const std::vector<HfSource>& sources) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            read_slice(parameter_.slices[i], sources[i]);
            pad(parameter_.slices[i], sources[i].rows);
        }
        return std::move(numbers_);
    }

  private:
    static constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

    /// Reads a few rows of the file at a time.
    void read_slice(const HfSlice& slice, const HfSource& source) {
        const SafetensorsEntry& entry = source.tensor->entry;
        const std::int64_t columns = slice.shape.back();
        const std::int64_t all_rows = slice.shape.size() == 1 ? 1 : source.rows;
        const std::int64_t row_bytes = columns * bytes_of_dtype(entry.dtype);
        const std::int64_t at_a_time = std::clamp<std::int64_t>(block_bytes / row_bytes, 1, 64);
        std::vector<std::byte> bytes;
        std::vector<T> block;
        for (std::int64_t first = 0; first < all_rows; first += at_a_time) {
            const std::int64_t rows = std::min(at_a_time, all_rows - first);
            bytes.resize(as_index(rows * row_bytes));
            block.resize(as_index(rows * columns));
            folder_.read(*source.tensor, first * row_bytes, bytes);
            read_numbers<T>(entry.dtype, bytes, block);
            place(slice, first, rows, block);
        }
    }

    /// Puts rows of the file from `first` on into rows of the parameter, or columns.
    void place(const HfSlice& slice,
               std::int64_t first,
               std::int64_t rows,
               const std::vector<T>& block) {
        const std::int64_t columns = slice.shape.back();
        if (!slice.transposed) {
            PIPETWIN_EXPECT(columns == parameter_.columns, "such a slice is all of its parameter");
            std::ranges::copy(block, numbers_.begin() + first * columns);
            return;
        }
        for (std::int64_t input = 0; input < columns; ++input) {
            T* const to = &numbers_[as_index(input * parameter_.columns + slice.first_column)];
            for (std::int64_t row = 0; row < rows; ++row) {
                to[first + row] = block[as_index(row * columns + input)];
            }
        }
    }

    /// Gives words that the file has not got the mean of those that it has: as good as none of them
    /// is ever expected, where zeros would be a logit of 0 beside others far below it.
    void pad(const HfSlice& slice, std::int64_t known) {
        if (slice.rows != HfSlice::Rows::Vocabulary || known == slice.shape.front()) {
            return;
        }
        const std::int64_t words = slice.shape.front();
        const std::int64_t width = slice.shape.back();
        const std::int64_t next_word = slice.transposed ? 1 : width;
        const std::int64_t next_number = slice.transposed ? parameter_.columns : 1;
        for (std::int64_t i = 0; i < width; ++i) {
            T* const number = &numbers_[as_index(i * next_number + slice.first_column)];
            double sum = 0;
            for (std::int64_t word = 0; word < known; ++word) {
                sum += static_cast<double>(number[word * next_word]);
            }
            for (std::int64_t word = known; word < words; ++word) {
                number[word * next_word] = static_cast<T>(sum / static_cast<double>(known));
            }
        }
    }

    const HfFolder& folder_;
    const HfParameter& parameter_;
    std::vector<T> numbers_;
};

template <class T>
void write_parameter(const std::vector<T>& exact,
                     Parameter& parameter,
                     const TrainedParameters& parameters) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(exact));
    if (parameter.value.dtype() == dtype_of<T>) {
        parameters.write_numbers(bytes, parameter, parameter.value);
    } else {
        PIPETWIN_EXPECT(parameter.value.dtype() == DType::BF16, "a value is exact, or half of it");
        std::vector<BFloat16> rounded(exact.size());
        std::ranges::transform(exact, rounded.begin(), [](T number) {
            return stored<BFloat16>(static_cast<float>(number));
        });
        parameters.write_numbers(std::as_bytes(std::span(rounded)), parameter, parameter.value);
    }
    for (Tensor* const copy : {&parameter.master, &parameter.average}) {
        if (!copy->empty()) {
            parameters.write_numbers(bytes, parameter, *copy);
        }
    }
}

}  // namespace

PublishedWeights::PublishedWeights(const std::filesystem::path& folder,
                                   const ScenarioParts::ModelPart& model)
    : folder_(folder), match_(match_hf_folder(folder_, model)) {}

void PublishedWeights::load(const TrainedParameters& parameters) const {
    std::map<std::string_view, Parameter*> by_name;
    for (const std::vector<Parameter*>& piece : parameters.pieces) {
        for (Parameter* const parameter : piece) {
            by_name[parameter->name] = parameter;
        }
    }
    PIPETWIN_EXPECT(by_name.size() == match_.names.parameters.size(),
                    "every parameter of the model has a name in the files");
    for (std::size_t i = 0; i < match_.names.parameters.size(); ++i) {
        const HfParameter& named = match_.names.parameters[i];
        Parameter& parameter = *by_name.at(named.name);
        const PaddedMatrix matrix = parameter.matrix();
        PIPETWIN_EXPECT(matrix.rows == named.rows && matrix.columns == named.columns,
                        "a parameter has the shape that its tensors make");
        if (parameter.value.dtype() == DType::F64) {
            write_parameter(ParameterNumbers<double>(folder_, named).read(match_.sources[i]),
                            parameter,
                            parameters);
        } else {
            write_parameter(ParameterNumbers<float>(folder_, named).read(match_.sources[i]),
                            parameter,
                            parameters);
        }
    }
}

}  // namespace pipetwin::exec
