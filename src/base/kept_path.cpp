#include "base/kept_path.hpp"

#include <fmt/format.h>

#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera {

std::filesystem::path kept_path(const std::filesystem::path& path) {
  if (path.empty() || path.is_absolute()) { return path; }
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
  return kept;
}

}  // namespace tessera
