#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// What memory is for. `gather` and `reduce` hold the slots; the other names say it themselves.
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

/// The number of categories.
inline constexpr std::size_t kCategories = 10;

/// The name of the enumerator: "parameters", "gradients", ...
[[nodiscard]] std::string_view to_string(Category category) noexcept;

/// A number of bytes for each category, at first 0.
class CategoryBytes {
 public:
  /// The bytes of category `c`.
  [[nodiscard]] std::size_t& operator[](Category c) noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  /// The bytes of category `c`.
  [[nodiscard]] std::size_t operator[](Category c) const noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  /// The sum over all categories.
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t b : bytes_) { sum += b; }
    return sum;
  }
  friend bool operator==(const CategoryBytes&, const CategoryBytes&) = default;

 private:
  std::array<std::size_t, kCategories> bytes_{};
};

/// The total and the categories that are not 0, for people:
/// "1.50 GiB: parameters 1.00 GiB, gradients 512 MiB".
[[nodiscard]] std::string describe(const CategoryBytes& bytes);

}  // namespace tessera
