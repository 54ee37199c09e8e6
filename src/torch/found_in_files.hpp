#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/world/world.hpp"
#include "torch/module_buffers.hpp"
#include "torch/module_units.hpp"

namespace tessera::torch {

/// Which of a module's parameters and buffers files with weights have, and under which names:
/// shared ones may have any of theirs.
class FoundInFiles {
 public:
  /// *Collective.* Rank 0 opens what is at `path`. `units` and `buffers` outlive it. Throws what
  /// opening throws, on all ranks.
  FoundInFiles(World& world, const std::filesystem::path& path,
               const std::vector<ModuleUnit>& units, ModuleBuffers& buffers,
               const LoadOptions& options);

  /// Returns the function that names parameters as the files do.
  [[nodiscard]] WeightName parameter_name() const;
  /// *Collective.* Rank 0 reads the buffers, and all ranks take them. `report` is what the load of
  /// the parameters has found: names of buffers, and further names of what is shared, become
  /// expected.
  void load_buffers(LoadReport& report);

 private:
  World& world_;
  std::filesystem::path path_;
  const std::vector<ModuleUnit>& units_;
  ModuleBuffers& buffers_;
  LoadOptions options_;
  std::map<std::string, std::string> other_names_;  // in the module, by the first of a parameter's
  std::vector<std::string> names_of_buffers_;       // in the files; empty: it is not there
};

}  // namespace tessera::torch
