#include "opencl/driver_text.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ocl {
namespace {

/// The bytes of the character that begins there; 0 if they are none (RFC 3629, 4).
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t size = first < 0x80                     ? 1
                      : first >= 0xC2 && first < 0xE0  ? 2
                      : (first & 0xF0) == 0xE0         ? 3
                      : first >= 0xF0 && first <= 0xF4 ? 4
                                                       : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer forms than needed, surrogates, and numbers past the last character.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  return size;
}

}  // namespace

std::string driver_text(std::string text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.find_first_not_of(' '));
  for (size_t at = 0; at < text.size();) {
    const size_t size = character(std::string_view(text).substr(at));
    if (size == 0) text[at] = '?';
    at += size == 0 ? 1 : size;
  }
  return text;
}

}  // namespace ocl
