#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"

namespace tessera::checkpoint {

/// A tensor to be laid out in a checkpoint: one named array in the files.
struct CheckpointTensor {
  std::string name;               ///< unique in its set; for state "weight-name.master" and so on
  std::string dtype;              ///< as in safetensors: "F32", "BF16", "F16", "U16", "U8" ...
  Shape shape;                    ///< shape of the logical tensor
  std::uint64_t chunk_bytes = 0;  ///< TensorSums: 64 elements, or one scale
};

/// Where a tensor is stored.
struct TensorPlace {
  std::size_t file = 0;          ///< index in CheckpointLayout::files
  std::uint64_t first_byte = 0;  ///< where its data begins in the file
  std::uint64_t bytes = 0;
};

/// One file of a checkpoint.
struct CheckpointFile {
  std::string name;         ///< relative to the step's folder
  std::string header;       ///< the file's first bytes: length and JSON, as in safetensors
  std::uint64_t bytes = 0;  ///< size of the whole file
};

/// The files of a checkpoint and the place of every tensor in them. It follows from names, shapes
/// and dtypes only, so every rank computes the same layout by itself.
///
/// Weights are in model.safetensors and state in optimizer.safetensors. A set with more than
/// `shard_bytes` of data is split at tensors into NAME-00001-of-0000K.safetensors with the usual
/// index NAME.safetensors.index.json. A tensor larger than that has a file of its own. Within a
/// file wide elements come first, so that each tensor is aligned to its element size.
class CheckpointLayout {
 public:
  /// One set of tensors and the base name of its files.
  struct Set {
    std::string name;  ///< "model", "optimizer", "extras"
    std::vector<CheckpointTensor> tensors;
  };
  /// Empty sets have no file. Throws ContractError if a name is empty, repeated in its set or not
  /// UTF-8, or a dtype is unknown.
  CheckpointLayout(std::vector<Set> sets, std::uint64_t shard_bytes);

  [[nodiscard]] const std::vector<CheckpointFile>& files() const noexcept { return files_; }
  /// Index files: name and text.
  struct Index {
    std::string name;
    std::string text;
  };
  [[nodiscard]] const std::vector<Index>& indices() const noexcept { return indices_; }
  /// The tensors of all sets, one set after the other.
  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const noexcept { return tensors_; }
  /// Indexed by tensor.
  [[nodiscard]] const std::vector<TensorPlace>& places() const noexcept { return places_; }

 private:
  void add(Set set, std::uint64_t shard_bytes);
  void add_file(std::string name, std::span<const CheckpointTensor> tensors,
                std::span<TensorPlace> places);

  std::vector<CheckpointTensor> tensors_;
  std::vector<TensorPlace> places_;
  std::vector<CheckpointFile> files_;
  std::vector<Index> indices_;
};

}  // namespace tessera::checkpoint
