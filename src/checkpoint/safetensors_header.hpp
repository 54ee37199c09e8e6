#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {

/// The file starts with the length of the JSON header as a little-endian uint64.
inline constexpr std::uint64_t kLengthBytes = 8;
/// The format's own limit, so that a damaged length is not taken for a request for memory.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

using SafetensorsEntries = std::map<std::string, SafetensorsReader::Entry>;

/// The tensors that the JSON text `header` declares in a file of `file_bytes`, in which it stands
/// right behind the length. FormatError, with `path` and offset, unless the tensors fill the rest
/// of the file without gap or overlap and each has the size that its shape and dtype say.
[[nodiscard]] SafetensorsEntries parse_header(const std::string& path, std::string_view header,
                                              std::uint64_t file_bytes);

/// Length and JSON text that declare `tensors` as fp32, one after the other, padded with blanks so
/// that the data starts on a multiple of 8 bytes. ContractError if a name is empty, repeated,
/// reserved or not UTF-8.
[[nodiscard]] std::string format_header(std::span<const SafetensorsWriter::Declared> tensors);

}  // namespace tessera
