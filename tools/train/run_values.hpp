#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// What a checkpoint keeps of the run that wrote it, by name: CheckpointExtras::values.
using RunValues = std::map<std::string, std::string>;

/// How far a run is in its data: `windows` windows of epoch `epoch` are taken, in steps that take
/// `global_batch` windows each.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t windows = 0;
  std::int64_t global_batch = 1;
};

/// The position of `job` after `data_steps` steps of its TokenLoader.
[[nodiscard]] DataPosition position_after(const Job& job, std::int64_t data_steps);

/// The steps of the TokenLoader of `job` that lie before its first whole global batch behind
/// `position`. FormatError that names `path` for a position that no run can have.
[[nodiscard]] std::int64_t data_steps_before(const Job& job, const DataPosition& position,
                                             const std::string& path);

/// What a checkpoint of `job` keeps after `data_steps` steps of its TokenLoader: sizes of the
/// model, options that change what is computed, the data and the position in it.
[[nodiscard]] RunValues run_values(const Job& job, std::int64_t data_steps);

/// The position in the values `saved` of the checkpoint at `path`. ConfigError if they have none:
/// another program wrote them. FormatError for numbers that are none.
[[nodiscard]] DataPosition position_in(const RunValues& saved, const std::string& path);

/// How `job` differs from the run that wrote the values `saved` of the checkpoint at `path`.
struct Changes {
  std::vector<std::string> options = {};  ///< typed ones, each as a sentence
  bool other_data = false;                ///< the run reads other data from here on
};
/// Throws ConfigError that names both values for another model, for an option that differs and was
/// not typed, and for data that has changed under the same name.
[[nodiscard]] Changes changes_since(const Job& job, const RunValues& saved,
                                    const std::string& path);

}  // namespace tessera::tools
