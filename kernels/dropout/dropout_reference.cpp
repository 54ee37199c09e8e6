#include "kernels/dropout/dropout.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {

void dropout(const Dropout& args, Stream) {
  for (std::int64_t s = 0; s < args.samples; ++s) {
    const auto sample = static_cast<std::uint64_t>(args.key.first_sample + s);
    for (std::int64_t i = 0; i < args.sample_elems; ++i) {
      const auto word = static_cast<std::uint64_t>(args.first_elem + i);
      const std::uint64_t group = word / 4;
      const auto words = philox4x32(
          {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32U),
           static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32U)},
          mask_key(args.key));
      const bool dropped = words[word % 4] < args.threshold();
      const std::int64_t at = s * args.sample_elems + i;
      set_element(args.y, at, dropped ? 0.0F : element(args.x, at) * args.factor());
    }
  }
}

}  // namespace tessera::kernels::reference
