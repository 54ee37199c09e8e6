#include "kernels/update/quantised_moments_reference.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/update/stochastic.hpp"

// Computed from the formula, with numbers; moment_code.hpp works on their bits.
namespace tessera::kernels::reference {
namespace {

/// Codes of magnitudes, with `steps` codes (a power of two) in each power of two of x / s + 1.
struct Magnitudes {
  int steps;
  double largest;

  [[nodiscard]] double relative(int code) const {
    const int exponent = code / steps;
    const double fraction = static_cast<double>(code % steps) / steps;
    return std::ldexp(1.0 + fraction, exponent) - 1.0;
  }
  [[nodiscard]] double clamp(float x) const {
    const double magnitude = std::abs(static_cast<double>(x));
    return magnitude <= largest ? magnitude : largest;  // NaN too
  }
  [[nodiscard]] double scale(const float* values, std::int64_t elems) const {
    double most = 0.0;
    for (std::int64_t i = 0; i < elems; ++i) { most = std::max(most, clamp(values[i])); }
    double scale = 0x1p-119;
    while (most > relative(16 * steps - 1) * scale) { scale *= 2; }
    return scale;
  }
  [[nodiscard]] int code(double magnitude, double scale, std::uint32_t random) const {
    const double place = static_cast<float>(magnitude / scale) + 1.0F;
    const int exponent = std::ilogb(place);
    const double gaps = std::ldexp(place, -exponent) * steps;
    const double whole = std::floor(gaps);
    const bool up = gaps - whole > (random + 0.5) / 65536;
    return exponent * steps + static_cast<int>(whole) - steps + (up ? 1 : 0);
  }
};

constexpr Magnitudes kFirst{8, 0x1p127};
constexpr Magnitudes kSecond{16, 0x1p63};

/// Calls visit(first element, elements) for each block of a run.
template <class Visit>
void for_blocks(const UpdateRun& run, const Visit& visit) {
  for (std::int64_t at = 0; at < run.elems; at += kMomentBlock) {
    visit(at, std::min(kMomentBlock, run.elems - at));
  }
}

std::uint32_t word(const UpdateRun& run, std::int64_t updates, std::int64_t i) {
  const StochasticKey key = StochasticKey::of(run, updates, RoundedArray::quantised);
  return key.word(run.first_in_parameter + i);
}

void write_first(const UpdateRun& run, std::int64_t updates, const std::vector<float>& values) {
  for_blocks(run, [&](std::int64_t at, std::int64_t elems) {
    const double scale = kFirst.scale(&values[static_cast<std::size_t>(at)], elems);
    run.first_quantised.scales[at / kMomentBlock] = static_cast<float>(scale);
    for (std::int64_t i = at; i < at + elems; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      const int code = kFirst.code(kFirst.clamp(value), scale, word(run, updates, i) % 65536);
      run.first_quantised.values[i] =
          static_cast<std::uint8_t>(code + (std::signbit(value) ? 128 : 0));
    }
  });
}

void write_second(const UpdateRun& run, std::int64_t updates, std::vector<float> roots) {
  for (float& value : roots) { value = std::sqrt(value); }
  for_blocks(run, [&](std::int64_t at, std::int64_t elems) {
    const double scale = kSecond.scale(&roots[static_cast<std::size_t>(at)], elems);
    run.second_quantised.scales[at / kMomentBlock] = static_cast<float>(scale);
    for (std::int64_t i = at; i < at + elems; ++i) {
      const double root = kSecond.clamp(roots[static_cast<std::size_t>(i)]);
      const int code = kSecond.code(root, scale, word(run, updates, i) / 65536);
      const int least = root == 0.0 ? 0 : 1;
      run.second_quantised.values[i] = static_cast<std::uint8_t>(std::max(code, least));
    }
  });
}

}  // namespace

WideMoments dequantise(const UpdateRun& run) {
  WideMoments moments;
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const std::int64_t block = i / kMomentBlock;
    const int code = run.first_quantised.values[i];
    const double scale = run.first_quantised.scales[block];
    const auto magnitude = static_cast<float>(kFirst.relative(code % 128) * scale);
    moments.first.push_back(code < 128 ? magnitude : -magnitude);
    if (!run.second_quantised) { continue; }
    const double relative = kSecond.relative(run.second_quantised.values[i]);
    const auto root = static_cast<float>(relative * run.second_quantised.scales[block]);
    moments.second.push_back(root * root);
  }
  return moments;
}

void quantise(const UpdateRun& run, std::int64_t updates, const WideMoments& moments) {
  write_first(run, updates, moments.first);
  if (run.second_quantised) { write_second(run, updates, moments.second); }
}

}  // namespace tessera::kernels::reference
