#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// Sizes of the kernels that Llama, Qwen and Mistral add: by default those of Llama 3 8B with 4
/// sequences of 4096 tokens.
struct DecoderSizes {
  std::int64_t batch = 4;
  std::int64_t seq = 4096;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t head_size = 128;
  std::int64_t wide = 14336;    ///< values of the MLP
  std::int64_t window = 1024;   ///< tokens that a query sees in a window
  std::int64_t document = 512;  ///< tokens of a document, on average

  [[nodiscard]] std::int64_t tokens() const noexcept { return batch * seq; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return heads * head_size; }
  /// Queries, keys and values of a token, side by side.
  [[nodiscard]] std::int64_t packed() const noexcept { return (heads + 2 * kv_heads) * head_size; }
};

/// Sizes to measure: by default those of GPT-2 124M with 64 sequences of 1024 tokens, whose
/// activations exceed any device's cache.
struct CudaSizes {
  std::int64_t parameters = 500'000'000;
  std::int64_t batch = 64;
  std::int64_t seq = 1024;
  std::int64_t heads = 12;
  std::int64_t head_size = 64;
  std::int64_t vocab = 50257;
  DecoderSizes decoder;

  [[nodiscard]] std::int64_t tokens() const noexcept { return batch * seq; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return heads * head_size; }
  /// "65536 tokens in sequences of 1024, hidden 768"
  [[nodiscard]] std::string activations() const;
};

/// One operation and its limit. `make` allocates the device memory that it needs, which the result
/// owns.
struct CudaContest {
  std::string
      group;  ///< "adamw", "memory", "attention", "decoder" or "products": on the command line
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
/// writes; for attention, a product of two square matrices, and in group "decoder" also attention
/// with as many key heads as query heads, of all keys; for products, plain cuBLASLt if the
/// program was built with the CUDA toolkit.
[[nodiscard]] std::vector<CudaContest> adamw_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> memory_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> attention_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> decoder_contests(const CudaSizes& sizes);
[[nodiscard]] std::vector<CudaContest> product_contests(const CudaSizes& sizes);

}  // namespace tessera::bench
