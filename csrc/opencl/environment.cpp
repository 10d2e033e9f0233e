#include "opencl/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "opencl/log.h"

namespace ocl {

std::vector<std::string_view> split_list(std::string_view text, char separator) {
  constexpr std::string_view kBlanks = " \t";
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const size_t place = text.find(separator);
    std::string_view item = text.substr(0, place);
    text = place == std::string_view::npos ? std::string_view() : text.substr(place + 1);
    item.remove_prefix(std::min(item.size(), item.find_first_not_of(kBlanks)));
    item = item.substr(0, item.find_last_not_of(kBlanks) + 1);
    if (!item.empty()) items.push_back(item);
  }
  return items;
}

namespace {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;  // asked until the very end of a process
  const std::lock_guard<std::mutex> lock(mutex);
  if (told->insert(text).second) warn(text);
}

}  // namespace

int64_t positive_number(const char* variable, int64_t otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  const std::string_view text = value;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error == std::errc() && end == text.end() && number > 0) return number;
  warn_once(std::string(variable) + "=" + value +
            " is not a whole number above 0: it is ignored, and " + std::to_string(otherwise) +
            " is used");
  return otherwise;
}

bool switched_on(const char* variable, bool otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  const std::string_view text = value;
  if (text == "0" || text == "1") return text == "1";
  warn_once(std::string(variable) + "=" + value + ": 0 and 1 are known, it is ignored");
  return otherwise;
}

}  // namespace ocl
