#include "device/cuda_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"

namespace tessera::device {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSearchPath = "LD_LIBRARY_PATH";

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code missing;
  return fs::equivalent(one, other, missing);
}

bool is_file_of_the_build(const CudaLibrary& library) {
  return library.built_file.empty() || is_same_file(library.file, library.built_file);
}

bool is_of_the_build(const CudaLibrary& library) {
  return is_file_of_the_build(library) && library.version == library.built_version;
}

std::string folder_of(const std::string& file) {
  return fs::path{file}.parent_path().string();
}

/// The folder of LD_LIBRARY_PATH that contains `file`, as written there.
std::optional<std::string> searched_folder_of(const std::string& file) {
  const std::string name = fs::path{file}.filename().string();
  const std::string path = environment(kSearchPath).value_or("");
  if (path.empty()) { return {}; }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find_first_of(":;", begin), path.size());
    std::string folder = path.substr(begin, end - begin);
    // The loader reads an empty entry as the current folder.
    if (is_same_file(fs::path{folder.empty() ? "." : folder} / name, file)) { return folder; }
    begin = end + 1;
  }
  return {};
}

/// What to do about a library that differs from the build.
std::string remedy(const CudaLibrary& library) {
  if (is_file_of_the_build(library)) {
    return fmt::format(
        "the file has changed since the build: install {} {} there, or configure and build again",
        library.name, version_text(library.built_version));
  }
  std::error_code unknown;
  if (!fs::exists(library.built_file, unknown)) {
    return "that file is missing: install it again, or configure and build again";
  }
  const std::string folder = folder_of(library.built_file);
  if (const auto searched = searched_folder_of(library.file)) {
    return fmt::format(
        "{} has '{}', which comes before the configured folder: remove it, or put {} before it",
        kSearchPath, *searched, folder);
  }
  return fmt::format("this process had already loaded the other one: make {} begin with {}",
                     kSearchPath, folder);
}

std::string file_text(const std::string& file) {
  return file.empty() ? "a file unknown to the loader" : file;
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

std::string file_of(const void* function) {
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) { return {}; }
  std::error_code error;
  const fs::path path = fs::absolute(info.dli_fname, error);
  return error ? info.dli_fname : path.lexically_normal().string();
}

std::string describe(const CudaLibrary& library, std::string_view more) {
  std::string text = fmt::format("{} {} (built with {}{}{}), {}", library.name,
                                 version_text(library.version), version_text(library.built_version),
                                 more.empty() ? "" : ", ", more, file_text(library.file));
  if (library.version < library.least_version) {
    text += fmt::format("; too old: {} or later is needed", version_text(library.least_version));
  }
  if (is_of_the_build(library)) { return text; }
  if (!is_file_of_the_build(library)) {
    text += fmt::format("; built with {}", library.built_file);
  }
  return text + "; " + remedy(library);
}

std::string too_old_text(const CudaLibrary& library, int least) {
  std::string text =
      fmt::format("{} {} is too old: {} or later is needed; loaded was {}", library.name,
                  version_text(library.version), version_text(least), file_text(library.file));
  text += fmt::format("; the CUDA module was built with {}", version_text(library.built_version));
  if (!library.built_file.empty()) { text += fmt::format(", {}", library.built_file); }
  if (is_of_the_build(library)) { return text + "; configure with a newer one and build again"; }
  return text + "; " + remedy(library);
}

void require_version(const CudaLibrary& library) {
  if (library.version >= library.least_version) { return; }
  throw ConfigError{too_old_text(library, library.least_version)};
}

}  // namespace tessera::device
