// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_text.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/undertaking.h"
#include "core/text/file_blocks.h"
#include "core/text/input_iterator.h"
#include "core/text/json_dialect.h"
#include "core/text/json_number.h"
#include "core/text/open_file.h"
#include "core/text/own_file.h"

namespace pipetwin {

std::string read_file(const std::filesystem::path& file,
                      std::size_t max_bytes,
                      const std::function<void(std::string_view)>& look) {
    std::string content;
    read_blocks(file, max_bytes, [&](std::string_view part) {
        if (look) {
            look(part);
        }
        content += part;
    });
    return content;
}

void write_file(const std::filesystem::path& file, std::string_view content) {
    // A link stays one: what it points to is replaced.
    std::error_code ignored;
    std::filesystem::path target = std::filesystem::weakly_canonical(file, ignored);
    if (ignored) {
        target = file;
    }
    const auto type = std::filesystem::status(target, ignored).type();
    if (type != std::filesystem::file_type::regular &&
        type != std::filesystem::file_type::not_found) {
        // A device or pipe is written to; renaming over it would put a file in its place.
        OpenFile device(target, O_WRONLY | O_CLOEXEC);
        if (!device.is_open()) {
            refuse_io(file, "cannot write");
        }
        write_all(device, content, file);
        return;
    }
    replace_file(target, content);
}

namespace {

using nlohmann::json;

/// Walks over the text and tells where the parser has got to.
class CountingIterator : public InputIterator<CountingIterator> {
  public:
    CountingIterator(const char* at, std::size_t* count) : at_(at), count_(count) {}

    const char& current() const { return *at_; }
    void next() {
        ++at_;
        ++*count_;
    }
    bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

  private:
    const char* at_;
    std::size_t* count_;
};

/// Which numbers a text may hold.
enum class JsonNumbers {
    Exact,   ///< those of JSON that are exact
    Python,  ///< all that Python's json module writes
};

/// Builds the value event by event, so that every rule is checked before anything is stored.
class Builder final : public nlohmann::json_sax<json> {
  public:
    /// `text` is what the parser reads, and `written` what the file has there: Python's words in
    /// place of some zeros.
    Builder(std::string_view text,
            std::string_view written,
            std::string_view place,
            const JsonLimits& limits,
            JsonNumbers numbers)
        : text_(text), written_(written), place_(place), limits_(limits), numbers_(numbers) {}

    /// Refuses a byte of value 0, which nlohmann's parser takes for the end of the text.
    void expect_no_zeros() const {
        if (written_.find('\0') != std::string_view::npos) {
            FileDamage damage = damage_of_file(written_, "JSON");
            refuse(damage.index, std::move(damage.what), std::move(damage.hint));
        }
    }

    json take() { return std::move(root_); }
    std::size_t* count() { return &count_; }

    bool null() override { return value(nullptr); }
    bool boolean(bool flag) override { return value(flag); }
    bool string(std::string& text) override { return value(std::move(text)); }
    bool binary(json::binary_t& bytes) override { return value(std::move(bytes)); }

    bool number_integer(std::int64_t number) override {
        if (number < -largest_exact) {
            return inexact(static_cast<double>(number));
        }
        return value(number);
    }
    bool number_unsigned(std::uint64_t number) override {
        if (number > static_cast<std::uint64_t>(largest_exact)) {
            return inexact(static_cast<double>(number));
        }
        return value(number);
    }
    bool number_float(double read, const std::string& token) override {
        const auto [number, digits] = json_number(read, token);
        // An integer above 2^64 arrives here, already rounded.
        if (digits.find_first_of(".eE") == std::string::npos) {
            return inexact(number);
        }
        const bool may_be_word = numbers_ == JsonNumbers::Python && number == 0;
        return value(may_be_word ? python_number_at(written_, token_begin()).value_or(number)
                                 : number);
    }

