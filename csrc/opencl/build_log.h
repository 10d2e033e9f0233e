// Messages of compilers, in terms of the files that a text comes from.
#pragma once

#include <string>
#include <string_view>

namespace ocl {

/// The log of a compiler that counts the lines of the whole text and calls it <kernel>, with the
/// files and lines that the text's #line directives name instead.
std::string with_named_lines(std::string_view log, std::string_view source);

}  // namespace ocl
