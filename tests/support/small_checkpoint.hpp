#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"

namespace tessera::test {

/// A tensor of a checkpoint that a test writes.
struct StateTensor {
  std::string set;
  std::string name;
  std::string role;
  std::string dtype;
  Shape shape;
  std::uint64_t chunk_bytes = 0;
  std::string data = {};
};

template <class Value>
std::string bytes_of_values(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  if (!values.empty()) { std::memcpy(bytes.data(), values.data(), bytes.size()); }
  return bytes;
}

/// One of everything that a checkpoint holds: bf16 weights with remainders, quantised moments, a
/// frozen fp32 parameter, a scalar, a tensor of no elements, and a buffer. In two files with an
/// index if `shard_bytes` is less than 100.
inline std::vector<StateTensor> small_state() {
  const auto data = [](std::size_t bytes, unsigned seed) {
    std::string all(bytes, '\0');
    for (char& c : all) {
      seed = seed * 1'664'525U + 1'013'904'223U;
      c = static_cast<char>(seed >> 24U);
    }
    return all;
  };
  return {
      {"model", "h.weight", "weight", "BF16", {5, 7}, 128, data(70, 1)},
      {"model", "frozen", "weight", "F32", {3}, 256, data(12, 2)},
      {"model", "empty", "weight", "F32", {0, 4}, 256, ""},
      {"model", "scale", "weight", "BF16", {}, 128, data(2, 3)},
      {"optimizer", "h.weight.remainder", "remainder", "U16", {5, 7}, 128, data(70, 4)},
      {"optimizer", "h.weight.moment_0", "moment", "U8", {5, 7}, 64, data(35, 5)},
      {"optimizer", "h.weight.moment_0.scales", "scales", "F32", {1}, 4, data(4, 6)},
      {"extras", "running", "extra", "F32", {2, 2}, 256, data(16, 7)},
  };
}

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream{path, std::ios::binary}.write(bytes.data(),
                                              static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The layout of `tensors`, one set after the other.
inline checkpoint::CheckpointLayout layout_of(const std::vector<StateTensor>& tensors,
                                              std::uint64_t shard_bytes) {
  std::vector<checkpoint::CheckpointLayout::Set> sets;
  for (const StateTensor& tensor : tensors) {
    if (sets.empty() || sets.back().name != tensor.set) { sets.push_back({tensor.set, {}}); }
    sets.back().tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.chunk_bytes});
  }
  return {std::move(sets), shard_bytes};
}

/// Manifest::state after `steps` steps.
inline std::map<std::string, std::string> counters_after(std::int64_t steps) {
  return {{"steps", std::to_string(steps)},
          {"updates", std::to_string(steps)},
          {"loss_scale", "1"},
          {"good_steps", "0"},
          {"skipped_in_a_row", "0"},
          {"skipped", "0"}};
}

inline Manifest manifest_of(const std::vector<StateTensor>& tensors,
                            const checkpoint::CheckpointLayout& layout) {
  Manifest manifest;
  manifest.step = 12;
  manifest.state = counters_after(12);
  manifest.state["loss_scale"] = "65536";
  manifest.values = {{"data_position", "4096"}, {"note", "\"quoted\"\n\xC3\xA4"}};
  for (const checkpoint::CheckpointFile& file : layout.files()) {
    manifest.files[file.name] = file.bytes;
  }
  for (const auto& index : layout.indices()) { manifest.files[index.name] = index.text.size(); }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const StateTensor& tensor = tensors[t];
    const checkpoint::TensorPlace& place = layout.places()[t];
    checkpoint::TensorSums sums{place.bytes, tensor.chunk_bytes};
    sums.add(0, std::as_bytes(std::span{tensor.data}));
    manifest.tensors.push_back({tensor.name, tensor.role, tensor.dtype, tensor.shape,
                                tensor.chunk_bytes, layout.files()[place.file].name,
                                place.first_byte, place.bytes, sums.sums()});
  }
  return manifest;
}

/// Writes a checkpoint of `tensors` into the folder of its step.
inline Manifest write_checkpoint(const std::filesystem::path& folder,
                                 const std::vector<StateTensor>& tensors = small_state(),
                                 std::uint64_t shard_bytes = 1'000) {
  std::filesystem::create_directories(folder);
  const checkpoint::CheckpointLayout layout = layout_of(tensors, shard_bytes);
  std::map<std::string, std::string> files;
  for (const checkpoint::CheckpointFile& file : layout.files()) {
    files[file.name] = file.header;
    files[file.name].resize(file.bytes);
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const checkpoint::TensorPlace& place = layout.places()[t];
    files[layout.files()[place.file].name].replace(place.first_byte, place.bytes, tensors[t].data);
  }
  for (const auto& index : layout.indices()) { files[index.name] = index.text; }
  Manifest manifest = manifest_of(tensors, layout);
  for (const auto& [name, bytes] : files) { write_bytes(folder / name, bytes); }
  write_bytes(folder / checkpoint::kManifestName, checkpoint::format_manifest(manifest));
  write_bytes(folder / checkpoint::kProvenanceName, R"({"ranks": 4, "strategy": "zero3"})");
  return manifest;
}

}  // namespace tessera::test
