// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin::exec {

/// A text of a message catalogue and its translation, both in UTF-8.
struct CatalogueEntry {
    std::string source;
    std::string target;

    bool operator==(const CatalogueEntry&) const = default;
};

/// The entries of a message catalogue, in the file's order.
struct Catalogue {
    std::vector<CatalogueEntry> entries;
    std::size_t undecodable = 0;  ///< entries that are no text in the catalogue's charset

    bool operator==(const Catalogue&) const = default;
};

/// Reads the bytes of a .mo file (GNU gettext manual, "The Format of GNU MO Files"), in either byte
/// order. A context before a text is left out. An entry with plural forms gives the singular with
/// the first form and the plural with the last one. Texts are converted to UTF-8 from the charset
/// that the header names; without a header they are UTF-8. Throws Error(BadInput), naming `file`
/// and byte, for a file that breaks the format, and for a charset that the system does not know.
Catalogue read_mo(std::string_view bytes, const std::filesystem::path& file);

}  // namespace pipetwin::exec
