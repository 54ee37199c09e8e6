#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/shape.hpp"

namespace tessera {

/// A tensor of a checkpoint, as its manifest lists it.
struct ManifestTensor {
  std::string name;   ///< unique among the tensors of its role
  std::string role;   ///< "weight", "master", "remainder", "moment", "scales" or "extra"
  std::string dtype;  ///< the type of its elements, as in safetensors: "F32", "BF16", "U8", ...
  Shape shape;        ///< its extents
  std::uint64_t chunk_bytes = 0;    ///< the bytes of a chunk of its checksums
  std::string file;                 ///< the name of its file, in the folder of the step
  std::uint64_t first_byte = 0;     ///< the offset of its data in the file
  std::uint64_t bytes = 0;          ///< the size of its data
  std::vector<std::uint64_t> sums;  ///< a checksum for each block (docs/checkpoint-format.md)
};

/// What a checkpoint holds: its manifest.json. Nothing in it depends on ranks, strategy, mesh or
/// device.
struct Manifest {
  int format = 1;         ///< the version of the format
  std::int64_t step = 0;  ///< the step of the checkpoint
  /// Counters of the training state ("steps", "updates", "loss_scale", "good_steps", ...) and the
  /// optimizer ("optimizer", "moments", "master_weights"). Numbers are written so that reading them
  /// back gives the exact value.
  std::map<std::string, std::string> state;
  std::map<std::string, std::string> values;   ///< CheckpointExtras::values
  std::map<std::string, std::uint64_t> files;  ///< the other files but provenance, with their sizes
  std::vector<ManifestTensor> tensors;         ///< weights come first
};

/// What the tensors of a checkpoint are needed for. Each content may be whole where another is
/// damaged.
enum class Content : std::uint8_t {
  weights,    ///< the parameters
  masters,    ///< the fp32 masters of 16-bit parameters, or the remainders that complete them
  optimizer,  ///< moments, and the scales of quantised ones
  buffers,    ///< the trainer's own
};
/// All contents.
inline constexpr std::array kContents = {Content::weights, Content::masters, Content::optimizer,
                                         Content::buffers};
/// Some contents.
using Contents = std::set<Content>;

/// Returns all contents.
[[nodiscard]] inline Contents every_content() {
  return {kContents.begin(), kContents.end()};
}
/// Returns the content that tensors of `role` belong to.
[[nodiscard]] Content content_of(std::string_view role) noexcept;
/// Returns "weights", "master weights", "optimizer state" or "buffers".
[[nodiscard]] std::string_view to_string(Content content) noexcept;

}  // namespace tessera
