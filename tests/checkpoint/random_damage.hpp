#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/random_job.hpp"
#include "checkpoint/toy_job.hpp"

namespace tessera::test {

/// Damages one checkpoint in a random way.
class RandomDamage {
 public:
  /// `stale`: a checkpoint of the same run after another step, from which files are taken.
  RandomDamage(Draws& draws, std::filesystem::path checkpoint, std::filesystem::path stale)
      : draws_{draws}, checkpoint_{std::move(checkpoint)}, stale_{std::move(stale)} {}

  /// Returns what it has done, and to which file.
  std::string act() {
    const std::filesystem::path file = any_file();
    switch (draws_.below(12)) {
      case 0:
        return "removed " + remove(file);
      case 1:
        return "emptied " + write(file, "");
      case 2:
        return "lengthened " + write(file, bytes_of_file(file) + std::string(1 + below(9), '!'));
      case 3:
        return "cut " + write(file, bytes_of_file(file).substr(0, below(size_of(file))));
      case 4:
        return "made a folder of " + make_folder(file);
      case 5:
        return "swapped with another: " + swap(file);
      case 6:
        return "took from another step: " + take_stale(file);
      case 7:
        return "added " + write(checkpoint_ / draws_.of(strays()), "a stray file");
      case 8:
        return "renamed to another step";
      case 9:
        return "overwrote a run of " + overwrite(file, 1 + below(5000));
      default:
        return "flipped a bit of " + flip(file);
    }
  }

 private:
  [[nodiscard]] std::size_t below(std::size_t count) {
    return count == 0 ? 0 : static_cast<std::size_t>(draws_.below(static_cast<int>(count)));
  }
  [[nodiscard]] static std::size_t size_of(const std::filesystem::path& file) {
    return std::filesystem::file_size(file);
  }
  [[nodiscard]] static std::vector<std::string> strays() {
    return {"part.json", "model.safetensors.tmp", "x", "manifest.json.new", ".step-1.partial"};
  }
  [[nodiscard]] std::filesystem::path any_file() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{checkpoint_}) {
      files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files[below(files.size())];
  }

  static std::string write(const std::filesystem::path& file, const std::string& bytes) {
    std::ofstream{file, std::ios::binary} << bytes;
    return file.filename().string();
  }
  static std::string remove(const std::filesystem::path& file) {
    std::filesystem::remove(file);
    return file.filename().string();
  }
  static std::string make_folder(const std::filesystem::path& file) {
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    return file.filename().string();
  }
  std::string swap(const std::filesystem::path& file) {
    const std::filesystem::path other = any_file();
    const std::string bytes = bytes_of_file(file);
    write(file, bytes_of_file(other));
    return write(other, bytes) + " and " + file.filename().string();
  }
  std::string take_stale(const std::filesystem::path& file) {
    return write(file, bytes_of_file(stale_ / file.filename()));
  }
  std::string overwrite(const std::filesystem::path& file, std::size_t count) {
    std::string bytes = bytes_of_file(file);
    const std::size_t first = below(bytes.size());
    for (std::size_t i = first; i < std::min(first + count, bytes.size()); ++i) {
      bytes[i] = draws_.one_in(2) ? '\0' : static_cast<char>(draws_.below(256));
    }
    return write(file, bytes);
  }
  std::string flip(const std::filesystem::path& file) {
    std::string bytes = bytes_of_file(file);
    if (bytes.empty()) { return file.filename().string(); }
    char& byte = bytes[below(bytes.size())];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << below(8)));
    return write(file, bytes);
  }

  Draws& draws_;
  std::filesystem::path checkpoint_;
  std::filesystem::path stale_;
};

}  // namespace tessera::test
