#pragma once

#include <cstdint>
#include <filesystem>

namespace tessera {

/// Whether a process still writes to the folder of a save. The answer holds for as long as this
/// object lives: it has the lock of a folder whose writer is dead.
class PartialFolder {
 public:
  enum class Writer : std::uint8_t {
    living,  ///< or not known: leave it alone
    dead,    ///< nobody writes to it
    none     ///< there is no claim: nobody has written to it, or somebody is about to
  };

  explicit PartialFolder(const std::filesystem::path& path);
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder();

  [[nodiscard]] Writer writer() const noexcept { return writer_; }
  /// Whether locks on it are seen here, or it is so old that nobody writes to it.
  [[nodiscard]] bool is_own_or_old() const noexcept { return own_ || old_; }

 private:
  bool own_;
  bool old_;
  int claim_;
  Writer writer_;
};

}  // namespace tessera
