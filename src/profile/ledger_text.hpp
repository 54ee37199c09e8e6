#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/profile/ledger.hpp"

namespace tessera::profile {

void add_row(std::vector<LedgerRow>& rows, std::string_view name, std::size_t bytes);
/// Adds a row for each category that a tracker counts; the other two have rows of their own.
void add_category_rows(std::vector<LedgerRow>& rows, const CategoryBytes& counted);

/// A row as a line, with its share of `whole`.
[[nodiscard]] std::string ledger_line(const LedgerRow& row, std::size_t whole);

}  // namespace tessera::profile
