#pragma once

#include <cstdint>
#include <filesystem>

namespace tessera::checkpoint {

/// Whether a process is still writing to the folder of a save. The answer holds as long as this
/// object lives: it holds the lock of a folder whose writer is dead.
class PartialFolder {
 public:
  enum class Writer : std::uint8_t {
    living,  ///< or unknown: leave it alone
    dead,    ///< no process writes to it
    none     ///< without a claim: no process has written to it, or one is about to
  };

  explicit PartialFolder(const std::filesystem::path& path);
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder();

  [[nodiscard]] Writer writer() const noexcept { return writer_; }
  /// Whether its locks are visible here, or it is so old that no process writes to it.
  [[nodiscard]] bool is_own_or_old() const noexcept { return own_ || old_; }

 private:
  bool own_;
  bool old_;
  int claim_;
  Writer writer_;
};

}  // namespace tessera::checkpoint
