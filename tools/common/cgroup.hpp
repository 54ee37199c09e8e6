#pragma once

#include <cstddef>
#include <filesystem>

namespace tessera::tools {

/// The lowest limit of memory in bytes among this process's cgroup and its ancestors, of versions 1
/// and 2; the largest number if none has a limit, or they cannot be read. `root` is the folder that
/// has proc and sys.
[[nodiscard]] std::size_t cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace tessera::tools
