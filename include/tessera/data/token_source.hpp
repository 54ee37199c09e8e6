#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

/// Returns the names of the entries of a folder that open_bytes skips although they are not hidden,
/// in byte order; none for a file.
[[nodiscard]] std::vector<std::string> skipped_by_open_bytes(const std::filesystem::path& path);

/// How a file stores its tokens, little-endian.
enum class TokenFormat : std::uint8_t {
  detect,  ///< After llm.c's header of 256 int32 (20240520, 1, count: uint16; 20240801, 7, count:
           ///< uint32), or NumPy's (.npy: one dimension, integers of 2, 4 or 8 bytes), else uint16
           ///< without a header. What shows something else is refused.
  uint16,  ///< uint16 from the first byte on, whatever the file looks like.
  uint32,  ///< uint32 from the first byte on, whatever the file looks like.
};

/// Opens a file of tokens. Throws ConfigError if there is nothing to read, and FormatError with
/// path and offset if the size or the header does not fit. With TokenFormat::detect it throws
/// ConfigError too if the first bytes show a container (zip, gzip, zstd, safetensors, Parquet,
/// Arrow, HDF5, pickle), text, or wider integers without a header. Reading a token below 0, or of
/// 2^31 or more, throws FormatError with its position and value.
[[nodiscard]] std::shared_ptr<const TokenSource> open_tokens(
    const std::filesystem::path& path, TokenFormat token_format = TokenFormat::detect);

/// Returns the container that the first bytes of a file show, such as "a gzip file"; empty for
/// folders and if they show none. open_bytes reads the bytes of a container as they are.
[[nodiscard]] std::string container_of_data(const std::filesystem::path& path);

/// Reads all of `source` once. Throws ConfigError that names the first token outside [0, vocab) and
/// its position.
void check_tokens(const TokenSource& source, std::int64_t vocab);

}  // namespace tessera
