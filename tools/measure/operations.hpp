#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/matmul/matmul.hpp"
#include "tessera/world/world.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

// Each operation of the library with its limits: memory traffic (a triad over arrays that move as
// many bytes) or arithmetic (multiplies and adds in registers).

/// 28 bytes and 16 FLOPs per parameter; limits: triad, the traffic alone, the plain loop compiled
/// for each instruction set.
[[nodiscard]] Contest adamw(std::int64_t parameters);
/// The same for bf16 parameters with remainders of their masters, 28 bytes per parameter; limit:
/// whole fp32 masters, 30.
[[nodiscard]] Contest adamw_remainders(std::int64_t parameters);
/// The same with 8-bit moments, 16 1/16 bytes; limit: fp32 moments in the same run.
[[nodiscard]] Contest adamw_int8(std::int64_t parameters);
/// The same as an offloaded optimizer runs it, on the host stream of `world`, which must outlive
/// the contest; limits: the plain loops, the kernel on the calling thread.
[[nodiscard]] Contest offloaded_adamw(World& world, std::int64_t parameters);
/// 4 bytes and 2 FLOPs per element.
[[nodiscard]] Contest squared_norm(std::int64_t elems);

enum class Direction { forward, backward };
[[nodiscard]] Contest layer_norm(Direction direction, std::int64_t rows, std::int64_t columns);
[[nodiscard]] Contest gelu(Direction direction, std::int64_t elems);
[[nodiscard]] Contest cross_entropy(std::int64_t rows, std::int64_t classes);

/// FLOPs without masking: 4 T^2 hidden per sample forward, twice that backward. A kernel that skips
/// masked scores does half of them and may exceed the limit.
[[nodiscard]] Contest attention(Direction direction, const kernels::AttentionShape& shape);
/// 2 m n k FLOPs.
[[nodiscard]] Contest matmul(std::int64_t m, std::int64_t n, std::int64_t k,
                             kernels::Transpose transpose_a, kernels::Transpose transpose_b,
                             kernels::Write write);

/// The fastest loop of multiplies and adds in registers.
[[nodiscard]] Case peak_case();
/// A triad that moves `bytes`.
[[nodiscard]] Case triad_case(double bytes);

}  // namespace tessera::bench
