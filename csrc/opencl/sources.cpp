// kernel_source(): where kernel files come from, and their includes.

#include "opencl/sources.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "opencl/program.h"

namespace ocl {
namespace {

/// The text of kernels/<path>, from the folder if one is given, else from the library.
std::optional<std::string> read_kernel(const std::string& folder, const std::string& path) {
  if (folder.empty()) {
    const std::string_view text = embedded_kernel(path);
    if (text.empty()) return std::nullopt;
    return std::string(text);
  }
  std::ifstream file(folder + "/" + path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A preprocessor line: its name ("include", "ifdef") and what follows; both empty for other lines.
struct Directive {
  std::string_view name, rest;
};

Directive directive_of(std::string_view line) {
  const auto skip_blanks = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_blanks();
  const size_t end = std::min(line.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), line.size());
  const std::string_view name = line.substr(0, end);
  line.remove_prefix(end);
  skip_blanks();
  return {name, line};
}

/// Whether a comment of several lines goes on behind a line that begins within one, or not.
bool ends_in_comment(std::string_view line, bool within) {
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string_view rest = line.substr(i);
    if (within) {
      if (rest.starts_with("*/")) within = false, ++i;
    } else if (rest.starts_with("//")) {
      return false;
    } else if (rest.starts_with("/*")) {
      within = true, ++i;
    } else if (rest[0] == '"') {
      i = std::min(line.find('"', i + 1), line.size());  // as in #include "a/*.clh"
    }
  }
  return within;
}

/// The file in `"file"`; empty if there is none.
std::string quoted(std::string_view text) {
  const size_t end = text.find('"', 1);
  if (!text.starts_with('"') || end == std::string_view::npos) return {};
  return std::string(text.substr(1, end - 1));
}

std::string guard_of(std::string path) {
  for (char& c : path) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return "OCL_INCLUDED_" + path;
}

/// Expands includes without evaluating conditions. A file that was certainly taken before is left
/// out; one that was taken under an #if only is repeated behind a guard, which the driver's
/// preprocessor decides.
class Expander {
 public:
  explicit Expander(std::string folder) : folder_(std::move(folder)) {}

  void append(const std::string& path, std::string_view text) {
    scopes_.back().insert(path);
    mark(1, path);
    size_t number = 0;
    const size_t outermost = scopes_.size();
    // A file taken under an #if brings its lines into the count even where the preprocessor skips
    // them, and with them the #line behind. Each end of a branch sets the count right.
    bool uncertain = false, recount = false, commented = false;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      ++number;
      const Directive directive = commented ? Directive{} : directive_of(line);
      commented = ends_in_comment(line, commented);
      if (directive.name == "include") {
        if (const std::string name = quoted(directive.rest); !name.empty()) {
          include(name, path, number);
          mark(number + 1, path);
          uncertain = scopes_.size() > outermost;
          continue;
        }
      }
      follow(directive.name);
      out_.append(line).push_back('\n');
      if (!uncertain) continue;
      recount |= directive.name.starts_with("el") || directive.name == "endif";
      // A condition, or a comment behind it, may have several lines.
      if (!recount || commented || line.ends_with('\\')) continue;
      mark(number + 1, path);
      recount = false;
      uncertain = scopes_.size() > outermost;
    }
  }

  std::string take() { return std::move(out_); }
  const std::string& folder() const { return folder_; }

 private:
  void mark(size_t line, const std::string& path) {
    out_ += "#line " + std::to_string(line) + " \"" + path + "\"\n";
  }

  /// Keeps scopes_ in step with the conditions.
  void follow(std::string_view directive) {
    if (directive.starts_with("if")) {
      scopes_.emplace_back();
    } else if (directive.starts_with("el")) {
      scopes_.back().clear();
    } else if (directive == "endif" && scopes_.size() > 1) {
      scopes_.pop_back();
    }
  }

  void include(const std::string& name, const std::string& from, size_t line) {
    for (const auto& scope : scopes_) {
      if (scope.count(name) != 0) return;
    }
    // As a compiler run with -I kernels: names are paths below kernels/.
    const auto text = read_kernel(folder_, name);
    if (!text) {
      throw std::runtime_error("kernels/" + from + ":" + std::to_string(line) + ": #include \"" +
                               name + "\": there is no kernels/" + name);
    }
    const std::string guard = guard_of(name);
    out_ += "#ifndef " + guard + "\n#define " + guard + "\n";
    append(name, *text);
    out_ += "#endif\n";
  }

  std::string folder_;
  std::string out_;
  // The files taken at the file level and under each open #if.
  std::vector<std::set<std::string>> scopes_{1};
};

}  // namespace

std::string kernel_source(const std::string& path) {
  const char* folder = std::getenv("TORCH_OCL_KERNEL_DIR");
  Expander expander(folder == nullptr ? "" : folder);
  const auto text = read_kernel(expander.folder(), path);
  if (!text) {
    throw std::runtime_error("there is no kernel file \"" + path + "\" in " +
                             (expander.folder().empty()
                                  ? "the library"
                                  : expander.folder() + " (TORCH_OCL_KERNEL_DIR)"));
  }
  expander.append(path, *text);
  return expander.take();
}

}  // namespace ocl
