#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tessera {

/// A long sequence of tokens that can be read at any position.
///
/// Threads: `read` may be called from any thread.
class TokenSource {
 public:
  /// Destroys the source.
  virtual ~TokenSource() = default;
  /// Returns the number of tokens.
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// Returns the name of the source in errors: for a file, its path.
  [[nodiscard]] virtual std::string name() const { return "data"; }
  /// Writes tokens [first, first + out.size()) to `out`. Throws ContractError if the source does
  /// not have all of them, and FormatError with path and offset if the disk fails or the data has
  /// changed.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
};

/// Opens the bytes of a file, or of the text files of a folder one after the other in the byte
/// order of their names. Each byte is a token. Subfolders, hidden files, empty files, and files
/// that end in `.dat` or `.u8` (fortune's indexes and links) are skipped. The data is not kept in
/// memory. Throws ConfigError if a file cannot be opened or there is nothing to read.
[[nodiscard]] std::shared_ptr<const TokenSource> open_bytes(const std::filesystem::path& path);

/// Opens a file of little-endian uint16 tokens: raw, or with llm.c's header of 256 int32 (20240520,
/// 1, count). Throws FormatError with path and offset if the size or the header does not fit, and
/// ConfigError if there is nothing to read.
[[nodiscard]] std::shared_ptr<const TokenSource> open_tokens(const std::filesystem::path& path);

/// Reads all of `source` once. Throws ConfigError that names the first token outside [0, vocab) and
/// its position.
void check_tokens(const TokenSource& source, std::int64_t vocab);

}  // namespace tessera
