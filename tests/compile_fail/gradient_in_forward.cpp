// There are no gradients in a forward pass.
// expected: 'const class tessera::ForwardScope' has no member named 'grad'
#include "tessera/engine/sharded_model.hpp"

void zero(tessera::ShardedModel& model, tessera::Unit unit) {
#ifdef MENDED
  const auto scope = model.backward(unit);
#else
  const auto scope = model.forward(unit);
#endif
  static_cast<float*>(scope.grad("weight"))[0] = 0;
}
