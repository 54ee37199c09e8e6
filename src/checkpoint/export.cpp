#include "tessera/checkpoint/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "base/overflow.hpp"
#include "checkpoint/file_values.hpp"
#include "checkpoint/layout.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/base/atomic_file.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

/// A remainder gives a whole master only together with the weight's bits.
void join(std::span<const std::byte> weight, std::span<const std::byte> remainder,
          std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t upper = 0;
    std::uint16_t lower = 0;
    std::memcpy(&upper, weight.data() + 2 * i, 2);
    std::memcpy(&lower, remainder.data() + 2 * i, 2);
    to[i] = kernels::join_master(upper, lower);
  }
}

/// Other weights beside the new ones would make the folder ambiguous.
void require_no_weights(const std::filesystem::path& folder) {
  for (const char* const name : {"model.safetensors", "model.safetensors.index.json"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / name, ignored)) {
      throw ConfigError(fmt::format("{} holds {} already; remove it or name another folder",
                                    folder.string(), name));
    }
  }
}

}  // namespace

/// Reads weights block by block, with a few buffers.
class WeightExport::Blocks {
 public:
  Blocks(const CheckpointReader& checkpoint, Progress progress)
      : checkpoint_{checkpoint}, progress_{std::move(progress)} {}

  /// Calls `visit` with the bytes of each block in the new dtype; once for an empty tensor.
  template <class Visit>
  void for_each_in_file(const Tensor& tensor, const Visit& visit) {
    if (tensor.from->sums.empty()) { visit(std::span<const std::byte>{}); }
    for (std::size_t block = 0; block < tensor.from->sums.size(); ++block) {
      const auto bytes = read(*tensor.from, block, bytes_);
      if (tensor.copies()) {
        visit(bytes);
      } else {
        checkpoint::narrow_values(*checkpoint::dtype_named(tensor.dtype),
                                  values_of(tensor, block, bytes), converted_);
        visit(std::span<const std::byte>{converted_});
      }
      if (progress_) { progress_(bytes.size()); }
    }
  }

  /// The finite values of a tensor that its new dtype cannot hold.
  [[nodiscard]] Overflows overflows_of(const Tensor& tensor) {
    Overflows beyond;
    std::int64_t at = 0;
    for (std::size_t block = 0; block < tensor.from->sums.size(); ++block) {
      const auto values = values_of(tensor, block, read(*tensor.from, block, bytes_));
      beyond.add(values, *checkpoint::dtype_named(tensor.dtype), at);
      at += std::ssize(values);
    }
    return beyond;
  }

 private:
  std::span<const std::byte> read(const ManifestTensor& tensor, std::size_t block,
                                  std::vector<std::byte>& buffer) const {
    buffer.resize(std::max<std::uint64_t>(buffer.size(),
                                          std::min(CheckpointReader::kBlockBytes, tensor.bytes)));
    return checkpoint_.read_block(tensor, block, buffer);
  }

  std::span<const float> values_of(const Tensor& tensor, std::size_t block,
                                   std::span<const std::byte> bytes) {
    values_.resize(bytes.size() / (tensor.from->dtype == "F32" ? 4 : 2));
    if (tensor.remainder == nullptr) {
      checkpoint::widen_values(*checkpoint::dtype_named(tensor.from->dtype), bytes, values_);
    } else {
      join(bytes, read(*tensor.remainder, block, remainders_), values_);
    }
    return values_;
  }

  const CheckpointReader& checkpoint_;
  Progress progress_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> remainders_;
  std::vector<float> values_;
  std::vector<std::byte> converted_;
};

WeightExport::WeightExport(const CheckpointReader& checkpoint, const ExportOptions& options)
    : checkpoint_{checkpoint}, shard_bytes_{options.shard_bytes} {
  expects(options.dtype.empty() || checkpoint::dtype_named(options.dtype),
          "WeightExport: `dtype` is F32, BF16 or F16, or empty");
  expects(shard_bytes_ > 0, "WeightExport: `shard_bytes` is at least 1");
  checkpoint.check_files(options.masters ? Contents{Content::weights, Content::masters}
                                         : Contents{Content::weights});
  for (const ManifestTensor& tensor : checkpoint.manifest().tensors) {
    if (tensor.role == "weight") { tensors_.push_back(exported(tensor, options)); }
  }
}

