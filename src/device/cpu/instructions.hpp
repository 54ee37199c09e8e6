#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::device {

/// The instruction sets that products are computed with, each with those before it.
enum class InstructionSet : std::uint8_t {
  avx2,         ///< the baseline, x86-64-v3
  avx512,       ///< x86-64-v4
  avx512_bf16,  ///< with products of bf16
  native,       ///< all that the processor has, such as AMX
};

/// The algorithms of products, where they are chosen by the processor's maker: cores of one
/// instruction set differ in the width of their multipliers.
enum class Choices : std::uint8_t {
  intel,  ///< 512-bit multipliers; bf16 with AMX only
  amd,    ///< every other maker: 256-bit multipliers; bf16 with AVX512-BF16
};

/// What this process computes with. It changes bits and speed, not meaning.
struct Instructions {
  InstructionSet most = InstructionSet::native;
  Choices choices = Choices::amd;

  [[nodiscard]] bool allows(InstructionSet set) const noexcept { return most >= set; }
};

/// Reads the value of TESSERA_CPU: words separated by commas, at most one of `avx2`, `avx512`,
/// `avx512-bf16` and `native` (the default), and at most one of `intel` and `amd` (default: this
/// processor's maker). An empty text is legal.
///
/// Errors: ConfigError for another word, and for a set that this processor lacks or that this
///         build, compiled for AVX-512, exceeds.
[[nodiscard]] Instructions parse_instructions(std::string_view text);

/// The instructions of this process, from the environment variable TESSERA_CPU at the first call.
/// Errors: ConfigError as above, from every call.
[[nodiscard]] const Instructions& instructions();

/// Whether this process may use AVX-512 (F, BW, CD, DQ, VL).
[[nodiscard]] bool uses_avx512();

}  // namespace tessera::device
