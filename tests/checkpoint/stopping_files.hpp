#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/forwarding_files.hpp"

namespace tessera::test {

/// The system's files until call number `stop`: that call and every later one ends as `end` says
/// (throws, or kills the process). Call `stop` first has none, half or all of its effect. Flushes
/// nothing: what a killed process wrote stays.
class StoppingFiles final : public ForwardingFiles {
 public:
  enum class Effect { none, half, whole };
  using End = std::function<void(const std::filesystem::path& path)>;
  static constexpr int kNever = std::numeric_limits<int>::max();

  StoppingFiles(int stop, Effect effect, End end)
      : stop_{stop}, effect_{effect}, end_{std::move(end)} {}

  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// Lets all later calls succeed.
  void go_on() noexcept { stop_ = kNever; }

  void make_folder(const std::filesystem::path& path) override {
    call(path, [&] { system_.make_folder(path); });
  }
  std::unique_ptr<checkpoint::WritableFile> open(const std::filesystem::path& path,
                                                 std::uint64_t bytes) override {
    std::unique_ptr<checkpoint::WritableFile> file;
    call(path, [&] { file = system_.open(path, bytes); });
    return std::make_unique<File>(*this, path, std::move(file));
  }
  std::unique_ptr<checkpoint::FileClaim> claim(const std::filesystem::path& path) override {
    std::unique_ptr<checkpoint::FileClaim> claim;
    call(path, [&] { claim = system_.claim(path); });
    return claim;
  }
  bool link(const std::filesystem::path& from, const std::filesystem::path& to) override {
    bool linked = false;
    call(to, [&] { linked = system_.link(from, to); });
    return linked;
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    call(to, [&] { system_.rename(from, to); });
  }
  void flush_folder(const std::filesystem::path& path) override {
    call(path, [] {});
  }
  bool remove_empty(const std::filesystem::path& path) override {
    bool removed = false;
    call(path, [&] { removed = system_.remove_empty(path); });
    return removed;
  }
  void remove_all(const std::filesystem::path& path) override {
    call(path, [&] { system_.remove_all(path); }, [&] { remove_half(path); });
  }

 private:
  class File final : public checkpoint::WritableFile {
   public:
    File(StoppingFiles& files, std::filesystem::path path,
         std::unique_ptr<checkpoint::WritableFile> file)
        : files_{files}, path_{std::move(path)}, file_{std::move(file)} {}
    void write_at(std::uint64_t first, std::span<const std::byte> bytes) override {
      files_.call(
          path_, [&] { file_->write_at(first, bytes); },
          [&] { file_->write_at(first, bytes.first(bytes.size() / 2)); });
    }
    void flush() override {
      files_.call(path_, [] {});
    }

   private:
    StoppingFiles& files_;
    std::filesystem::path path_;
    std::unique_ptr<checkpoint::WritableFile> file_;
  };

  void call(const std::filesystem::path& path, const std::function<void()>& whole,
            const std::function<void()>& half = {}) {
    ++calls_;
    if (calls_ < stop_) { return whole(); }
    if (calls_ == stop_ && effect_ == Effect::whole) { whole(); }
    if (calls_ == stop_ && effect_ == Effect::half && half) { half(); }
    end_(path);
  }

  static void remove_half(const std::filesystem::path& folder) {
    if (!std::filesystem::is_directory(folder)) { return; }
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (std::size_t i = 0; i < paths.size(); i += 2) { std::filesystem::remove_all(paths[i]); }
  }

  int stop_;
  Effect effect_;
  End end_;
  int calls_ = 0;
};

}  // namespace tessera::test
