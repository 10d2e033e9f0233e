#include "opencl/build_log.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

namespace ocl {
namespace {

constexpr std::string_view kText = "<kernel>:";

struct Place {
  std::string file;
  long line;
};

/// Reads `#line 12 "file"` into the place of the line below it. A directive without a file stays in
/// the one before.
bool read_directive(std::string_view line, Place& next) {
  constexpr std::string_view word = "#line ";
  if (!line.starts_with(word)) return false;
  const std::string text(line.substr(word.size()));
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str()) return false;
  const std::string_view rest = end;
  const size_t open = rest.find('"'), close = rest.rfind('"');
  if (open != close) {
    next.file.clear();
    for (size_t i = open + 1; i < close; ++i) {
      if (rest[i] == '\\' && i + 1 < close) ++i;
      next.file += rest[i];
    }
  }
  next.line = number;
  return true;
}

/// The place that each line of the text comes from.
std::vector<Place> places_of(std::string_view source) {
  std::vector<Place> places;
  Place next{"<kernel>", 1};
  while (!source.empty()) {
    const std::string_view line = source.substr(0, source.find('\n'));
    places.push_back(next);
    if (!read_directive(line, next)) ++next.line;
    source.remove_prefix(std::min(line.size() + 1, source.size()));
  }
  return places;
}

}  // namespace

std::string with_named_lines(std::string_view log, std::string_view source) {
  const std::vector<Place> places = places_of(source);
  std::string named;
  while (!log.empty()) {
    const size_t at = log.find(kText);
    named += log.substr(0, at);
    if (at == std::string_view::npos) break;
    log.remove_prefix(at + kText.size());
    size_t digits = 0, line = 0;
    while (digits < std::min<size_t>(log.size(), 9) &&
           std::isdigit(static_cast<unsigned char>(log[digits])) != 0) {
      line = line * 10 + static_cast<size_t>(log[digits++] - '0');
    }
    if (line >= 1 && line <= places.size()) {
      const Place& place = places[line - 1];
      named += place.file + ":" + std::to_string(place.line);
      log.remove_prefix(digits);
    } else {
      named += kText;
    }
  }
  return named;
}

}  // namespace ocl
