#include "device/cpu/processor.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "tessera/base/error.hpp"

namespace tessera::device {
namespace {

#ifdef __AVX2__
constexpr bool kAvx2 = true;
#else
constexpr bool kAvx2 = false;
#endif
#ifdef __FMA__
constexpr bool kFma = true;
#else
constexpr bool kFma = false;
#endif
#ifdef __BMI2__
constexpr bool kBmi2 = true;
#else
constexpr bool kBmi2 = false;
#endif
#ifdef __AVX512F__
constexpr bool kAvx512f = true;
#else
constexpr bool kAvx512f = false;
#endif

}  // namespace

std::span<const ProcessorFeature> processor_features() {
#if defined(__x86_64__)
  static const std::array<ProcessorFeature, 4> features{{
      {"AVX2", kAvx2, __builtin_cpu_supports("avx2") != 0},
      {"FMA", kFma, __builtin_cpu_supports("fma") != 0},
      {"BMI2", kBmi2, __builtin_cpu_supports("bmi2") != 0},
      {"AVX-512F", kAvx512f, __builtin_cpu_supports("avx512f") != 0},
  }};
  return features;
#else
  return {};
#endif
}

void require_processor(std::span<const ProcessorFeature> features) {
  std::string missing;
  for (const ProcessorFeature& feature : features) {
    if (!feature.compiled_for || feature.present) { continue; }
    missing += missing.empty() ? "" : ", ";
    missing += feature.name;
  }
  if (missing.empty()) { return; }
  throw ConfigError(fmt::format(
      "this processor lacks {}, which this build of Tessera uses; rebuild for this processor with "
      "-DTESSERA_ARCH=native, or for any 64-bit x86 with -DTESSERA_ARCH=x86-64",
      missing));
}

}  // namespace tessera::device
