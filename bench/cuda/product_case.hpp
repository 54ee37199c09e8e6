#pragma once

#include <memory>

#include "bench/cuda/rig.hpp"
#include "bench/cuda/training_products.hpp"

namespace tessera::bench {

/// A product with memory for everything that it reads and writes. Copies share the memory.
class ProductOnDevice {
 public:
  ProductOnDevice(Rig& rig, const TrainingProduct& product);

  [[nodiscard]] const kernels::MatMul& product() const noexcept { return product_; }
  [[nodiscard]] double flops() const noexcept;

 private:
  [[nodiscard]] Values take(Rig& rig, DType dtype, std::int64_t elems);

  kernels::MatMul product_;
  std::vector<Numbers> memory_;
};

/// The bare product, and plain cuBLASLt's as its limit if the program was built with the CUDA
/// toolkit.
[[nodiscard]] KernelContest plain_product_contest(Rig& rig, const TrainingProduct& product);

/// A product that adds a residual in the same call; its limit is the product with a separate kernel
/// for that.
[[nodiscard]] KernelContest residual_contest(Rig& rig, const TrainingProduct& product);

}  // namespace tessera::bench
