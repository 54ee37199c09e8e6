#pragma once

#include <filesystem>

namespace tessera {

/// `path` for an object that keeps it: absolute, so that it names the same file after the process
/// has changed its working directory, and without the slashes and dots at its end, so that its
/// filename is the folder's. Links in it are not followed. An empty path stays empty.
/// Throws Error if the path is relative and the working directory does not exist any more.
[[nodiscard]] std::filesystem::path kept_path(const std::filesystem::path& path);

}  // namespace tessera
