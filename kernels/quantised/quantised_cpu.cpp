#include <algorithm>
#include <cstring>
#include <type_traits>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/quantised/codes.hpp"
#include "kernels/quantised/int8_cpu.hpp"
#include "kernels/quantised/nf4_cpu.hpp"
#include "kernels/quantised/quantised.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

/// The elements of block `b` of `elems` elements in blocks of `block`.
std::int64_t elems_of(std::int64_t b, std::int64_t block, std::int64_t elems) {
  return std::min(block, elems - b * block);
}

/// A block's values; those beyond the end are 0.
template <std::int64_t Elems>
class BlockValues {
 public:
  template <class T>
  [[gnu::always_inline]] BlockValues(const T* from, std::int64_t elems) noexcept {
    if (elems == Elems) {
      for (std::int64_t i = 0; i < kVecs; ++i) { at_[i] = load(from + i * kLanes); }
      return;
    }
    for (Vec& v : at_) { v = Vec{}; }
    for_lanes(elems, [&](std::int64_t i, auto lanes) { at_[i / kLanes] = lanes.read(from + i); });
  }

  [[nodiscard]] Vec operator[](std::int64_t i) const noexcept { return at_[i]; }

  void subtract(float offset, std::int64_t elems) noexcept {
    for_lanes(elems, [&](std::int64_t i, auto lanes) {
      at_[i / kLanes] = lanes.mask(at_[i / kLanes] - offset, 0.0F);
    });
  }

  /// The largest magnitude; NaN if one is NaN.
  [[gnu::always_inline, nodiscard]] float largest() const noexcept {
    IntVec most{};
    for (const Vec& v : at_) {
      const IntVec bits = std::bit_cast<IntVec>(v) & 0x7FFFFFFF;
      most = bits > most ? bits : most;
    }
    std::int32_t largest = 0;
    for (std::int64_t l = 0; l < kLanes; ++l) { largest = std::max(largest, most[l]); }
    return magnitude_of(static_cast<std::uint32_t>(largest));
  }

 private:
  static constexpr std::int64_t kVecs = Elems / kLanes;
  Vec at_[kVecs];
};

template <class T>
void quantise_nf4(const NF4Quantise& args, std::int64_t b) noexcept {
  const std::int64_t elems = elems_of(b, kNF4Block, args.elems);
  const BlockValues<kNF4Block> values{args.values.as<T>() + b * kNF4Block, elems};
  const float absmax = values.largest();
  args.absmax[b] = absmax;
  const Vec factor = splat(code_factor(absmax));
  std::uint8_t codes[kNF4Block / 2];
  for (std::int64_t half = 0; half < 2; ++half) {
    IntVec four[4];
    for (std::int64_t i = 0; i < 4; ++i) { four[i] = nf4_codes(values[4 * half + i] * factor); }
    pack_codes(four, codes + 16 * half);
  }
  std::uint8_t* const to = args.codes + b * kNF4Block / 2;
  if (elems == kNF4Block) {
    std::memcpy(to, codes, sizeof codes);
  } else {
    std::memcpy(to, codes, static_cast<std::size_t>((elems + 1) / 2));
  }
}

void quantise_group(const NF4QuantiseAbsmax& args, std::int64_t g) noexcept {
  const std::int64_t blocks = elems_of(g, kNF4Group, args.blocks);
  BlockValues<kNF4Group> rest{args.absmax + g * kNF4Group, blocks};
  rest.subtract(args.offset, blocks);
  const float scale = rest.largest();
  args.scales[g] = scale;
  const float factor = code_factor(scale);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float x = rest[b / kLanes][b % kLanes] * factor;
    args.codes[g * kNF4Group + b] = static_cast<std::uint8_t>(kDynamicMap.code(x));
  }
}

template <class T>
void dequantise_nf4(const NF4Dequantise& args, std::int64_t b) noexcept {
  const NF4Weights& from = args.from;
  const std::int64_t group = (from.first / kNF4Block % kNF4Group + b) / kNF4Group;
  const float rest = kDynamicMap.values[from.absmax_codes[b]] * from.scales[group];
  const NF4Products<T> products{rest + from.offset};
  const std::uint8_t* const codes = from.codes + b * kNF4Block / 2;
  T* const to = args.to.as<T>() + b * kNF4Block;
  const std::int64_t elems = elems_of(b, kNF4Block, args.elems);
  if (elems == kNF4Block) {
    products.write_block(codes, to);
  } else {
    products.write_some(codes, to, elems);
  }
}

