#pragma once

#include <string>

namespace tessera {

/// Returns the library that computes matrix products on CPUs besides Tessera's own kernels, with
/// its version and the instructions that it may use on this machine: "oneDNN 2.6.3 (AMX)". Empty if
/// this build has none.
///
/// Errors of all three: ConfigError if the environment variable TESSERA_CPU is wrong, and of those
///         about products also if oneDNN has computed before it could be limited.
[[nodiscard]] std::string product_library();

/// Returns how this process computes matrix products on CPUs: the libraries with their
/// instructions, and the algorithm of each dtype: "oneDNN 2.6.3 (AMX) and Eigen (AVX-512);
/// fp32 by oneDNN, bf16 by oneDNN, fp16 by conversion".
[[nodiscard]] std::string describe_products();

/// Returns the instructions that this process uses at most, and whose choices it makes, with the
/// value of TESSERA_CPU if it is set: "AVX2, choices of AMD processors (TESSERA_CPU=avx2)".
[[nodiscard]] std::string describe_instructions();

}  // namespace tessera
