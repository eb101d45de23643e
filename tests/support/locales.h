// SPDX-License-Identifier: Apache-2.0
#pragma once

// Locales with a comma in numbers, built by the test that needs them: few machines have them.

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <string>

#include "tests/support/scratch_folder.h"

namespace pipetwin::tests {

/// The folder of German and Turkish locales, which LOCPATH names; removed at the end.
class BuiltLocales {
  public:
    BuiltLocales() {
        for (const char* const name : {"de_DE", "tr_TR"}) {
            const std::string command = std::string("localedef -i ") + name + " -f UTF-8 '" +
                                        (folder_ / (std::string(name) + ".UTF-8")).string() +
                                        "' >/dev/null 2>&1";
            are_there_ = are_there_ && std::system(command.c_str()) == 0;
        }
    }

    /// False where this machine has no localedef, or no texts of locales (Debian's `locales`).
    bool are_there() const { return are_there_; }
    std::string folder() const { return folder_.path().string(); }

  private:
    ScratchFolder folder_;
    bool are_there_ = true;
};

/// Numbers of a C++ stream with a comma for decimals and a point between thousands.
class CommaNumbers : public std::numpunct<char> {
  protected:
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

/// This process under a locale of `locales`, for the C library and for C++ streams; back under "C"
/// at the end.
class UnderLocale {
  public:
    UnderLocale(const BuiltLocales& locales, const std::string& name, int category = LC_ALL) {
        setenv("LOCPATH", locales.folder().c_str(), 1);
        is_set_ = std::setlocale(category, (name + ".UTF-8").c_str()) != nullptr;
        unsetenv("LOCPATH");
        // It has no name, so it leaves the C library's locale alone.
        std::locale::global(std::locale(std::locale::classic(), new CommaNumbers));
    }
    ~UnderLocale() {
        std::locale::global(std::locale::classic());
        std::setlocale(LC_ALL, "C");
    }
    UnderLocale(const UnderLocale&) = delete;
    UnderLocale& operator=(const UnderLocale&) = delete;

    bool is_set() const { return is_set_; }

  private:
    bool is_set_ = false;
};

}  // namespace pipetwin::tests
