#include "tools/plan/tensor_key.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/kernels/matmul.hpp"
#include "tessera/shard/tensor_part.hpp"
#include "tessera/world/simulate.hpp"
#include "tools/options/mesh.hpp"
#include "tools/plan/planner.hpp"

namespace tessera::tools {
namespace {

/// Something that the ranks along `tensor` divide.
struct Divided {
  std::int64_t extent = 0;
  std::int64_t granule = 1;
};

TensorKey key_of(int size, std::vector<Divided> all) {
  return [size, all = std::move(all)](int index) {
    std::string key = index == 0 ? "first" : index + 1 == size ? "last" : "";
    for (const auto& [extent, granule] : all) {
      const TensorPart part{Shape{extent}, {.granule = granule}, {index, size}};
      key += fmt::format(" {}", part.elems());
    }
    return key;
  };
}

/// The neighbouring tokens of a vocabulary that stay together.
std::int64_t vocab_granule(const Settings& settings) {
  std::int64_t granule = 1;
  const Backend backend{.device = settings.world.device, .comm = planned_comm(settings, 1)};
  simulate_rank({.rank = 0, .ranks = 1, .backend = backend}, [&](World& world) {
    granule = kernels::fast_row_multiple(world.compute_stream());
  });
  return granule;
}

}  // namespace

TensorKey gpt_tensor_key(const Settings& settings, const nn::DecoderConfig& config) {
  const int size = ranks_along(settings, "tensor");
  if (size == 1) { return {}; }
  // Sequence parallelism divides the rows of a micro-batch, and those of the head's chunks.
  const std::int64_t rows = settings.batch * config.seq;
  const std::int64_t chunk = settings.head_rows > 0 ? settings.head_rows : rows;
  return key_of(size, {{config.key_heads()},
                       {config.mlp_elems()},
                       {config.vocab, vocab_granule(settings)},
                       {rows},
                       {chunk},
                       {rows % chunk}});
}

TensorKey stack_tensor_key(const Settings& settings, std::int64_t parameters, std::int64_t units) {
  const int size = ranks_along(settings, "tensor");
  if (size == 1) { return {}; }
  return key_of(size, {{parameters / units}, {parameters / units + 1}});
}

}  // namespace tessera::tools
