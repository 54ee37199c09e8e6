// A scope releases its unit once, at its own brace.
// expected: use of deleted function 'tessera::ForwardScope::ForwardScope\(const
// tessera::ForwardScope&\)'
#include "tessera/engine/sharded_model.hpp"

const float* keep(tessera::ShardedModel& model, tessera::Unit unit) {
  const auto scope = model.forward(unit);
#ifdef MENDED
  const auto& other = scope;
#else
  const auto other = scope;
#endif
  return other["weight"];
}
