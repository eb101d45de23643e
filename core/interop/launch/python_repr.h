// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pipetwin {

/// The value that a text begins with, as Python's repr and pprint write it, as JSON; what stands
/// behind it is not read. Dicts and objects ("Name(key=value)") become objects, an object with one
/// value and no name that value ("PosixPath('x')"), lists, tuples and sets lists, strings that
/// follow each other one string, None null. A member of an enumeration
/// ("<Mode.REDUCE: 2>") becomes its value where that is a string, else its name, any other object
/// in angle brackets the name of its class, a word the part behind its last dot
/// ("torch.bfloat16"). Throws Error(BadInput) at `place` for what is no such value, for one without
/// its end, and for more than 64 levels.
std::string json_of_python(std::string_view text, std::string_view place);

}  // namespace pipetwin
