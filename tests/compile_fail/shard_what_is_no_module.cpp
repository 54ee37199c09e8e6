// Only a module can be sharded: it declares units, initialises them, and has a loss.
// expected: constraints not satisfied|no matching function
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"

void body(tessera::World& world) {
#ifdef MENDED
  auto sharded = tessera::shard(tessera::nn::Decoder(tessera::nn::DecoderConfig{}), world);
#else
  auto sharded = tessera::shard(42, world);
#endif
  sharded.step();
}
