#include <fmt/format.h>

#include <utility>

#include "kernels/matmul/matmul_algorithms.hpp"
#include "kernels/matmul/matmul_strided.hpp"
#include "tessera/device/product_library.hpp"

std::string tessera::describe_products() {
  const std::string library = product_library();
  const bool avx512 = kernels::matmul_variants().front().name == "avx512";
  std::string text = fmt::format("{}{}Eigen ({}); ", library, library.empty() ? "" : " and ",
                                 avx512 ? "AVX-512" : "AVX2");
  const char* before = "";
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const Values any{nullptr, dtype};
    const auto algorithm = kernels::algorithms_of({any, any, any, 256, 256, 256}).front();
    text += fmt::format("{}{} by {}", std::exchange(before, ", "), to_string(dtype),
                        kernels::to_string(algorithm));
  }
  return text;
}
