#include "engine/plan/shard_place.hpp"

namespace tessera::engine {

ShardPlace::ShardPlace(const MeshShape& mesh, int rank)
    : ranks_{mesh.size("shard")},
      copies_{mesh.size("replicate")},
      index_{mesh.index("shard", rank)},
      copy_{mesh.index("replicate", rank)},
      tensor_{mesh.index("tensor", rank), mesh.size("tensor")},
      pipe_{mesh.index("pipe", rank)},
      pipes_{mesh.size("pipe")} {}

Range ShardPlace::kept(const SegmentLayout& segment) const noexcept {
  const std::int64_t elems = segment.shard_elems() * copies_;
  return {index_ * elems, elems};
}

}  // namespace tessera::engine
