// Reading environment variables, with a warning for what can't be understood.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ocl {

/// The items of a list, without the blanks around them and without empty ones. They point into
/// `text`.
std::vector<std::string_view> split_list(std::string_view text, char separator = ',');

/// The variable's value if it is a whole number above 0. `otherwise` if it is unset or empty, and,
/// with a warning, if it is anything else. The same warning comes once.
int64_t positive_number(const char* variable, int64_t otherwise);

/// Whether the variable is 1 rather than 0; `otherwise` as above.
bool switched_on(const char* variable, bool otherwise);

}  // namespace ocl
