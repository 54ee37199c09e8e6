#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// Sizes to measure: by default those of GPT-2 124M with 64 sequences of 1024 tokens, whose
/// activations exceed any device's cache.
struct CudaSizes {
  std::int64_t parameters = 500'000'000;
  std::int64_t batch = 64;
  std::int64_t seq = 1024;
  std::int64_t heads = 12;
  std::int64_t head_size = 64;
  std::int64_t vocab = 50257;

  [[nodiscard]] std::int64_t tokens() const noexcept { return batch * seq; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return heads * head_size; }
  /// "65536 tokens in sequences of 1024, hidden 768"
  [[nodiscard]] std::string activations() const;
};

/// One operation and its limit. `make` allocates the device memory that it needs, which the result
/// owns.
struct CudaContest {
  std::string
      group;  ///< "adamw", "memory", "attention" or "products": the name on the command line
  std::string name;
  std::string shape;  ///< the size that it is measured at, for people
  std::function<KernelContest(Rig&)> make;
  /// Whether a machine's profile takes it as a sample: a variant of a kernel would be taken for
  /// the kernel.
  bool sample = true;

  /// The name in a table, with the shape where the table's rows have different ones.
  [[nodiscard]] std::string title() const;
};

/// Limits: for kernels that move memory, a copy of the same bytes on the device, counting reads and
/// writes; for attention, a product of two square matrices; for products, plain cuBLASLt if the
/// program was built with the CUDA toolkit.
[[nodiscard]] std::vector<CudaContest> adamw_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> memory_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> attention_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> product_contests(const CudaSizes& sizes);

}  // namespace tessera::bench
