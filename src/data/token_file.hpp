#pragma once

#include <cstdint>
#include <string>

#include "data/data_file.hpp"
#include "tessera/data/token_source.hpp"

namespace tessera::data {

enum class Signed : std::uint8_t { no, yes };

/// How the tokens of a file are stored, from `header_bytes` to its end.
struct TokenFileLayout {
  std::int64_t header_bytes = 0;
  std::int64_t token_bytes = 2;
  Signed has_sign = Signed::no;
};

/// Examines the start of a token file. For TokenFormat::detect it throws FormatError if a header
/// does not fit the file, and ConfigError if the start shows something else than tokens.
[[nodiscard]] TokenFileLayout token_file_layout(const DataFile& file, TokenFormat format);

/// The container that the start of `file` shows, such as "a gzip file"; empty if it shows none.
[[nodiscard]] std::string container_of(const DataFile& file);

}  // namespace tessera::data
