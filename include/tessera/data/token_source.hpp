#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tessera {

/// A long sequence of tokens, read at any place.
///
/// Threads: `read` may be called from any thread.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// Number of tokens.
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// What errors call it: the path of a file.
  [[nodiscard]] virtual std::string name() const { return "data"; }
  /// Tokens [first, first + out.size()). ContractError if they are not all there; FormatError with
  /// path and offset if the disk fails or the data has changed.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
};

/// The bytes of a file, or of the text files of a folder one after the other in name order (byte
/// order of the file names; subfolders, hidden files, empty files, and fortune's `.dat` indexes and
/// `.u8` links are passed over), each byte a token; nothing of them is kept in memory. ConfigError
/// if there is nothing to read.
[[nodiscard]] std::shared_ptr<const TokenSource> open_bytes(const std::filesystem::path& path);

/// A file of little-endian uint16 tokens: raw, or with llm.c's header of 256 int32 (20240520, 1,
/// count). FormatError with path and offset if the size does not fit, ConfigError if there is
/// nothing to read.
[[nodiscard]] std::shared_ptr<const TokenSource> open_tokens(const std::filesystem::path& path);

/// Reads all of `source` once. ConfigError that names the first token that is not in [0, vocab)
/// and its place.
void check_tokens(const TokenSource& source, std::int64_t vocab);

}  // namespace tessera
