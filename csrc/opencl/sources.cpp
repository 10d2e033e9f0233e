// kernel_source(): where kernel files come from, and their includes.

#include "opencl/sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "opencl/program.h"

namespace ocl {
namespace {

/// Files that extensions have brought along.
struct AddedFiles {
  struct Text {
    std::string_view text;
    bool unique = true;
  };
  std::mutex mutex;
  std::map<std::string, Text, std::less<>> files;
};

/// Leaked: libraries may add to it before and look into it after everything else.
AddedFiles& added_files() {
  static auto* added = new AddedFiles;
  return *added;
}

/// An extension's file; empty if there is none.
std::string_view added_file(std::string_view path) {
  AddedFiles& added = added_files();
  std::lock_guard<std::mutex> lock(added.mutex);
  const auto it = added.files.find(path);
  if (it == added.files.end()) return {};
  if (!it->second.unique || !embedded_kernel(path).empty()) {
    throw std::runtime_error("several libraries have a kernel file \"" + std::string(path) +
                             "\": an extension's files belong into a folder of its own name");
  }
  return it->second.text;
}

using Folders = std::vector<std::string>;

/// Those of TORCH_OCL_KERNEL_DIR.
Folders kernel_folders() {
  Folders folders;
  const char* variable = std::getenv("TORCH_OCL_KERNEL_DIR");
  std::istringstream list(variable == nullptr ? "" : variable);
  for (std::string folder; std::getline(list, folder, ':');) {
    if (folder.empty()) continue;
    struct stat status;
    if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
      throw std::runtime_error("there is no folder \"" + folder + "\" (TORCH_OCL_KERNEL_DIR)");
    }
    folders.push_back(folder);
  }
  return folders;
}

/// The text of kernels/<path>, from the first folder that has it, else from a library.
std::optional<std::string> read_kernel(const Folders& folders, const std::string& path) {
  for (const std::string& folder : folders) {
    std::ifstream file(folder + "/" + path, std::ios::binary);
    if (!file) continue;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  const std::string_view added = added_file(path);
  const std::string_view text = added.empty() ? embedded_kernel(path) : added;
  if (text.empty()) return std::nullopt;
  return std::string(text);
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
  explicit Expander(Folders folders) : folders_(std::move(folders)) {}

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
    const auto text = read_kernel(folders_, name);
    if (!text) {
      throw std::runtime_error("kernels/" + from + ":" + std::to_string(line) + ": #include \"" +
                               name + "\": there is no kernels/" + name);
    }
    const std::string guard = guard_of(name);
    out_ += "#ifndef " + guard + "\n#define " + guard + "\n";
    append(name, *text);
    out_ += "#endif\n";
  }

  Folders folders_;
  std::string out_;
  // The files taken at the file level and under each open #if.
  std::vector<std::set<std::string>> scopes_{1};
};

}  // namespace

std::string kernel_source(const std::string& path) {
  const Folders folders = kernel_folders();
  const auto text = read_kernel(folders, path);
  if (!text) {
    std::string places;
    for (const std::string& folder : folders) places += folder + ", ";
    throw std::runtime_error("there is no kernel file \"" + path + "\" in " + places +
                             "the library or an extension");
  }
  Expander expander(folders);
  expander.append(path, *text);
  return expander.take();
}

std::string expand_kernel_source(const std::string& name, const std::string& text) {
  Expander expander(kernel_folders());
  expander.append(name, text);
  return expander.take();
}

void add_kernel_files(std::span<const KernelFile> files) {
  AddedFiles& added = added_files();
  std::lock_guard<std::mutex> lock(added.mutex);
  for (const KernelFile& file : files) {
    const auto [it, is_new] = added.files.try_emplace(std::string(file.path));
    if (is_new) {
      it->second.text = file.text;
    } else if (it->second.text != file.text) {
      it->second.unique = false;
    }
  }
}

}  // namespace ocl
