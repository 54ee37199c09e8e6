#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/memory/category.hpp"

namespace tessera::profile {

/// Writes numbers and texts as one text, for World::exchange: "12 5:h.0.a ".
class TextWriter {
 public:
  void add(std::uint64_t number);
  void add(std::string_view text);
  void add(const CategoryBytes& bytes);
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Reads them in order. Throws ContractError if no TextWriter wrote the text: another rank has made
/// another call.
class TextReader {
 public:
  explicit TextReader(std::string_view text) noexcept : rest_{text} {}
  [[nodiscard]] std::uint64_t number();
  [[nodiscard]] std::string text();
  [[nodiscard]] CategoryBytes category_bytes();

 private:
  [[nodiscard]] std::uint64_t number_before(char end);

  std::string_view rest_;
};

}  // namespace tessera::profile
