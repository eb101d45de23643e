// SPDX-License-Identifier: Apache-2.0
#include "core/interop/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::size_t length_bytes = 8;
constexpr std::size_t most_dimensions = 8;
constexpr string_view metadata_key = "__metadata__";

constexpr std::array<std::pair<string_view, int>, 17> dtypes{std::pair<string_view, int>{"BOOL", 1},
                                                             {"U8", 1},
                                                             {"I8", 1},
                                                             {"F8_E4M3", 1},
                                                             {"F8_E5M2", 1},
                                                             {"F8_E8M0", 1},
                                                             {"U16", 2},
                                                             {"I16", 2},
                                                             {"F16", 2},
                                                             {"BF16", 2},
                                                             {"U32", 4},
                                                             {"I32", 4},
                                                             {"F32", 4},
                                                             {"U64", 8},
                                                             {"I64", 8},
                                                             {"F64", 8},
                                                             {"C64", 8}};

constexpr const char* not_whole = "the file was cut off, or is not a safetensors file";

[[noreturn]] void refuse(string_view place, std::string text, std::string hint = {}) {
    throw Error(ErrorKind::BadInput, std::string(place), std::move(text), std::move(hint));
}

std::int64_t times(std::int64_t a, std::int64_t b, string_view place) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) {
        refuse(place, "shape and dtype make more than 2^63 - 1 bytes, expected those of the file");
    }
    return product;
}

std::uint64_t little_endian(string_view bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = length_bytes; i-- > 0;) {
        value = value << 8U | static_cast<unsigned char>(bytes[i]);
    }
    return value;
}

/// The length of the JSON behind the first 8 bytes.
std::uint64_t header_length(string_view begin, std::int64_t file_size, string_view place) {
    if (begin.size() < length_bytes) {
        refuse(fmt::format("{}: byte {}", place, begin.size()),
               fmt::format("the file ends, expected {} bytes with the length of the header",
                           length_bytes),
               not_whole);
    }
    const std::uint64_t length = little_endian(begin);
    if (length > longest_header) {
        refuse(fmt::format("{}: byte 0", place),
               fmt::format(
                   "a header of {}, expected at most {}", counted(length, "byte"), longest_header),
               "is it a file of safetensors? its first 8 bytes are the length of the header");
    }
    if (std::cmp_greater(length + length_bytes, file_size)) {
        refuse(fmt::format("{}: byte {}", place, file_size),
               fmt::format("the file ends in its header, which is to end at byte {}",
                           length + length_bytes),
               not_whole);
    }
    return length;
}

SafetensorsEntry read_entry(const JsonObject& parent, const std::string& name) {
    const JsonObject object = parent.object(name);
    object.expect_keys(std::array<string_view, 3>{"dtype", "shape", "data_offsets"});
    SafetensorsEntry entry{.name = name, .dtype = object.text("dtype")};
    if (bytes_of_dtype(entry.dtype) == 0) {
        std::vector<string_view> known;
        std::ranges::transform(
            dtypes, std::back_inserter(known), [](const auto& pair) { return pair.first; });
        object.refuse("dtype", fmt::format("one of {}", fmt::join(known, ", ")));
    }
    if (!object.has("shape")) {
        object.missing("shape", "a list of sizes, empty for a single number");
    }
    entry.shape = object.wholes("shape");
    if (entry.shape.size() > most_dimensions) {
        object.refuse("shape", fmt::format("at most {} dimensions", most_dimensions));
    }
    const std::vector<std::int64_t> offsets = object.wholes("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
        object.refuse("data_offsets", "[begin, end], end not below begin");
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    return entry;
}

void check_size(const SafetensorsEntry& tensor, string_view place) {
    const std::string where = fmt::format("{}: tensor '{}'", place, tensor.name);
    const std::int64_t bytes =
        times(value_count(tensor, where), bytes_of_dtype(tensor.dtype), where);
    if (tensor.end - tensor.begin != bytes) {
        refuse(where,
               fmt::format("{} from {} to {}, expected the {} of {} [{}]",
                           counted(tensor.end - tensor.begin, "byte"),
                           tensor.begin,
                           tensor.end,
                           bytes,
                           tensor.dtype,
                           fmt::join(tensor.shape, ", ")));
    }
}

/// One behind the other from the end of the header to that of the file.
void check_places(const SafetensorsHeader& header, std::int64_t file_size, string_view place) {
    std::int64_t end = 0;
    for (const SafetensorsEntry& tensor : header.tensors) {
        if (tensor.begin != end) {
            refuse(
                fmt::format("{}: tensor '{}'", place, tensor.name),
                tensor.begin > end
                    ? fmt::format("begins at {}: bytes {} to {} belong to no tensor",
                                  tensor.begin,
                                  end,
                                  tensor.begin)
                    : fmt::format("begins at {}, in the bytes of another tensor, which end at {}",
                                  tensor.begin,
                                  end),
                "tensors stand one behind the other");
        }
        end = tensor.end;
    }
    const std::int64_t have = file_size - header.data_begin;
    if (end != have) {
        refuse(fmt::format("{}: byte {}", place, header.data_begin + std::min(end, have)),
               end > have ? fmt::format("the file ends, {} before the last tensor does",
                                        counted(end - have, "byte"))
                          : fmt::format("{} behind the last tensor, expected none",
                                        counted(have - end, "byte")),
               end > have ? not_whole : "copy it again, without what was put behind it");
    }
}

}  // namespace

