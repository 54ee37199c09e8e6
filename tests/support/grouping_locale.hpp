#pragma once

#include <locale>
#include <string>

namespace tessera::test {

/// While it lives, the program's C++ locale groups digits with blanks, as a French program's does.
class GroupingLocale {
 public:
  GroupingLocale()
      : former_{std::locale::global(std::locale{std::locale::classic(), new Blanks})} {}
  GroupingLocale(const GroupingLocale&) = delete;
  GroupingLocale& operator=(const GroupingLocale&) = delete;
  ~GroupingLocale() { std::locale::global(former_); }

 private:
  class Blanks final : public std::numpunct<char> {
    [[nodiscard]] char do_decimal_point() const override { return ','; }
    [[nodiscard]] char do_thousands_sep() const override { return ' '; }
    [[nodiscard]] std::string do_grouping() const override { return "\3"; }
  };

  std::locale former_;
};

}  // namespace tessera::test
