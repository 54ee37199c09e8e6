#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// What memory is for. `gather` and `reduce` hold the slots; the rest is as named.
enum class Category : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  gather,
  reduce,
  activations,
  workspace,
  communicator,
  context,
  unattributed,
};

inline constexpr std::size_t kCategories = 10;

[[nodiscard]] std::string_view to_string(Category category) noexcept;

/// Bytes by category.
class CategoryBytes {
 public:
  [[nodiscard]] std::size_t& operator[](Category c) noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] std::size_t operator[](Category c) const noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t b : bytes_) { sum += b; }
    return sum;
  }
  friend bool operator==(const CategoryBytes&, const CategoryBytes&) = default;

 private:
  std::array<std::size_t, kCategories> bytes_{};
};

/// "1.50 GiB: parameters 1.00 GiB, gradients 512 MiB", for people.
[[nodiscard]] std::string describe(const CategoryBytes& bytes);

}  // namespace tessera
