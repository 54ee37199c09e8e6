#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/readable_file.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::checkpoint {

/// The file starts with the length of the JSON header as a little-endian uint64.
inline constexpr std::uint64_t kLengthBytes = 8;
/// The format's own limit, so that a damaged length does not cause a huge allocation.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

using SafetensorsEntries = std::map<std::string, SafetensorsReader::Entry>;

/// Bytes of an element of the dtype "F32", "BF16" and so on. Empty for unknown dtypes: such a
/// tensor may be in a file, but its size cannot be checked.
[[nodiscard]] std::optional<std::uint64_t> dtype_bytes(std::string_view dtype);

/// The JSON text of the header of a file of `file_bytes`, whose bytes `read` reads. Throws
/// FormatError with `path` if its length does not fit the file.
[[nodiscard]] std::string read_header(const std::string& path, std::uint64_t file_bytes,
                                      const ReadBytes& read);
[[nodiscard]] std::string read_header(const ReadableFile& file);

/// The tensors that the JSON text `header` declares in a file of `file_bytes`, where it follows the
/// length. Throws FormatError, with `path` and offset, unless the tensors fill the rest of the file
/// without gap or overlap and each has the size of its shape and dtype.
[[nodiscard]] SafetensorsEntries parse_header(const std::string& path, std::string_view header,
                                              std::uint64_t file_bytes);

/// A tensor to be declared in a header.
struct HeaderTensor {
  std::string_view name;
  std::string_view dtype;
  const Shape* shape = nullptr;
};

/// Length and JSON text that declare `tensors`, one after the other, padded with blanks so that the
/// data starts on a multiple of 8 bytes. Throws ContractError if a name is empty, repeated,
/// reserved or not UTF-8, a dtype is unknown, or the bytes exceed what a file or a header can have.
[[nodiscard]] std::string format_header(std::span<const HeaderTensor> tensors);

}  // namespace tessera::checkpoint
