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

/// The parameters and buffers of a module that exist in files with weights, and under which names:
/// a shared one may have any of its names.
class FoundInFiles {
 public:
  /// *Collective.* Rank 0 opens the files at `path` and reads the values of buffers, so that they
  /// are refused before the module changes. `units` and `buffers` outlive it. Throws any error, on
  /// all ranks.
  FoundInFiles(World& world, const std::filesystem::path& path,
               const std::vector<ModuleUnit>& units, ModuleBuffers& buffers,
               const LoadOptions& options);

  /// Returns the function that names parameters as the files do.
  [[nodiscard]] WeightName parameter_name() const;
  /// *Collective.* Rank 0 sends the buffers to all ranks. `report` is the result of loading the
  /// parameters: names of buffers, and further names of shared ones, become expected.
  void load_buffers(LoadReport& report);

 private:
  /// Fills `values_`. Returns the names of tensors in files beside the weights.
  [[nodiscard]] std::vector<std::string> read_buffers();

  World& world_;
  std::filesystem::path path_;
  const std::vector<ModuleUnit>& units_;
  ModuleBuffers& buffers_;
  LoadOptions options_;
  std::map<std::string, std::string>
      other_names_;                            // in the module, by the first name of a parameter
  std::vector<std::string> names_of_buffers_;  // in the files; empty: missing
  std::vector<at::Tensor> values_;           // by buffer, on rank 0; undefined if it is not loaded
  std::vector<std::string> beside_weights_;  // names of tensors
};

}  // namespace tessera::torch