int bytes_of_dtype(string_view dtype) {
    const auto found =
        std::ranges::find(dtypes, dtype, [](const auto& pair) { return pair.first; });
    return found == dtypes.end() ? 0 : found->second;
}

std::int64_t value_count(const SafetensorsEntry& tensor, std::string_view place) {
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.shape) {
        count = times(count, size, place);
    }
    return count;
}

SafetensorsHeader parse_safetensors_header(string_view begin,
                                           std::int64_t file_size,
                                           string_view place) {
    const std::uint64_t length = header_length(begin, file_size, place);
    PIPETWIN_EXPECT(begin.size() >= length_bytes + length, "not the whole header was given");
    const string_view text = begin.substr(length_bytes, length);
    if (!text.starts_with('{')) {
        refuse(fmt::format("{}: byte {}", place, length_bytes),
               "the header does not begin with '{', expected a JSON object",
               "is it a file of safetensors?");
    }
    const std::string where = fmt::format("{}: header", place);
    const nlohmann::json root =
        parse_json(text, where, {.max_bytes = longest_header, .max_depth = 4});
    const JsonObject object(root, where, "");
    SafetensorsHeader header;
    header.data_begin = static_cast<std::int64_t>(length_bytes + length);
    for (const std::string& name : object.keys()) {
        if (name == metadata_key) {
            const JsonObject metadata = object.object(name);
            for (const std::string& key : metadata.keys()) {
                header.metadata[key] = metadata.text(key);
            }
        } else {
            header.tensors.push_back(read_entry(object, name));
            check_size(header.tensors.back(), where);
        }
    }
    std::ranges::stable_sort(header.tensors, {}, [](const SafetensorsEntry& tensor) {
        return std::pair(tensor.begin, tensor.end);
    });
    check_places(header, file_size, place);
    return header;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& file) {
    InputFile opened(file);
    return read_safetensors_header(opened, file.string());
}

SafetensorsHeader read_safetensors_header(InputFile& file, string_view place) {
    const auto file_size = static_cast<std::int64_t>(file.size());
    std::string begin = file.read_up_to(length_bytes);
    const std::uint64_t length = header_length(begin, file_size, place);
    begin += file.read_up_to(length);
    if (begin.size() < length_bytes + length) {
        throw Error(ErrorKind::Io,
                    std::string(place),
                    "the file became shorter while it was read",
                    "wait until the program that writes it has ended");
    }
    return parse_safetensors_header(begin, file_size, place);
}

void place_tensors(SafetensorsHeader& header) {
    std::int64_t at = 0;
    for (SafetensorsEntry& tensor : header.tensors) {
        PIPETWIN_EXPECT(bytes_of_dtype(tensor.dtype) > 0,
                        "unknown dtype of a tensor to be written");
        tensor.begin = at;
        tensor.end = at + times(value_count(tensor, tensor.name), bytes_of_dtype(tensor.dtype), "");
        at = tensor.end;
    }
}

std::string print_safetensors_header(const SafetensorsHeader& header) {
    nlohmann::ordered_json root = nlohmann::ordered_json::object();
    if (!header.metadata.empty()) {
        root[metadata_key] = header.metadata;
    }
    for (const SafetensorsEntry& tensor : header.tensors) {
        root[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {tensor.begin, tensor.end}}};
    }
    std::string text = root.dump();
    text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');
    std::string length;
    for (std::size_t i = 0; i < length_bytes; ++i) {
        length += static_cast<char>(text.size() >> (8 * i) & 0xffU);
    }
    return length + text;
}

}  // namespace pipetwin
