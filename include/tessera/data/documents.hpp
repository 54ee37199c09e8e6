#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/token_source.hpp"

namespace tessera {

/// The documents of a source, if its sequences are packed with several of them, and the tokens that
/// a loss counts. By default the source is one document, and all tokens count.
struct Documents {
  /// The token that ends each document.
  std::optional<std::int32_t> separator = {};
  /// Instead of a separator: the position of each document's first token, ascending from 0. The
  /// number of tokens may follow as the last.
  std::shared_ptr<const std::vector<std::int64_t>> starts = {};
  /// 1 for each token of the source that a loss counts as a target, 0 for the others. Null: it
  /// counts all but the first of a document, which nothing predicts.
  std::shared_ptr<const TokenSource> mask = {};

  /// Whether sequences are packed.
  [[nodiscard]] bool packed() const noexcept { return separator.has_value() || starts != nullptr; }
  /// Whether some tokens are no targets.
  [[nodiscard]] bool masked() const noexcept { return packed() || mask != nullptr; }

  /// Writes where documents begin in the sequence of the source's tokens [first, first +
  /// targets.size()): for each token the place of the first token of its document in the sequence.
  /// `tokens` are these and the one after them. Writes kIgnoredTarget over the `targets` (tokens[1]
  /// and so on) that do not count. `first_keys` may be empty, if the source is not packed. Throws
  /// as TokenSource::read does.
  void divide(std::int64_t first, std::span<const std::int32_t> tokens,
              std::span<std::int32_t> targets, std::span<std::int32_t> first_keys) const;
};

/// Reads Documents::starts: a NumPy array of integers (.npy, one dimension). It is kept in memory,
/// 8 bytes a document. Throws ConfigError or FormatError with the path for a file that holds
/// something else, and for positions that do not begin with 0 or do not ascend.
[[nodiscard]] std::shared_ptr<const std::vector<std::int64_t>> read_document_starts(
    const std::filesystem::path& path);

/// Reads all of the mask, and of `source` as much as it takes. Throws ConfigError that says what is
/// wrong with `documents`: a separator that no token is, a position beyond the source, a mask of
/// another size or with other values than 0 and 1, and a source without a token that counts.
void check_documents(const TokenSource& source, const Documents& documents);

}  // namespace tessera
