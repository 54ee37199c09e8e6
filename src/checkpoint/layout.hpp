#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"

namespace tessera {

/// A tensor to be laid out in a checkpoint: one array under its name in the files.
struct CheckpointTensor {
  std::string name;               ///< unique in its set; for state "weight-name.master" and so on
  std::string dtype;              ///< as safetensors has it: "F32", "BF16", "F16", "U16", "U8" ...
  Shape shape;                    ///< of the logical tensor
  std::uint64_t chunk_bytes = 0;  ///< TensorSums: 64 elements, or one scale
};

/// Where a tensor lies.
struct TensorPlace {
  std::size_t file = 0;          ///< index in CheckpointLayout::files
  std::uint64_t first_byte = 0;  ///< of its data in the file
  std::uint64_t bytes = 0;
};

/// One file of a checkpoint.
struct CheckpointFile {
  std::string name;         ///< in the folder of the step
  std::string header;       ///< its first bytes: length and JSON, as safetensors has them
  std::uint64_t bytes = 0;  ///< in all
};

/// The files of a checkpoint and the place of every tensor in them. It follows from names, shapes
/// and dtypes alone, so that every rank computes the same without asking any other.
///
/// Weights are in model.safetensors and state in optimizer.safetensors; a set that has more than
/// `shard_bytes` of data is divided at tensors into NAME-00001-of-0000K.safetensors with the usual
/// index NAME.safetensors.index.json. A tensor that is larger than that has a file of its own.
/// Within a file wide elements come first, so that each tensor lies on a multiple of its own.
class CheckpointLayout {
 public:
  /// One set of tensors and the name of its files.
  struct Set {
    std::string name;  ///< "model", "optimizer", "extras"
    std::vector<CheckpointTensor> tensors;
  };
  /// Empty sets have no file. ContractError if a name is empty, repeated in its set or not UTF-8,
  /// and for an unknown dtype.
  CheckpointLayout(std::vector<Set> sets, std::uint64_t shard_bytes);

  [[nodiscard]] const std::vector<CheckpointFile>& files() const noexcept { return files_; }
  /// Index files: name and text.
  struct Index {
    std::string name;
    std::string text;
  };
  [[nodiscard]] const std::vector<Index>& indices() const noexcept { return indices_; }
  /// Of all sets, one after the other.
  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const noexcept { return tensors_; }
  /// By tensor.
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

}  // namespace tessera
