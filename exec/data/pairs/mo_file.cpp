// SPDX-License-Identifier: Apache-2.0
#include "exec/data/pairs/mo_file.h"

#include <iconv.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "exec/data/files.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t magic = 0x950412de;
constexpr std::size_t header_bytes = 28;
constexpr std::size_t row_bytes = 8;  ///< of a table: length and offset
constexpr char end_of_context = '\x04';

[[noreturn]] void refuse_mo(const fs::path& file, std::size_t byte, const std::string& text) {
    throw Error(ErrorKind::BadInput,
                place_in(file, byte),
                text,
                "compile the catalogue again: msgfmt FILE.po -o FILE.mo");
}

/// The file's numbers and strings, with every place checked against its size.
class Bytes {
  public:
    Bytes(std::string_view bytes, const fs::path& file) : bytes_(bytes), file_(file) {
        if (bytes.size() < header_bytes) {
            refuse_mo(
                file,
                bytes.size(),
                fmt::format("the file ends here, expected the {} bytes of a header", header_bytes));
        }
        std::memcpy(&first_, bytes.data(), sizeof(first_));
        if (first_ != magic && swapped(first_) != magic) {
            refuse_mo(
                file, 0, "no message catalogue of gettext: the file does not begin with its mark");
        }
    }

    std::size_t number(std::size_t at) const {
        if (at > bytes_.size() || bytes_.size() - at < sizeof(std::uint32_t)) {
            refuse_mo(file_,
                      at,
                      fmt::format("expected 4 bytes here, but the file has {}", bytes_.size()));
        }
        std::uint32_t value = 0;
        std::memcpy(&value, bytes_.data() + at, sizeof(value));
        return first_ == magic ? value : swapped(value);
    }

    /// The string of row `row` of the table at `table`.
    std::string_view string(std::size_t table, std::size_t row) const {
        const std::size_t at = table + row * row_bytes;
        const std::size_t length = number(at);
        const std::size_t begin = number(at + sizeof(std::uint32_t));
        if (begin > bytes_.size() || length > bytes_.size() - begin) {
            refuse_mo(file_,
                      at,
                      fmt::format("a string of {} bytes at byte {}, but the file has {}",
                                  length,
                                  begin,
                                  bytes_.size()));
        }
        return bytes_.substr(begin, length);
    }

  private:
    static std::uint32_t swapped(std::uint32_t value) {
        return value << 24U | (value & 0xff00U) << 8U | (value >> 8U & 0xff00U) | value >> 24U;
    }

    std::string_view bytes_;
    const fs::path& file_;
    std::uint32_t first_ = 0;
};

/// What stands behind "charset=" in the header, which is the translation of the empty text.
std::string charset_of(std::string_view header) {
    constexpr std::string_view key = "charset=";
    const std::size_t at = header.find(key);
    if (at == std::string_view::npos) {
        return "UTF-8";
    }
    const std::string_view rest = header.substr(at + key.size());
    return std::string(rest.substr(0, rest.find_first_of(" \t\r\n;")));
}

/// Converts from a charset to UTF-8.
class Decoder {
  public:
    Decoder(const std::string& charset, const fs::path& file)
        : state_(::iconv_open("UTF-8", charset.c_str())) {
        if (state_ == failed()) {
            throw Error(ErrorKind::BadInput,
                        file.string(),
                        "the header names the charset '" + printable(charset) +
                            "', which this system does not know",
                        "convert the catalogue: msgunfmt FILE.mo | msgconv -t UTF-8 | msgfmt - -o "
                        "FILE.mo");
        }
    }
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;
    ~Decoder() { ::iconv_close(state_); }

    /// None: the text has bytes that the charset has not.
    std::optional<std::string> decoded(std::string_view text) const {
        std::string from(text);
        std::string to(4 * text.size() + 4, '\0');
        char* in = from.data();
        std::size_t in_left = from.size();
        char* out = to.data();
        std::size_t out_left = to.size();
        ::iconv(state_, nullptr, nullptr, nullptr, nullptr);
        if (::iconv(state_, &in, &in_left, &out, &out_left) == static_cast<std::size_t>(-1) ||
            ::iconv(state_, nullptr, nullptr, &out, &out_left) == static_cast<std::size_t>(-1)) {
            return std::nullopt;
        }
        to.resize(to.size() - out_left);
        return to;
    }

  private:
    static iconv_t failed() { return reinterpret_cast<iconv_t>(-1); }

    iconv_t state_;
};

/// The forms of a text: singular and plural, or those of a translation.
std::vector<std::string_view> forms_of(std::string_view text) {
    std::vector<std::string_view> forms;
    while (true) {
        const std::size_t end = text.find('\0');
        forms.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return forms;
        }
        text.remove_prefix(end + 1);
    }
}

std::string_view without_context(std::string_view text) {
    const std::size_t end = text.find(end_of_context);
    return end == std::string_view::npos ? text : text.substr(end + 1);
}

}  // namespace

Catalogue read_mo(std::string_view bytes, const fs::path& file) {
    const Bytes mo(bytes, file);
    if (const std::size_t major = mo.number(4) >> 16U; major > 1) {
        refuse_mo(file, 4, fmt::format("revision {} of the format, expected 0 or 1", major));
    }
    const std::size_t count = mo.number(8);
    const std::size_t sources = mo.number(12);
    const std::size_t targets = mo.number(16);
    if (count > bytes.size() / (2 * row_bytes)) {
        refuse_mo(file, 8, fmt::format("{} entries do not fit into {} bytes", count, bytes.size()));
    }
    std::string charset = "UTF-8";
    for (std::size_t row = 0; row < count; ++row) {
        if (mo.string(sources, row).empty()) {
            charset = charset_of(mo.string(targets, row));
            break;
        }
    }
    const Decoder decoder(charset, file);
    Catalogue catalogue;
    const auto add = [&](std::string_view source, std::string_view target) {
        auto from = decoder.decoded(source);
        auto to = decoder.decoded(target);
        if (from && to) {
            catalogue.entries.push_back({std::move(*from), std::move(*to)});
        } else {
            ++catalogue.undecodable;
        }
    };
    for (std::size_t row = 0; row < count; ++row) {
        const std::string_view text = mo.string(sources, row);
        const std::string_view translation = mo.string(targets, row);
        if (text.empty()) {
            continue;
        }
        const std::vector<std::string_view> from = forms_of(without_context(text));
        const std::vector<std::string_view> to = forms_of(translation);
        add(from.front(), to.front());
        if (from.size() > 1 && to.size() > 1) {
            add(from[1], to.back());
        }
    }
    return catalogue;
}

}  // namespace pipetwin::exec
