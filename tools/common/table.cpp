#include "tools/common/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::tools {

void Table::add(std::vector<std::string> row) {
  expects(row.size() == rows_.front().size(), "Table::add: a row needs a cell for every column");
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) { widths[i] = std::max(widths[i], row[i].size()); }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) {
      line += fmt::format("  {:>{}}", row[i], widths[i]);
    }
    out += line + "\n";
    if (&row == &rows_.front()) { out += std::string(line.size(), '-') + "\n"; }
  }
  return out;
}

}  // namespace tessera::tools
