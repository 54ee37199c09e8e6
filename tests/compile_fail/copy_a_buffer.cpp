// Memory has one owner.
// expected: use of deleted function
#include <utility>

#include "tessera/memory/buffer.hpp"

tessera::Buffer second(tessera::Buffer& first) {
#ifdef MENDED
  return std::move(first);
#else
  return first;
#endif
}
