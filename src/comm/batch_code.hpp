#pragma once

#include <string>
#include <string_view>

#include "tessera/comm/batch.hpp"

namespace tessera {

/// Writes into `code` what must agree across ranks: label, then operation, elements, dtype,
/// reduction and root of each entry, without addresses. Equal codes mean batches that may meet.
void encode(const Batch& batch, std::string& code);

/// The batch that `code` stands for, with null addresses. ContractError if it is not a code.
[[nodiscard]] Batch decode(std::string_view code);

}  // namespace tessera
