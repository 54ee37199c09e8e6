#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "checkpoint/checksum.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/provenance.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::test {

/// A whole checkpoint as two machines without a shared file system would save it: each has every
/// second chunk, and the first has all bytes outside of tensors.
class DividedCheckpoint {
 public:
  explicit DividedCheckpoint(const std::filesystem::path& whole) {
    const Manifest manifest = CheckpointReader{whole}.manifest();
    for (int p = 0; p < 2; ++p) { parts[part(p)] = {"one save", p, 2, {}, manifest}; }
    for (const auto& [name, bytes] : manifest.files) {
      bytes_[name] = bytes_of(whole / name);
      std::uint64_t data = bytes;
      for (const ManifestTensor& tensor : manifest.tensors) {
        if (tensor.file == name) { data = std::min(data, tensor.first_byte); }
      }
      parts[0].ranges.push_back({name, 0, data});
    }
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) { divide(t); }
    for (checkpoint::CheckpointPart& one : parts) {
      std::ranges::sort(one.ranges,
                        [](const checkpoint::PartRange& a, const checkpoint::PartRange& b) {
                          return std::tie(a.file, a.first_byte) < std::tie(b.file, b.first_byte);
                        });
    }
  }

  /// Writes part `p` into the folder of its machine's run.
  void write(int p, const std::filesystem::path& run) const {
    const checkpoint::CheckpointPart& one = parts[part(p)];
    const std::filesystem::path folder = run / checkpoint::part_name(one.manifest.step, p);
    std::filesystem::create_directories(folder);
    for (const auto& [name, all] : bytes_) {
      std::string held(all.size(), '\0');
      for (const checkpoint::PartRange& range : one.ranges) {
        if (range.file != name) { continue; }
        held.replace(range.first_byte, range.bytes, all, range.first_byte, range.bytes);
      }
      write_file(folder / name, held);
    }
    write_file(folder / checkpoint::kPartName, checkpoint::format_part(one));
    write_file(folder / checkpoint::kProvenanceName, "{}\n");
  }

  std::array<checkpoint::CheckpointPart, 2> parts;

 private:
  static std::size_t part(int p) { return static_cast<std::size_t>(p); }
  static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  static void write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream{path, std::ios::binary} << bytes;
  }
  void divide(std::size_t t) {
    const ManifestTensor tensor = parts[0].manifest.tensors[t];
    const std::string data = bytes_.at(tensor.file).substr(tensor.first_byte, tensor.bytes);
    std::array<checkpoint::TensorSums, 2> sums{
        checkpoint::TensorSums{tensor.bytes, tensor.chunk_bytes},
        checkpoint::TensorSums{tensor.bytes, tensor.chunk_bytes}};
    for (std::uint64_t at = 0; at < tensor.bytes; at += tensor.chunk_bytes) {
      const std::uint64_t bytes = std::min(tensor.chunk_bytes, tensor.bytes - at);
      const std::size_t p = (t + at / tensor.chunk_bytes) % 2;
      parts[p].ranges.push_back({tensor.file, tensor.first_byte + at, bytes});
      sums[p].add(at, std::as_bytes(std::span{data}).subspan(at, bytes));
    }
    for (std::size_t p = 0; p < 2; ++p) { parts[p].manifest.tensors[t].sums = sums[p].sums(); }
  }

  std::map<std::string, std::string> bytes_;  // by file
};

}  // namespace tessera::test
