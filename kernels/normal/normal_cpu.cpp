#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/normal/four_normals.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/master_parts.hpp"

namespace tessera::kernels {
namespace {

// An element takes some 40 ns: a thread pays off from about this many elements on.
constexpr std::int64_t kGrain = 1024;

}  // namespace

void make_normal(const NormalKey& key, std::int64_t first, float stddev, std::span<float> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto element = static_cast<std::uint64_t>(first) + done;
    const FourNormals values = four_normals(key, element / 4);
    for (std::size_t lane = element % 4; lane < 4 && done < out.size(); ++lane, ++done) {
      out[done] = stddev * values.at[lane];
    }
  }
}

namespace cpu {

void fill_normal(Values to, MasterPart part, const NormalKey& key, std::int64_t first, float stddev,
                 std::int64_t elems, Stream stream) {
  device::enqueue(stream, [=] {
    device::parallel_for(stream, elems, kGrain, [=](const device::Chunk& chunk) {
      float floats[kStagedElems];
      for (std::int64_t at = chunk.first; at < chunk.last; at += kStagedElems) {
        const std::int64_t count = std::min(kStagedElems, chunk.last - at);
        make_normal(key, first + at, stddev, {floats, static_cast<std::size_t>(count)});
        store_part(to.at(at), part, floats, count);
      }
    });
  });
}

}  // namespace cpu
}  // namespace tessera::kernels
