#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

/// A file as a sequence of bytes to learn from.
class Text {
 public:
  explicit Text(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    bytes_.assign(std::istreambuf_iterator<char>{file}, {});
    if (bytes_.size() < 2000) { throw std::runtime_error{path + " is no text of 2000 bytes"}; }
  }

  struct Pieces {
    torch::Tensor bytes;  ///< [count, length]
    torch::Tensor next;   ///< the byte after each
  };

  /// Returns pieces number `first` to `first + count - 1` of an endless series: each depends only
  /// on its number.
  [[nodiscard]] Pieces pieces(std::int64_t first, std::int64_t count, std::int64_t length) const {
    const auto places = static_cast<std::int64_t>(bytes_.size()) - length;
    const torch::Tensor both = torch::empty({count, length + 1}, torch::kLong);
    auto* to = both.data_ptr<std::int64_t>();
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t begin = i * 7919 % places;
      for (std::int64_t k = begin; k <= begin + length; ++k) {
        *to++ = static_cast<unsigned char>(bytes_[static_cast<std::size_t>(k)]);
      }
    }
    return {both.narrow(1, 0, length), both.narrow(1, 1, length)};
  }

 private:
  std::string bytes_;
};
