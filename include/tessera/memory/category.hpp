#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// The purpose of memory.
enum class Category : std::uint8_t {
  parameters,    ///< parameters that persist between steps, whole or sharded
  gradients,     ///< gradients that persist between micro-batches
  optimizer,     ///< master weights and the optimizer's state
  gather,        ///< slots for units' gathered parameters
  reduce,        ///< slots for units' gradients before their reduction
  activations,   ///< results of the forward pass that the backward pass needs
  workspace,     ///< scratch memory of kernels
  communicator,  ///< memory of the communicators, such as staging
  context,       ///< what the process holds of the device before the library allocates
  unattributed,  ///< memory in use that no other category explains
};

/// The number of categories.
inline constexpr std::size_t kCategories = 10;

/// Returns the name of the enumerator: "parameters", "gradients", ...
[[nodiscard]] std::string_view to_string(Category category) noexcept;

/// A number of bytes for each category, initially 0.
class CategoryBytes {
 public:
  /// Returns the bytes of category `c`, for reading and writing.
  [[nodiscard]] std::size_t& operator[](Category c) noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  /// Returns the bytes of category `c`.
  [[nodiscard]] std::size_t operator[](Category c) const noexcept {
    return bytes_[static_cast<std::size_t>(c)];
  }
  /// Returns the sum over all categories.
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t b : bytes_) { sum += b; }
    return sum;
  }
  friend bool operator==(const CategoryBytes&, const CategoryBytes&) = default;

 private:
  std::array<std::size_t, kCategories> bytes_{};
};

/// Returns the total and the categories that are not 0 as text, such as "1.50 GiB: parameters 1.00
/// GiB, gradients 512 MiB".
[[nodiscard]] std::string describe(const CategoryBytes& bytes);

}  // namespace tessera
