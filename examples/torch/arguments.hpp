#pragma once

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The arguments of a program: "--name value" for each of its `names`.
class Arguments {
 public:
  Arguments(int argc, char** argv, const std::vector<std::string>& names) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (std::find(names.begin(), names.end(), name) == names.end() || i + 1 == argc) {
        std::string all;
        for (const std::string& known : names) { all += " " + known + " VALUE"; }
        throw std::runtime_error{"usage:" + all};
      }
      given_.emplace_back(name, argv[i + 1]);
    }
  }

  [[nodiscard]] std::string text(const std::string& name, std::string fallback) const {
    for (const auto& [given, value] : given_) {
      if (given == name) { fallback = value; }
    }
    return fallback;
  }

  [[nodiscard]] int number(const std::string& name, int fallback) const {
    const std::string value = text(name, std::to_string(fallback));
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < 1) {
      throw std::runtime_error{name + " takes a number of 1 or more, not '" + value + "'"};
    }
    return result;
  }

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};
