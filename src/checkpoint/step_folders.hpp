#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::checkpoint {

/// Names in the folder of a run (CheckpointStore).
inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::string_view kNewEnd =
    ".new";  ///< a step's new folder, before it gets its name
inline constexpr std::string_view kPartialEnd = ".partial";  ///< a save that is not committed
inline constexpr std::string_view kRemovedEnd = ".removed";  ///< being removed
inline constexpr std::string_view kWeightsName = "model.safetensors";

/// "step-00000012", and for its part 3 "step-00000012.part-3".
[[nodiscard]] std::string step_name(std::int64_t step);
[[nodiscard]] std::string part_name(std::int64_t step, int part);

/// .NAME.MACHINE-RANDOM followed by `end`.
[[nodiscard]] std::string hidden_name(std::string_view name, std::string_view end);
/// Whether `entry` is a hidden name that begins with `name`.
[[nodiscard]] bool is_hidden(std::string_view entry, std::string_view name, std::string_view end);

/// The folder of a step or of a part of it, by its name.
struct StepFolder {
  std::string name;         ///< as returned by step_name or part_name
  std::int64_t step = 0;    ///< its step
  std::optional<int> part;  ///< the number of its part; none for a whole checkpoint
  bool is_new = false;      ///< NAME.new: it replaces NAME

  /// Its path in `folder`, the run's folder.
  [[nodiscard]] std::filesystem::path path_in(const std::filesystem::path& folder) const;
};
/// Empty for any other name.
[[nodiscard]] std::optional<StepFolder> parse_step_folder(std::string_view entry);

/// Throws FormatError if the name of `folder` is that of another step than `step`, its manifest's:
/// it was renamed, and would be taken for the other.
void require_step(const std::filesystem::path& folder, std::int64_t step);

/// The file that makes a folder of this name complete, and that its writer claims before.
[[nodiscard]] std::string_view claim_of(std::string_view name);

/// The sorted names in a folder; none if it is missing. Throws Error if it cannot be listed.
[[nodiscard]] std::set<std::string> names_in(const std::filesystem::path& folder);

enum class StepKind : std::uint8_t { whole, part };
/// The folders of steps, or of their parts, in `folder`, ascending. A step's new folder follows the
/// one that it replaces.
[[nodiscard]] std::vector<StepFolder> steps_in(const std::filesystem::path& folder, StepKind kind);

/// Whether `folder` is one machine's part of a checkpoint. A file part.json beside a manifest or in
/// the folder of a run is a stray one.
[[nodiscard]] bool is_part_folder(const std::filesystem::path& folder);
/// Says that `path` is such a part, or a file in one, and what to do.
[[nodiscard]] std::string text_of_part(const std::filesystem::path& path);

/// Whether a name is taken, even by a dangling link.
[[nodiscard]] bool name_is_taken(const std::filesystem::path& path);
/// A file, or a link to one.
[[nodiscard]] bool is_file(const std::filesystem::path& path);
/// A file that is not a link.
[[nodiscard]] bool is_plain_file(const std::filesystem::path& path);

}  // namespace tessera::checkpoint
