#include "profile/ledger_text.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "tessera/base/bytes.hpp"

namespace tessera::profile {
namespace {

bool has_row(Category category) {
  return category != Category::context && category != Category::unattributed;
}

std::string signed_bytes(std::int64_t bytes) {
  return fmt::format("{}{}", bytes < 0 ? "-" : "",
                     format_bytes(static_cast<std::size_t>(std::abs(bytes))));
}

}  // namespace

void add_row(std::vector<LedgerRow>& rows, std::string_view name, std::size_t bytes) {
  rows.push_back({std::string{name}, static_cast<std::int64_t>(bytes)});
}

void add_category_rows(std::vector<LedgerRow>& rows, const CategoryBytes& counted) {
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    if (has_row(category)) { add_row(rows, to_string(category), counted[category]); }
  }
}

std::string ledger_line(const LedgerRow& row, std::size_t whole) {
  const double part = 100.0 * static_cast<double>(row.bytes) / static_cast<double>(whole);
  return fmt::format("{:<18} {:>9} {:>6.1f} %\n", row.name, signed_bytes(row.bytes), part);
}

}  // namespace tessera::profile
