#include "kernels/matmul/product_choices.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::kernels {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{16} << 20U;

/// Reads a regular file only: a pipe could block.
std::string contents(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {
    throw FormatError{fmt::format("{}: it is not a file that can be read", path)};
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
  if (failure || bytes > kMostBytes) {
    throw FormatError{fmt::format("{}: it has more than {} bytes", path, kMostBytes)};
  }
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (!file) { throw FormatError{fmt::format("{}: it cannot be read", path)}; }
  return text;
}

std::string version_text(std::int64_t version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

std::string name_of(const ProductMachine& machine) {
  return fmt::format("{} with cuBLASLt {} on {} multiprocessors", shown(machine.device),
                     version_text(machine.cublaslt), machine.multiprocessors);
}

}  // namespace

ProductKind kind_of(const MatMul& p) noexcept {
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a_stride = p.a_row_elems(),
          .c_stride = p.c_row_elems(),
          .factors = p.a.dtype,
          .result = p.c.dtype,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .epilogue = p.epilogue,
          .bias = static_cast<bool>(p.bias),
          .bias_gradient = static_cast<bool>(p.bias_gradient)};
}

void spare_multiprocessors(ProductMachine& machine, int spared) {
  if (spared < 0) {
    throw ConfigError{
        fmt::format("`tuning.spared_multiprocessors` is {}: choose 0 or more", spared)};
  }
  if (spared >= machine.multiprocessors) {
    throw ConfigError{fmt::format(
        "`tuning.spared_multiprocessors` is {}, but the device has {}: leave some to products",
        spared, machine.multiprocessors)};
  }
  machine.multiprocessors -= spared;
}

const ProductAlgorithm* ProductChoices::find(const ProductKind& kind) const {
  const auto found = products.find(kind);
  return found == products.end() ? nullptr : &found->second.algorithm;
}

ProductChoices read_product_choices(const std::string& path, const ProductMachine& machine) {
  ProductChoices choices = parse_product_choices(path, contents(path));
  if (choices.machine == machine) { return choices; }
  ProductMachine others = choices.machine;
  others.multiprocessors = machine.multiprocessors;
  const bool spares = others == machine;
  throw ConfigError{fmt::format(
      "`products`: {} was recorded on {}, and this is {}; record one {} with tessera_cuda_bench "
      "--choose{}, or leave it out",
      path, name_of(choices.machine), name_of(machine), spares ? "for this number" : "here",
      spares ? " FILE --spare N" : "")};
}

std::string describe(const ProductChoices& choices) {
  const std::string text = to_json(choices);
  return fmt::format("products recorded on {}: {:016x}", name_of(choices.machine),
                     XXH3_64bits(text.data(), text.size()));
}

}  // namespace tessera::kernels
