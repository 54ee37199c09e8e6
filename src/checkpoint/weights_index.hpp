#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::checkpoint {

inline constexpr std::string_view kIndexEnd = ".safetensors.index.json";

/// The text of NAME.safetensors.index.json, as Hugging Face writes it: `files` are pairs of a
/// tensor's name and its file's name, `total_bytes` the size of all tensors. Throws ContractError
/// if a name is repeated or not UTF-8.
[[nodiscard]] std::string format_index(
    std::vector<std::pair<std::string_view, std::string_view>> files, std::uint64_t total_bytes);

/// The file names by tensor name that the text of an index declares. Throws FormatError, with
/// `path` and the place, for text that is not an index, a tensor that is listed twice, and file
/// names with a folder: an index never leads out of its folder.
[[nodiscard]] std::map<std::string, std::string> parse_index(const std::string& path,
                                                             std::string_view text);

/// Whether `name` is a plain file name: not empty, no folder, not hidden.
[[nodiscard]] bool is_plain_name(std::string_view name);

}  // namespace tessera::checkpoint
