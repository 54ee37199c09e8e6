#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/overflow.hpp"
#include "checkpoint/layout.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/checkpoint/tensor_blocks.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

// A tensor to write, and its source.
struct Exported {
  std::string name;
  const ManifestTensor* weight = nullptr;
  const ManifestTensor* remainder = nullptr;  // of the weight's master
  std::string dtype;                          // in the new file
};

bool has_masters(const Manifest& manifest) {
  const auto& tensors = manifest.tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const ManifestTensor& tensor) {
    return tensor.role == "master" || tensor.role == "remainder" ||
           (tensor.role == "weight" && tensor.dtype == "F32");
  });
}

Exported exported(const CheckpointReader& reader, const ManifestTensor& weight,
                  const CheckpointSettings& settings) {
  Exported tensor{weight.name, &weight, nullptr, settings.dtype};
  if (settings.masters) {
    if (const auto* master = reader.find(weight.name + ".master", "master")) {
      tensor.weight = master;
    } else {
      tensor.remainder = reader.find(weight.name + ".remainder", "remainder");
    }
    if (tensor.dtype.empty()) { tensor.dtype = "F32"; }
  }
  if (tensor.dtype.empty()) { tensor.dtype = weight.dtype; }
  if (!is_float(tensor.weight->dtype) && tensor.dtype != tensor.weight->dtype) {
    throw ConfigError(fmt::format("--dtype: weight '{}' is {}, which cannot be converted",
                                  shown(weight.name), shown(weight.dtype)));
  }
  return tensor;
}

std::vector<Exported> all_exported(const CheckpointReader& reader,
                                   const CheckpointSettings& settings) {
  if (settings.masters && !has_masters(reader.manifest())) {
    throw ConfigError(
        fmt::format("--masters: {} has no master weights, since its weights were trained as they "
                    "are; leave the option out",
                    reader.folder().string()));
  }
  std::vector<Exported> all;
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    if (tensor.role == "weight") { all.push_back(exported(reader, tensor, settings)); }
  }
  return all;
}

// A remainder gives a whole master only together with the weight's bits.
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

DType file_dtype(const std::string& name) {
  if (name == "BF16") { return DType::bf16; }
  return name == "F16" ? DType::fp16 : DType::fp32;
}

bool narrows(const Exported& tensor) {
  const bool wide = tensor.remainder != nullptr || tensor.weight->dtype != tensor.dtype;
  return wide && file_dtype(tensor.dtype) != DType::fp32;
}

// Writes tensors of a checkpoint to files, reusing a few buffers.
class Exporter {
 public:
  Exporter(CheckpointReader& reader, std::uint64_t bytes)
      : reader_{reader}, progress_{stdout, "export ", bytes} {}

  void write(SafetensorsWriter& writer, const Exported& tensor) {
    TensorBlocks blocks{reader_, *tensor.weight};
    if (blocks.count() == 0) { writer.write_bytes(tensor.name, {}); }
    for (std::size_t block = 0; block < blocks.count(); ++block) {
      const std::span<const std::byte> bytes = blocks.at(block);
      if (tensor.remainder == nullptr && tensor.dtype == tensor.weight->dtype) {
        writer.write_bytes(tensor.name, bytes);
      } else {
        from_floats(tensor.dtype, values_of(tensor, block, bytes), converted_);
        writer.write_bytes(tensor.name, converted_);
      }
      progress_.add(bytes.size());
    }
  }

  /// The finite values of a tensor that its new dtype cannot hold.
  [[nodiscard]] Overflows overflows_of(const Exported& tensor) {
    Overflows beyond;
    TensorBlocks blocks{reader_, *tensor.weight};
    std::int64_t at = 0;
    for (std::size_t block = 0; block < blocks.count(); ++block) {
      const std::span<const float> values = values_of(tensor, block, blocks.at(block));
      beyond.add(values, file_dtype(tensor.dtype), at);
      at += std::ssize(values);
    }
    return beyond;
  }

 private:
  std::span<const float> values_of(const Exported& tensor, std::size_t block,
                                   std::span<const std::byte> bytes) {
    values_.resize(bytes.size() / (tensor.weight->dtype == "F32" ? 4 : 2));
    if (tensor.remainder == nullptr) {
      to_floats(tensor.weight->dtype, bytes, values_);
    } else {
      TensorBlocks remainders{reader_, *tensor.remainder};
      join(bytes, remainders.at(block), values_);
    }
    return values_;
  }

  CheckpointReader& reader_;
  ByteProgress progress_;
  std::vector<float> values_;
  std::vector<std::byte> converted_;
};

