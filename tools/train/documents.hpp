#pragma once

#include <string>

#include "tessera/data/documents.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The data of a run.
enum class DataOf : std::uint8_t { training, held_out };

/// The documents of the data, by --pack and --loss-mask, or --eval-pack and --eval-loss-mask. Opens
/// their files. ConfigError for options that do not go together or have no effect.
[[nodiscard]] Documents documents_of(const Settings& settings, DataOf data);

/// Whether --pack names a token, not a file.
[[nodiscard]] bool packs_by_token(const Settings& settings);

/// What separates documents, as an option that can be compared: the separator, "12 documents of
/// hash ...", or "not given".
[[nodiscard]] std::string pack_of(const Documents& documents);
/// The contents of the mask, which is read, or "not given".
[[nodiscard]] std::string mask_of(const Documents& documents);

}  // namespace tessera::tools
