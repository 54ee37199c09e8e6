#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/store.hpp"
#include "support/small_checkpoint.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::test {

/// A checkpoint of a few tensors, written as by two ranks; the step determines its bytes.
class SavedCheckpoint {
 public:
  static constexpr std::uint64_t kChunk = 256;
  static constexpr std::size_t kElems = 200;

  explicit SavedCheckpoint(std::int64_t step, std::uint64_t shard_bytes = std::uint64_t{1} << 30)
      : step_{step},
        layout_{{{"model", {tensor("a"), tensor("b")}}, {"optimizer", {tensor("a.moment_0")}}},
                shard_bytes} {}

  /// Writes and flushes the files to `folder`: each rank a half of every tensor.
  void write_files(checkpoint::FileSystem& files, const std::filesystem::path& folder) const {
    for (std::size_t file = 0; file < layout_.files().size(); ++file) {
      write_file(files, folder, file);
    }
    for (const auto& index : layout_.indices()) {
      const auto out = files.open(folder / index.name, index.text.size());
      out->write_at(0, bytes_of(index.text));
      out->flush();
    }
  }

  [[nodiscard]] Manifest manifest() const {
    Manifest manifest;
    manifest.step = step_;
    manifest.state = counters_after(step_);
    for (const auto& file : layout_.files()) { manifest.files[file.name] = file.bytes; }
    for (const auto& index : layout_.indices()) { manifest.files[index.name] = index.text.size(); }
    for (std::size_t i = 0; i < layout_.tensors().size(); ++i) {
      manifest.tensors.push_back(listed(i));
    }
    return manifest;
  }

  /// Throws unless the checkpoint in `folder` is whole and of this step.
  void check(const std::filesystem::path& folder) const {
    CheckpointReader reader{folder};
    reader.verify();
    for (const auto& listed : reader.manifest().tensors) {
      std::vector<std::byte> found(listed.bytes);
      reader.read_bytes(listed, 0, found);
      if (found != data_of(listed.name)) {
        throw std::runtime_error(folder.string() + ": " + listed.name + " is of another step");
      }
    }
    if (reader.manifest().step != step_ || reader.manifest().tensors.size() != 3) {
      throw std::runtime_error(folder.string() + ": another manifest");
    }
  }

  [[nodiscard]] const checkpoint::CheckpointLayout& layout() const noexcept { return layout_; }

  [[nodiscard]] std::vector<std::byte> data_of(std::string_view name) const {
    std::vector<std::byte> data(kElems * sizeof(float));
    auto value = static_cast<std::uint64_t>(step_) * 1000003 + name.size() * 101;
    for (std::byte& byte : data) {
      value = value * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(value >> 56U);
    }
    return data;
  }

 private:
  static checkpoint::CheckpointTensor tensor(const char* name) {
    return {name, "F32", {static_cast<std::int64_t>(kElems)}, kChunk};
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
  }

  void write_file(checkpoint::FileSystem& files, const std::filesystem::path& folder,
                  std::size_t file) const {
    const checkpoint::CheckpointFile& listed = layout_.files()[file];
    for (const std::size_t rank : {0U, 1U}) {
      const auto out = files.open(folder / listed.name, listed.bytes);
      if (rank == 0) { out->write_at(0, bytes_of(listed.header)); }
      for (std::size_t i = 0; i < layout_.tensors().size(); ++i) {
        const checkpoint::TensorPlace& place = layout_.places()[i];
        if (place.file != file) { continue; }
        const std::vector<std::byte> data = data_of(layout_.tensors()[i].name);
        const std::span half =
            rank == 0 ? std::span{data}.first(kChunk) : std::span{data}.subspan(kChunk);
        out->write_at(place.first_byte + rank * kChunk, half);
      }
      out->flush();
    }
  }

  [[nodiscard]] ManifestTensor listed(std::size_t index) const {
    const checkpoint::CheckpointTensor& tensor = layout_.tensors()[index];
    const checkpoint::TensorPlace& place = layout_.places()[index];
    checkpoint::TensorSums sums{place.bytes, kChunk};
    sums.add(0, data_of(tensor.name));
    const bool is_weight = tensor.name.find('.') == std::string::npos;
    return {tensor.name, is_weight ? "weight" : "moment",  tensor.dtype,     tensor.shape,
            kChunk,      layout_.files()[place.file].name, place.first_byte, place.bytes,
            sums.sums()};
  }

  std::int64_t step_;
  checkpoint::CheckpointLayout layout_;
};

/// Saves the checkpoint in its step's folder.
inline checkpoint::CheckpointStore::Committed save(checkpoint::CheckpointStore& store,
                                                   checkpoint::FileSystem& files,
                                                   const SavedCheckpoint& checkpoint) {
  const Manifest manifest = checkpoint.manifest();
  const std::filesystem::path partial = store.begin(manifest.step);
  checkpoint.write_files(files, partial);
  return store.commit(partial, manifest, "{}\n");
}

inline checkpoint::CheckpointStore::Committed save_step(checkpoint::CheckpointStore& store,
                                                        checkpoint::FileSystem& files,
                                                        std::int64_t step) {
  return save(store, files, SavedCheckpoint{step});
}

}  // namespace tessera::test
