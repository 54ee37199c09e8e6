#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/matmul/matmul.hpp"

// cuBLASLt's algorithm for a product, if one was measured to be faster than what is done without:
// than its heuristic's first choice, or for a product that also sums columns than two kernels. The
// choices of a run come from one file, so that every run and every rank makes the same choices and
// computes the same bits.
namespace tessera::kernels {

/// The properties of a product that select an algorithm. Matrices start at multiples of 16 bytes;
/// if one does not, the heuristic chooses.
struct ProductKind {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t a_stride;
  std::int64_t c_stride;
  DType factors;
  DType result;
  Transpose transpose_a;
  Transpose transpose_b;
  Epilogue epilogue;
  bool bias;
  bool bias_gradient;
  auto operator<=>(const ProductKind&) const = default;
};

[[nodiscard]] ProductKind kind_of(const MatMul& product) noexcept;

/// The words of a cublasLtMatmulAlgo_t, which only the cuBLASLt version that wrote them accepts.
using ProductAlgorithm = std::array<std::uint64_t, 8>;

/// Where choices hold: on one kind of device, with one version of cuBLASLt, for products that use a
/// number of its multiprocessors.
struct ProductMachine {
  std::string device;         ///< "NVIDIA H100 80GB HBM3 (compute capability 9.0, 132 ...)"
  std::int64_t cublaslt = 0;  ///< 130100 for 13.1.0
  int multiprocessors = 0;
  bool operator==(const ProductMachine&) const = default;
};

/// Takes `spared` from the multiprocessors that products use. ConfigError if it is negative or none
/// is left.
void spare_multiprocessors(ProductMachine& machine, int spared);

/// An algorithm, with the measured milliseconds that it was chosen for.
struct ProductChoice {
  ProductAlgorithm algorithm{};
  double ms = 0;
  double first_ms = 0;  ///< without the choice: of the heuristic's first, or of two kernels
};

struct ProductChoices {
  ProductMachine machine;
  std::map<ProductKind, ProductChoice> products;

  /// Returns null if none was recorded: the heuristic chooses, and a product sums no columns.
  [[nodiscard]] const ProductAlgorithm* find(const ProductKind& kind) const;
};

/// The file that `parse_product_choices` reads.
[[nodiscard]] std::string to_json(const ProductChoices& choices);

/// Parses such a file. FormatError with `path` and the reason if `text` is not one.
[[nodiscard]] ProductChoices parse_product_choices(const std::string& path, std::string_view text);

/// Reads the file at `path` for a device. FormatError if it cannot be read or is not such a file,
/// ConfigError if it was recorded on another machine.
[[nodiscard]] ProductChoices read_product_choices(const std::string& path,
                                                  const ProductMachine& machine);

/// One line for ranks to compare: the same for the same choices.
[[nodiscard]] std::string describe(const ProductChoices& choices);

/// Exported by the CUDA module as "tessera_cublaslt_machine": the machine of the stream's device,
/// with all multiprocessors.
using FindProductMachine = void(Stream stream, ProductMachine& machine);
/// Exported as "tessera_cublaslt_offers": up to `most` algorithms, the heuristic's first choice
/// first, for a product that one call of cuBLASLt computes; none for others.
using OfferProductAlgorithms = void(const MatMul& product, int most, Stream stream,
                                    std::vector<ProductAlgorithm>& offers);

}  // namespace tessera::kernels
