#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "checkpoint/joined_parts.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
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

std::vector<std::string> row_of_checkpoint(const fs::path& folder) {
  std::vector<std::string> row{folder.filename().string(), date_of(folder / kManifestName)};
  try {
    const CheckpointReader reader{folder};
    row.push_back(format_bytes(size_of(reader.manifest())));
    row.emplace_back("complete");
  } catch (const Error& error) {
    row.emplace_back("?");
    row.push_back(fmt::format("damaged: {}", error.what()));
  }
  return row;
}

std::vector<std::string> row_of_part(const fs::path& folder) {
  std::vector<std::string> row{folder.filename().string(), date_of(folder / kPartName)};
  try {
    const CheckpointPart part = read_part(folder).part;
    std::uint64_t bytes = 0;
    for (const PartRange& range : part.ranges) { bytes += range.bytes; }
    row.push_back(format_bytes(bytes));
    row.push_back(fmt::format("part {} of {}, to be merged", part.part, part.parts));
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
  if (const FolderKind kind = kind_of(folder); kind != FolderKind::other) {
    throw ConfigError(fmt::format("{} is one {}; give the folder that it is in ({})",
                                  folder.string(),
                                  kind == FolderKind::part ? "part of a checkpoint" : "checkpoint",
                                  fs::canonical(folder).parent_path().string()));
  }
  const auto whole = steps_in(folder, StepKind::whole);
  const auto parts = steps_in(folder, StepKind::part);
  if (whole.empty() && parts.empty()) {
    fmt::print("there are no checkpoints in {}\n", folder.string());
    return;
  }
  // States are sentences: they follow the table's columns, aligned left.
  Table table{{"checkpoint", "written", "size"}};
  std::vector<std::string> states;
  const auto add = [&](std::vector<std::string> row) {
    states.push_back(std::move(row.back()));
    row.pop_back();
    table.add(std::move(row));
  };
  for (const StepFolder& step : whole) { add(row_of_checkpoint(step.path_in(folder))); }
  for (const StepFolder& part : parts) { add(row_of_part(part.path_in(folder))); }
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