WeightExport::Tensor WeightExport::exported(const ManifestTensor& weight,
                                            const ExportOptions& options) const {
  Tensor tensor{weight.name, &weight, nullptr, options.dtype};
  if (options.masters) {
    if (const auto* master = checkpoint_.find(weight.name + ".master", "master")) {
      tensor.from = master;
    } else {
      tensor.remainder = checkpoint_.find(weight.name + ".remainder", "remainder");
    }
    if (tensor.dtype.empty()) { tensor.dtype = "F32"; }
  }
  if (tensor.dtype.empty()) { tensor.dtype = weight.dtype; }
  if (!checkpoint::dtype_named(tensor.from->dtype) && tensor.dtype != tensor.from->dtype) {
    throw ConfigError(fmt::format("weight '{}' is {}, which cannot be converted",
                                  shown(weight.name), shown(weight.dtype)));
  }
  return tensor;
}

std::uint64_t WeightExport::bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) { bytes += tensor.from->bytes; }
  return bytes;
}

void WeightExport::find_infinities(
    const std::function<void(const std::string& which)>& found) const {
  Blocks blocks{checkpoint_, {}};
  for (const Tensor& tensor : tensors_) {
    if (!tensor.narrows()) { continue; }
    const Overflows beyond = blocks.overflows_of(tensor);
    if (beyond.count == 0) { continue; }
    found(fmt::format("weight '{}': {}", shown(tensor.name),
                      beyond.text(*checkpoint::dtype_named(tensor.dtype))));
  }
}

WeightExport::Written WeightExport::to_file(const std::filesystem::path& path,
                                            const Progress& progress) const {
  return write(UINT64_MAX, progress, [&](const std::string& /*name*/) { return path; });
}

WeightExport::Written WeightExport::to_folder(const std::filesystem::path& path,
                                              const Progress& progress) const {
  require_no_weights(path);
  return write(shard_bytes_, progress, [&](const std::string& name) { return path / name; });
}

WeightExport::Written WeightExport::write(
    std::uint64_t shard_bytes, const Progress& progress,
    const std::function<std::filesystem::path(const std::string& name)>& path_of) const {
  checkpoint::CheckpointLayout::Set set{"model", {}};
  for (const Tensor& tensor : tensors_) {
    set.tensors.push_back({tensor.name, tensor.dtype, tensor.from->shape, 1});
  }
  const checkpoint::CheckpointLayout layout{{std::move(set)}, shard_bytes};

  Written written{.files = layout.files().size()};
  Blocks blocks{checkpoint_, progress};
  for (std::size_t file = 0; file < layout.files().size(); ++file) {
    std::vector<std::size_t> order;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      if (layout.places()[t].file == file) { order.push_back(t); }
    }
    std::ranges::sort(order, {}, [&](std::size_t t) {
      return std::pair{layout.places()[t].first_byte, layout.places()[t].bytes};
    });
    std::vector<SafetensorsWriter::Declared> declared;
    for (const std::size_t t : order) {
      declared.push_back({tensors_[t].name, tensors_[t].from->shape, tensors_[t].dtype});
    }
    SafetensorsWriter writer{path_of(layout.files()[file].name), std::move(declared)};
    for (const std::size_t t : order) {
      blocks.for_each_in_file(tensors_[t], [&](std::span<const std::byte> bytes) {
        writer.write_bytes(tensors_[t].name, bytes);
      });
    }
    writer.finish();
    written.bytes += layout.files()[file].bytes;
  }
  for (const auto& index : layout.indices()) {  // last: the index makes the files one model
    AtomicFile file{path_of(index.name)};
    file.write(std::as_bytes(std::span{index.text}));
    file.finish();
  }
  return written;
}

}  // namespace tessera