CheckpointLayout layout_of(const std::vector<Exported>& tensors, std::uint64_t shard_bytes) {
  CheckpointLayout::Set set{"model", {}};
  for (const Exported& tensor : tensors) {
    set.tensors.push_back({tensor.name, tensor.dtype, tensor.weight->shape, 1});
  }
  return {{std::move(set)}, shard_bytes};
}

void write_file(const fs::path& path, std::size_t file, const CheckpointLayout& layout,
                const std::vector<Exported>& tensors, Exporter& exporter) {
  std::vector<std::size_t> order;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (layout.places()[t].file == file) { order.push_back(t); }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const TensorPlace& of_a = layout.places()[a];
    const TensorPlace& of_b = layout.places()[b];
    return std::pair{of_a.first_byte, of_a.bytes} < std::pair{of_b.first_byte, of_b.bytes};
  });
  std::vector<SafetensorsWriter::Declared> declared;
  for (const std::size_t t : order) {
    declared.push_back({tensors[t].name, tensors[t].weight->shape, tensors[t].dtype});
  }
  SafetensorsWriter writer{path, std::move(declared)};
  for (const std::size_t t : order) { exporter.write(writer, tensors[t]); }
  writer.finish();
}

// Reads everything once more, before anything is written.
void require_range(const std::vector<Exported>& tensors, CheckpointReader& reader,
                   const CheckpointSettings& settings) {
  std::uint64_t bytes = 0;
  for (const Exported& tensor : tensors) { bytes += narrows(tensor) ? tensor.weight->bytes : 0; }
  if (bytes == 0) { return; }
  Exporter exporter{reader, bytes};
  for (const Exported& tensor : tensors) {
    if (!narrows(tensor)) { continue; }
    const Overflows beyond = exporter.overflows_of(tensor);
    if (beyond.count == 0) { continue; }
    const std::string found =
        fmt::format("weight '{}': {}", shown(tensor.name), beyond.text(file_dtype(tensor.dtype)));
    if (!settings.allows_infinities) {
      throw ConfigError(
          fmt::format("--dtype: {}, and would be infinite; use {}, or --allow-infinities to write "
                      "them so",
                      found, settings.dtype == "BF16" ? "fp32" : "bf16 or fp32"));
    }
    tell(fmt::format("warning: --dtype: {}, and are written as infinities\n", found));
  }
}

// Other weights beside the new ones would make the folder ambiguous.
void prepare_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    throw ConfigError(
        fmt::format("--to: cannot make the folder {}: {}", folder.string(), failed.message()));
  }
  for (const char* const name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(folder / name, failed)) {
      throw ConfigError(fmt::format("--to: {} holds {} already; remove it or name another folder",
                                    folder.string(), name));
    }
  }
}

}  // namespace

void export_checkpoint(const CheckpointSettings& settings) {
  // Damage to other files does not prevent an export.
  Contents contents{Content::weights};
  if (settings.masters) { contents.insert(Content::masters); }
  CheckpointReader reader{checkpoint_at(settings.paths.front(), LoadOptions::What::weights),
                          contents};
  const std::vector<Exported> tensors = all_exported(reader, settings);
  const bool to_file = settings.to.ends_with(".safetensors");
  const std::uint64_t asked = settings.shard_bytes == 0 ? kDefaultShardBytes : settings.shard_bytes;
  const CheckpointLayout layout = layout_of(tensors, to_file ? UINT64_MAX : asked);
  require_range(tensors, reader, settings);
  if (!to_file) { prepare_folder(settings.to); }

  std::uint64_t bytes = 0;
  for (const Exported& tensor : tensors) { bytes += tensor.weight->bytes; }
  std::uint64_t written = 0;
  {
    Exporter exporter{reader, bytes};
    for (std::size_t file = 0; file < layout.files().size(); ++file) {
      const fs::path path =
          to_file ? fs::path{settings.to} : fs::path{settings.to} / layout.files()[file].name;
      write_file(path, file, layout, tensors, exporter);
      written += layout.files()[file].bytes;
    }
  }
  for (const auto& index : layout.indices()) {  // last: the index makes the files one model
    write_output(fs::path{settings.to} / index.name, index.text);
  }
  fmt::print("{} weights of step {} written to {} ({} in {} file{})\n", tensors.size(),
             reader.manifest().step, settings.to, format_bytes(written), layout.files().size(),
             layout.files().size() == 1 ? "" : "s");
}

}  // namespace tessera::tools
