#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/file_system.hpp"

namespace tessera::test {

/// Forwards to the system's files. Doubles override what they change.
class ForwardingFiles : public checkpoint::FileSystem {
 public:
  [[nodiscard]] std::string machine() const override { return system_.machine(); }
  void make_folder(const std::filesystem::path& path) override { system_.make_folder(path); }
  std::unique_ptr<checkpoint::WritableFile> open(const std::filesystem::path& path,
                                                 std::uint64_t bytes) override {
    return system_.open(path, bytes);
  }
  std::unique_ptr<checkpoint::FileClaim> claim(const std::filesystem::path& path) override {
    return system_.claim(path);
  }
  bool link(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return system_.link(from, to);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    system_.rename(from, to);
  }
  void flush_folder(const std::filesystem::path& path) override { system_.flush_folder(path); }
  bool remove_empty(const std::filesystem::path& path) override {
    return system_.remove_empty(path);
  }
  void remove_all(const std::filesystem::path& path) override { system_.remove_all(path); }
  std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder) override {
    return system_.free_bytes(folder);
  }

 protected:
  checkpoint::FileSystem& system_ = checkpoint::system_files();
};

/// The system's files, under the name of one of several machines.
class FilesOf : public ForwardingFiles {
 public:
  explicit FilesOf(int machine) : name_{"machine" + std::to_string(machine)} {}
  [[nodiscard]] std::string machine() const override { return name_; }

 private:
  std::string name_;
};

}  // namespace tessera::test