    bool start_object(std::size_t) override { return open(json::object()); }
    bool start_array(std::size_t) override { return open(json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(std::string& name) override {
        if (open_.back()->contains(name)) {
            refuse(token_begin(),
                   fmt::format("key '{}' occurs twice", shortened(name)),
                   "keep one of the two");
        }
        key_ = std::move(name);
        return true;
    }

    bool parse_error(std::size_t position,
                     const std::string&,
                     const nlohmann::detail::exception& error) override {
        constexpr int number_overflow = 406;  // of nlohmann's out_of_range
        if (error.id == number_overflow) {
            refuse_number("is too large, expected a number of at most 1.8e308");
        }
        // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value -
        // <reason>"
        std::string_view reason = error.what();
        for (const std::string_view lead : {"] ", " - "}) {
            const std::size_t found = reason.find(lead);
            if (found != reason.npos) {
                reason.remove_prefix(found + lead.size());
            }
        }
        const std::size_t index = position == 0 ? 0 : position - 1;
        if (FileDamage damage = json_damage(written_, index); !damage.what.empty()) {
            refuse(damage.index, std::move(damage.what), std::move(damage.hint));
        }
        refuse(index,
               shortened(reason),
               index < text_.size()
                   ? "expected JSON: write the file anew with the program that made "
                     "it, or correct it there"
                   : "the end is missing: copy or download the file again");
    }

  private:
    static constexpr std::int64_t largest_exact = std::int64_t{1} << 53;

    static std::string shortened(std::string_view text) {
        constexpr std::size_t longest = 200;
        return text.size() <= longest ? std::string(text)
                                      : fmt::format("{}...", text.substr(0, longest));
    }

    [[noreturn]] void refuse(std::size_t index, std::string what, std::string hint = {}) const {
        const std::string_view before = text_.substr(0, index);
        const std::size_t line_end = before.rfind('\n');
        const std::size_t line_begin = line_end == before.npos ? 0 : line_end + 1;
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}:{}",
                                place_,
                                1 + std::ranges::count(before, '\n'),
                                before.size() - line_begin + 1),
                    std::move(what),
                    std::move(hint));
    }

    [[noreturn]] void refuse_number(std::string_view why) const {
        const std::size_t begin = token_begin();
        const std::size_t end = text_.find_first_not_of("+-.0123456789eE", begin);
        refuse(begin,
               fmt::format("{} {}", shortened(text_.substr(begin, end - begin)), why),
               "is there a digit too many?");
    }

    /// Stores a whole number that a floating-point number holds only nearly, or refuses it.
    bool inexact(double number) {
        if (numbers_ == JsonNumbers::Exact) {
            refuse_number("is beyond 2^53, where whole numbers stop being exact");
        }
        return value(number);
    }

    /// Index at which the string or number begins that was read last.
    std::size_t token_begin() const {
        std::size_t i = std::min(count_, text_.size());
        if (i > 0 && text_[i - 1] == '"') {
            const auto is_escaped = [this](std::size_t quote) {
                std::size_t slashes = 0;
                while (slashes < quote && text_[quote - slashes - 1] == '\\') {
                    ++slashes;
                }
                return slashes % 2 == 1;
            };
            for (--i; i > 0 && (text_[i - 1] != '"' || is_escaped(i - 1));) {
                --i;
            }
            return i == 0 ? 0 : i - 1;
        }
        // A number ends where the parser meets a character that belongs to it no more.
        const auto is_digit = [this](std::size_t at) {
            return std::string_view("+-.0123456789eE").find(text_[at]) != std::string_view::npos;
        };
        if (i > 0 && !is_digit(i - 1)) {
            --i;
        }
        while (i > 0 && is_digit(i - 1)) {
            --i;
        }
        return i;
    }

    json* store(json element) {
        if (open_.empty()) {
            root_ = std::move(element);
            return &root_;
        }
        json& parent = *open_.back();
        if (parent.is_array()) {
            parent.push_back(std::move(element));
            return &parent.back();
        }
        return &(parent[key_] = std::move(element));
    }

