#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::tools {

/// Text in columns, two spaces apart: the first aligned left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }

  /// Adds a row with one cell for each column of the head.
  void add(std::vector<std::string> row);
  /// One line per row, with the head underlined.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera::tools