template <class T>
void quantise_int8(const Int8Quantise& args, std::int64_t b) noexcept {
  const std::int64_t elems = elems_of(b, kInt8Block, args.elems);
  const BlockValues<kInt8Block> values{args.values.as<T>() + b * kInt8Block, elems};
  const Int8Scale scale = Int8Scale::of(values.largest());
  args.scales[b] = scale.scale;
  std::int8_t codes[kInt8Block];
  for (std::int64_t i = 0; i < kInt8Block / kLanes; i += 4) {
    Vec four[4];
    for (std::int64_t j = 0; j < 4; ++j) { four[j] = values[i + j] * scale.factor; }
    write_int8(four, codes + i * kLanes);
  }
  std::int8_t* const to = args.codes + b * kInt8Block;
  if (elems == kInt8Block) {
    std::memcpy(to, codes, sizeof codes);
  } else {
    std::memcpy(to, codes, static_cast<std::size_t>(elems));
  }
}

/// The elements of one scale that a part may begin with.
constexpr std::int64_t kInt8Part = kNF4Block;

template <class T>
void dequantise_int8(const Int8Dequantise& args, std::int64_t part) noexcept {
  const std::int64_t first = part * kInt8Part;
  const float scale = args.from.scales[(args.from.first % kInt8Block + first) / kInt8Block];
  const std::int8_t* const codes = args.from.codes + first;
  T* const to = args.to.as<T>() + first;
  const std::int64_t elems = elems_of(part, kInt8Part, args.elems);
  if (elems == kInt8Part) {
    for (std::int64_t i = 0; i < kInt8Part; i += kLanes) {
      store(to + i, int8_values(codes + i) * scale);
    }
    return;
  }
  std::int8_t some[kInt8Part] = {};
  std::memcpy(some, codes, static_cast<std::size_t>(elems));
  for_lanes(elems, [&](std::int64_t i, auto lanes) {
    lanes.write(to + i, int8_values(some + i) * scale);
  });
}

/// Calls body(b) for every block of `block` elements, on the threads of `stream`.
template <class Body>
void for_blocks(Stream stream, std::int64_t elems, std::int64_t block, const Body& body) {
  device::parallel_for(stream, ceil_div(elems, block), row_grain(block),
                       [&](const device::Chunk& blocks) {
                         for (std::int64_t b = blocks.first; b < blocks.last; ++b) { body(b); }
                       });
}

}  // namespace

void nf4_quantise(const NF4Quantise& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.values.dtype, [&]<class T>(std::type_identity<T>) {
      for_blocks(stream, args.elems, kNF4Block, [&](std::int64_t b) { quantise_nf4<T>(args, b); });
    });
  });
}

void nf4_quantise_absmax(const NF4QuantiseAbsmax& args, Stream stream) {
  device::enqueue(stream, [=] {
    for_blocks(stream, args.blocks, kNF4Group, [&](std::int64_t g) { quantise_group(args, g); });
  });
}

void nf4_dequantise(const NF4Dequantise& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.to.dtype, [&]<class T>(std::type_identity<T>) {
      for_blocks(stream, args.elems, kNF4Block,
                 [&](std::int64_t b) { dequantise_nf4<T>(args, b); });
    });
  });
}

void int8_quantise(const Int8Quantise& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.values.dtype, [&]<class T>(std::type_identity<T>) {
      for_blocks(stream, args.elems, kInt8Block,
                 [&](std::int64_t b) { quantise_int8<T>(args, b); });
    });
  });
}

void int8_dequantise(const Int8Dequantise& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.to.dtype, [&]<class T>(std::type_identity<T>) {
      for_blocks(stream, args.elems, kInt8Part,
                 [&](std::int64_t part) { dequantise_int8<T>(args, part); });
    });
  });
}

}  // namespace tessera::kernels::cpu
