#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Calls in which ranks exchange texts: one's text means nothing in another.
enum class TextCall : std::uint8_t {
  exchange,  ///< the program's own
  split,     ///< into which groups, by a split
  number,    ///< of the communicator that a split makes
};

/// A rank's `text` in such a call, which says so; `name` is what is split off.
[[nodiscard]] std::string seal(TextCall call, std::string_view text, std::string_view name = {});

/// The texts within what all ranks have sealed. ContractError, the same on all of them, unless all
/// are of one call: "rank 2 exchanges texts where rank 0 splits off "x"; ...". `job_rank` gives the
/// names of ranks there. CommError where a text is no sealed one.
[[nodiscard]] std::vector<std::string> unseal(std::span<const std::string> sealed,
                                              const std::function<int(int)>& job_rank);

}  // namespace tessera