    template <class Value>
    bool value(Value&& element) {
        store(json(std::forward<Value>(element)));
        return true;
    }

    bool open(json container) {
        if (std::cmp_greater_equal(open_.size(), limits_.max_depth)) {
            refuse(count_ == 0 ? 0 : count_ - 1,
                   fmt::format("nested deeper than {}", limits_.max_depth),
                   "no file of this kind is nested that deep: write it anew with the program that "
                   "made it");
        }
        open_.push_back(store(std::move(container)));
        return true;
    }

    bool close() {
        open_.pop_back();
        return true;
    }

    std::string_view text_;
    std::string_view written_;
    std::string_view place_;
    const JsonLimits& limits_;
    JsonNumbers numbers_;
    std::size_t count_ = 0;
    json root_;
    std::vector<json*>
        open_;  ///< the containers around the current place; the last one grows, so all stay put
    std::string key_;
};

json parse_with(std::string_view text,
                std::string_view place,
                const JsonLimits& limits,
                JsonNumbers numbers) {
    if (text.size() > limits.max_bytes) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    fmt::format("{} bytes, above the limit of {}", text.size(), limits.max_bytes),
                    "is it the right file? those of this kind are smaller");
    }
    const Undertaking undertaking(
        fmt::format("the values in {} bytes of JSON of {}", text.size(), place),
        "a smaller file does, or a higher limit of memory ('ulimit -v' shows it)");
    text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    const std::string replaced =
        numbers == JsonNumbers::Python ? with_zeros_for_python_numbers(text) : std::string();
    const std::string_view read = numbers == JsonNumbers::Python ? replaced : text;
    Builder builder(read, text, place, limits, numbers);
    builder.expect_no_zeros();
    json::sax_parse(CountingIterator(read.data(), builder.count()),
                    CountingIterator(read.data() + read.size(), builder.count()),
                    &builder);
    return builder.take();
}

}  // namespace

json parse_json(std::string_view text, std::string_view place, const JsonLimits& limits) {
    return parse_with(text, place, limits, JsonNumbers::Exact);
}

json parse_python_json(std::string_view text, std::string_view place, const JsonLimits& limits) {
    return parse_with(text, place, limits, JsonNumbers::Python);
}

namespace {

/// Length and smallest code point of the sequence that begins with this byte; length 0 for none.
struct Sequence {
    std::size_t length = 0;
    std::uint32_t smallest = 0;
    std::uint32_t bits = 0;
};

Sequence sequence_of(unsigned char lead) {
    if (lead < 0x80) {
        return {1, 0, lead};
    }
    if ((lead & 0xe0) == 0xc0) {
        return {2, 0x80, lead & 0x1fU};
    }
    if ((lead & 0xf0) == 0xe0) {
        return {3, 0x800, lead & 0x0fU};
    }
    if ((lead & 0xf8) == 0xf0) {
        return {4, 0x10000, lead & 0x07U};
    }
    return {};
}

}  // namespace

bool is_utf8(std::string_view bytes) {
    while (!bytes.empty()) {
        const Sequence sequence = sequence_of(static_cast<unsigned char>(bytes.front()));
        if (sequence.length == 0 || sequence.length > bytes.size()) {
            return false;
        }
        std::uint32_t code = sequence.bits;
        for (const char c : bytes.substr(1, sequence.length - 1)) {
            const auto byte = static_cast<unsigned char>(c);
            if ((byte & 0xc0) != 0x80) {
                return false;
            }
            code = (code << 6) | (byte & 0x3fU);
        }
        const bool is_surrogate = code >= 0xd800 && code < 0xe000;
        if (code < sequence.smallest || code > 0x10ffff || is_surrogate) {
            return false;
        }
        bytes.remove_prefix(sequence.length);
    }
    return true;
}

}  // namespace pipetwin
