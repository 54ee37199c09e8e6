#include "tools/common/cgroup.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tessera::tools {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// A version of cgroups that limits memory.
struct Version {
  std::string_view type;        ///< of its file system
  std::string_view controller;  ///< in /proc/self/cgroup: version 2 names none
  const char* file;             ///< in a group's folder
};
constexpr std::array<Version, 2> kVersions{
    {{"cgroup2", "", "memory.max"}, {"cgroup", "memory", "memory.limit_in_bytes"}}};

bool names(std::string_view list, std::string_view entry) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == entry) { return true; }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return entry.empty();
}

/// A mounted hierarchy: its folder shows the group `group` and those below it.
struct Mount {
  std::filesystem::path folder;
  std::string group;
};

// A line: number parent device GROUP FOLDER options ... - TYPE source OPTIONS
std::optional<Mount> mount_of(const Version& version, const std::filesystem::path& root) {
  std::ifstream file{root / "proc/self/mountinfo"};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string skipped, group, folder, type, options;
    words >> skipped >> skipped >> skipped >> group >> folder;
    while (words >> skipped && skipped != "-") {}
    words >> type >> skipped >> options;
    if (type != version.type || !names(options, version.controller)) { continue; }
    return Mount{root / std::filesystem::path{folder}.relative_path(), group};
  }
  return {};
}

// A line: number:controllers:PATH
std::optional<std::string> group_of(const Version& version, const std::filesystem::path& root) {
  std::ifstream file{root / "proc/self/cgroup"};
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) { continue; }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_this =
        version.controller.empty() ? controllers.empty() : names(controllers, version.controller);
    if (is_this) { return line.substr(second + 1); }
  }
  return {};
}

/// `group` below the mount. A group that the mount does not show, as in a container that sees its
/// host's names, counts as the mount's own.
std::filesystem::path below(const Mount& mount, const std::string& group) {
  const std::filesystem::path path =
      std::filesystem::path{group}.lexically_relative(mount.group).lexically_normal();
  const bool outside = path.empty() || path.begin()->string() == "..";
  return outside ? std::filesystem::path{} : path;
}

std::size_t limit_in(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bytes);
  return error == std::errc{} ? bytes : kNone;  // "max": none
}

std::size_t lowest(const Version& version, const std::filesystem::path& root) {
  const std::optional<Mount> mount = mount_of(version, root);
  const std::optional<std::string> group = group_of(version, root);
  if (!mount || !group) { return kNone; }
  std::filesystem::path folder = mount->folder;
  std::size_t bytes = limit_in(folder / version.file);
  for (const std::filesystem::path& name : below(*mount, *group)) {
    folder /= name;
    bytes = std::min(bytes, limit_in(folder / version.file));
  }
  return bytes;
}

}  // namespace

std::size_t cgroup_memory_limit(const std::filesystem::path& root) {
  std::size_t bytes = kNone;
  for (const Version& version : kVersions) { bytes = std::min(bytes, lowest(version, root)); }
  return bytes;
}

}  // namespace tessera::tools
