#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// What a checkpoint stores of the run that wrote it, by name: CheckpointExtras::values.
using RunValues = std::map<std::string, std::string>;

/// The name of the value that says what model it is: a config.json of the hub's format.
inline constexpr std::string_view kHubConfig = "model.config";

/// A run's position in its data: `windows` windows of epoch `epoch` are used, in steps of
/// `global_batch` windows each.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t windows = 0;
  std::int64_t global_batch = 1;
};

/// The position of `job` after `data_steps` steps of its TokenLoader.
[[nodiscard]] DataPosition position_after(const Job& job, std::int64_t data_steps);

/// The number of steps of the TokenLoader of `job` before its first whole global batch after
/// `position`. FormatError that names `path` for an impossible position.
[[nodiscard]] std::int64_t data_steps_before(const Job& job, const DataPosition& position,
                                             const std::string& path);

/// What a checkpoint of `job` stores after `data_steps` steps of its TokenLoader: sizes of the
/// model, options that change the computation, the data, and the position in it.
[[nodiscard]] RunValues run_values(const Job& job, std::int64_t data_steps);

/// The position in the values `saved` of the checkpoint at `path`. ConfigError if they have none,
/// because another program wrote them. FormatError for invalid numbers.
[[nodiscard]] DataPosition position_in(const RunValues& saved, const std::string& path);

/// How `job` differs from the run that wrote the values `saved` of the checkpoint at `path`.
struct Changes {
  std::vector<std::string> options = {};  ///< typed options, each as a sentence
  bool other_data = false;                ///< whether the run reads other data from here on
};
/// Throws ConfigError that names both values for another model, for an option that differs without
/// being typed, and for data that changed under the same name.
[[nodiscard]] Changes changes_since(const Job& job, const RunValues& saved,
                                    const std::string& path);

}  // namespace tessera::tools
