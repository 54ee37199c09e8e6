#include "base/kept_path.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {

namespace {

/// `path` without the slashes and dots behind the last name.
std::filesystem::path ending_in_name(std::filesystem::path path) {
  while (path.has_relative_path() && (!path.has_filename() || path.filename() == ".")) {
    path = path.parent_path();
  }
  return path;
}

}  // namespace

std::filesystem::path kept_path(const std::filesystem::path& path) {
  if (path.empty() || path.is_absolute()) { return ending_in_name(path); }
  std::error_code failed;
  std::filesystem::path kept = std::filesystem::current_path(failed);
  if (failed) {
    throw Error(fmt::format(
        "the relative path {} has no meaning: the working directory cannot be found ({}); give an "
        "absolute path",
        path.string(), failed.message()));
  }
  for (const std::filesystem::path& name : path) {
    if (name != ".") { kept /= name; }
  }
  return ending_in_name(std::move(kept));
}

}  // namespace tessera
