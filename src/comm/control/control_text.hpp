#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/rank_names.hpp"

namespace tessera::comm {

/// Calls in which ranks exchange texts. A text is only valid in its own call.
enum class TextCall : std::uint8_t {
  exchange,  ///< The program itself exchanges texts.
  split,     ///< Ranks of a split tell each other their groups.
  number,    ///< Ranks of a split agree on the number of the communicator that it makes.
};

/// Returns a rank's `text` marked with its call. `name` is the communicator that is split off.
[[nodiscard]] std::string seal(TextCall call, std::string_view text, std::string_view name = {});

/// Returns the texts that all ranks have sealed. Throws a ContractError, the same on all ranks,
/// unless all belong to one call: "rank 2 exchanges texts where rank 0 splits off "x"; ...". The
/// error names ranks by `name_of`. Throws CommError if a text was not sealed.
[[nodiscard]] std::vector<std::string> unseal(std::span<const std::string> sealed,
                                              const NameOfRank& name_of);

}  // namespace tessera::comm
