// Texts that drivers give: names, versions, build logs.
#pragma once

#include <string>

namespace ocl {

/// The text without NUL and blanks at its ends, and with '?' in the place of each byte that is no
/// part of UTF-8: Python takes nothing else, and drivers may say anything.
std::string driver_text(std::string text);

}  // namespace ocl
