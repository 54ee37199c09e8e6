#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/table.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

std::string date_of(const fs::path& path) {
  std::error_code failed;
  const auto time = fs::last_write_time(path, failed);
  if (failed) { return "?"; }
  const auto since = std::chrono::file_clock::to_sys(time);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(since));
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(seconds));
}

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : manifest.files) { bytes += size; }
  return bytes;
}

// The size and the state of a checkpoint or a part.
std::pair<std::uint64_t, std::string> content_of(const CheckpointFolder& found) {
  if (!found.part) { return {size_of(CheckpointReader{found.path}.manifest()), "complete"}; }
  const PartSummary part = summary_of_part(found.path);
  return {part.bytes, fmt::format("part {} of {}, to be merged", part.part, part.parts)};
}

std::vector<std::string> row_of(const CheckpointFolder& found) {
  std::vector<std::string> row{found.path.filename().string(), date_of(found.seal)};
  try {
    auto [bytes, state] = content_of(found);
    row.push_back(format_bytes(bytes));
    row.push_back(std::move(state));
  } catch (const Error& error) {
    row.emplace_back("?");
    row.push_back(fmt::format("damaged: {}", error.what()));
  }
  return row;
}

}  // namespace

void list_checkpoints(const CheckpointSettings& settings) {
  const fs::path folder = settings.paths.front();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw ConfigError(
        fmt::format("{} is no folder; give the folder of a run's checkpoints", folder.string()));
  }
  if (const FolderKind kind = folder_kind(folder); kind != FolderKind::other) {
    throw ConfigError(fmt::format("{} is one {}; give the folder that it is in ({})",
                                  folder.string(),
                                  kind == FolderKind::part ? "part of a checkpoint" : "checkpoint",
                                  fs::canonical(folder).parent_path().string()));
  }
  const std::vector<CheckpointFolder> all = checkpoints_in(folder);
  if (all.empty()) {
    fmt::print("there are no checkpoints in {}\n", folder.string());
    return;
  }
  // States are sentences: they follow the table's columns, aligned left.
  Table table{{"checkpoint", "written", "size"}};
  std::vector<std::string> states;
  for (const CheckpointFolder& found : all) {
    std::vector<std::string> row = row_of(found);
    states.push_back(std::move(row.back()));
    row.pop_back();
    table.add(std::move(row));
  }
  const std::string text = table.text();
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    fmt::print("{}{}\n", text.substr(at, end - at),
               line < 2 ? "" : fmt::format("  {}", printable(states[line - 2])));
    at = end + 1;
  }
}

}  // namespace tessera::tools
