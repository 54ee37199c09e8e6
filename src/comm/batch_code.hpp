#pragma once

#include <string>
#include <string_view>

#include "tessera/comm/batch.hpp"

namespace tessera::comm {

/// Writes into `code` what must agree across ranks: the label, then operation, elements, dtype,
/// reduction and root of each entry, without addresses. Batches match if their codes are equal.
void encode(const Batch& batch, std::string& code);

/// The batch that `code` encodes, with null addresses. Throws ContractError if it is not a valid
/// code.
[[nodiscard]] Batch decode(std::string_view code);

}  // namespace tessera::comm
