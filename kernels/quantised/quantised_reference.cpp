#include <algorithm>
#include <cmath>

#include "kernels/quantised/codes.hpp"
#include "kernels/quantised/quantised.hpp"
#include "kernels/support/element.hpp"

// Every operation is one of fp32, in the order of the formula: its bits are those of all backends.

namespace tessera::kernels::reference {
namespace {

template <int Bits>
std::uint32_t nearest(const CodeMap<Bits>& map, float x) {
  std::uint32_t code = 0;
  for (int i = 0; i + 1 < map.kCodes; ++i) {
    if (x > (map.values[i] + map.values[i + 1]) / 2.0F) { ++code; }
  }
  return code;
}

/// The largest of magnitude(i) for i in [first, last); NaN if one is.
template <class Magnitude>
float largest(std::int64_t first, std::int64_t last, const Magnitude& magnitude) {
  float most = 0.0F;
  for (std::int64_t i = first; i < last; ++i) {
    const float size = std::abs(magnitude(i));
    most = size > most || std::isnan(size) ? size : most;
  }
  return std::isnan(most) ? std::bit_cast<float>(0x7FC00000U) : most;
}

}  // namespace

void nf4_quantise(const NF4Quantise& args, Stream) {
  for (std::int64_t b = 0; b < nf4_blocks(args.elems); ++b) {
    const std::int64_t first = b * kNF4Block;
    const std::int64_t last = std::min(first + kNF4Block, args.elems);
    const float absmax = largest(first, last, [&](std::int64_t i) { return read(args.values, i); });
    args.absmax[b] = absmax;
    const float factor = 1.0F / (absmax > 1e-38F ? absmax : 1e-38F);
    for (std::int64_t i = first; i < last; i += 2) {
      const std::uint32_t high = nearest(kNF4Map, read(args.values, i) * factor);
      const float next = i + 1 < last ? read(args.values, i + 1) : 0.0F;
      const std::uint32_t low = nearest(kNF4Map, next * factor);
      args.codes[i / 2] = static_cast<std::uint8_t>(high << 4U | low);
    }
  }
}

void nf4_quantise_absmax(const NF4QuantiseAbsmax& args, Stream) {
  for (std::int64_t g = 0; g < nf4_groups(args.blocks); ++g) {
    const std::int64_t first = g * kNF4Group;
    const std::int64_t last = std::min(first + kNF4Group, args.blocks);
    const auto rest = [&](std::int64_t b) { return args.absmax[b] - args.offset; };
    const float scale = largest(first, last, rest);
    args.scales[g] = scale;
    const float factor = 1.0F / (scale > 1e-38F ? scale : 1e-38F);
    for (std::int64_t b = first; b < last; ++b) {
      args.codes[b] = static_cast<std::uint8_t>(nearest(kDynamicMap, rest(b) * factor));
    }
  }
}

void nf4_dequantise(const NF4Dequantise& args, Stream) {
  const NF4Weights& from = args.from;
  const std::int64_t first_block = from.first / kNF4Block;
  for (std::int64_t i = 0; i < args.elems; ++i) {
    const std::int64_t b = i / kNF4Block;
    const std::int64_t g = (first_block + b) / kNF4Group - first_block / kNF4Group;
    const float rest = kDynamicMap.values[from.absmax_codes[b]] * from.scales[g];
    const float absmax = rest + from.offset;
    const std::uint32_t both = from.codes[i / 2];
    const float value = kNF4Map.values[i % 2 == 0 ? both >> 4U : both & 15U];
    write(args.to, i, value * absmax);
  }
}

void int8_quantise(const Int8Quantise& args, Stream) {
  for (std::int64_t b = 0; b < int8_blocks(args.elems); ++b) {
    const std::int64_t first = b * kInt8Block;
    const std::int64_t last = std::min(first + kInt8Block, args.elems);
    const float most = largest(first, last, [&](std::int64_t i) { return read(args.values, i); });
    const float m = most < 0x1p-100F ? 0x1p-100F : most;
    const float factor = 127.0F / m;
    args.scales[b] = m / 127.0F;
    for (std::int64_t i = first; i < last; ++i) {
      const float code = std::nearbyint(read(args.values, i) * factor);
      args.codes[i] = static_cast<std::int8_t>(std::isnan(code) ? -127.0F : code);
    }
  }
}

void int8_dequantise(const Int8Dequantise& args, Stream) {
  const std::int64_t lead = args.from.first % kInt8Block;
  for (std::int64_t i = 0; i < args.elems; ++i) {
    const auto code = static_cast<float>(args.from.codes[i]);
    write(args.to, i, code * args.from.scales[(lead + i) / kInt8Block]);
  }
}

}  // namespace tessera::kernels::reference
