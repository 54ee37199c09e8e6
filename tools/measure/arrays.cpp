#include "tools/measure/arrays.hpp"

#include <algorithm>
#include <new>

#include "kernels/table.hpp"

namespace tessera::bench {

Floats floats(std::int64_t elems, float value) {
  constexpr std::align_val_t boundary{128};
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(elems, 1)) * sizeof(float);
  auto* data = static_cast<float*>(::operator new(bytes, boundary));
  Floats owner{data, [](float* p) { ::operator delete(p, boundary); }};
  std::fill(data, data + elems, value);
  return owner;
}

Floats noise(std::int64_t elems, std::uint32_t seed) {
  Floats owner = floats(elems, 0.0F);
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < elems; ++i) {
    state = state * 1'664'525U + 1'013'904'223U;
    owner.get()[i] = static_cast<float>(state >> 8) / static_cast<float>(1U << 23) - 1.0F;
  }
  return owner;
}

RoundedNoise::RoundedNoise(DType dtype, std::int64_t elems, std::uint32_t seed)
    : dtype_{dtype}, memory_{floats(elems, 0.0F)} {
  const Floats wide = noise(elems, seed);
  const CallerStream on;
  kernels::cpu_table().cast({memory_.get(), elems, dtype}, {wide.get(), elems, DType::fp32},
                            on.get());
}

}  // namespace tessera::bench
