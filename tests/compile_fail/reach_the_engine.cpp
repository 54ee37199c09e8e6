// A class derived from a scope reaches nothing of the engine.
// expected: 'tessera::engine::Model& tessera::Scope::live\(\) const' is private within this context
#include "tessera/engine/sharded_model.hpp"

struct Opened : tessera::ForwardScope {
#ifdef MENDED
  [[nodiscard]] bool lives() const { return is_open(); }
#else
  [[nodiscard]] bool lives() const { return (static_cast<void>(live()), true); }
#endif
};
