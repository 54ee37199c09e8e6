// A rank has one World, which owns all of its resources.
// expected: use of deleted function 'tessera::World::World\(const tessera::World&\)'
#include "tessera/world/world.hpp"

void body(tessera::World& world) {
#ifdef MENDED
  tessera::World& mine = world;
#else
  tessera::World mine = world;
#endif
  mine.barrier();
}
