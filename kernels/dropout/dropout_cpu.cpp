#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/dropout/dropout.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/philox_words.hpp"
#include "kernels/support/typed.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = kPhiloxWords;  // elements whose words are drawn together
constexpr std::int64_t kGroup = 4;             // words per counter

/// Drops elements according to their words.
template <class T>
void drop(const T* x, T* y, std::int64_t elems, const std::uint32_t* words, std::uint32_t threshold,
          float factor) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) {
    UintVec word;
    std::memcpy(&word, words + i,
                sizeof word);  // `words` has kBlock + kGroup entries, however few are used
    lanes.write(y + i, word < threshold ? splat(0.0F) : lanes.read(x + i) * factor);
  });
}

/// Elements in a block: one per word, less a group, since a block may start within a group.
std::int64_t block_elems(const Dropout& args) {
  return args.first_elem % kGroup == 0 ? kBlock : kBlock - kGroup;
}

/// Drops blocks [first, last) of all samples, `per_sample` in each.
template <class T>
void drop_blocks(const Dropout& args, std::int64_t per_sample, const device::Chunk& blocks) {
  alignas(64) std::uint32_t words[kBlock + kGroup] = {};
  const auto key = mask_key(args.key);
  const std::int64_t elems = block_elems(args);
  for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
    const auto sample = static_cast<std::uint64_t>(args.key.first_sample + block / per_sample);
    const std::int64_t first = block % per_sample * elems;
    const std::int64_t word = args.first_elem + first;
    const std::int64_t at = block / per_sample * args.sample_elems + first;
    philox_words(
        {key, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32U)},
        static_cast<std::uint64_t>(word / kGroup), words);
    drop(args.x.as<T>() + at, args.y.as<T>() + at, std::min(elems, args.sample_elems - first),
         words + word % kGroup, args.threshold(), args.factor());
  }
}

}  // namespace

void dropout(const Dropout& args, Stream stream) {
  expects(args.x.dtype == args.y.dtype, "dropout: x and y are of one dtype");
  device::enqueue(stream, [=] {
    with_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
      const std::int64_t per_sample = ceil_div(args.sample_elems, block_elems(args));
      device::parallel_for(
          stream, args.samples * per_sample, kElementGrain / kBlock,
          [&](const device::Chunk& blocks) { drop_blocks<T>(args, per_sample, blocks); });
    });
  });
}

}  // namespace tessera::kernels::cpu
