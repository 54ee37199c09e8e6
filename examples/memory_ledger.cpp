// Trains a GPT for a few steps, then prints every rank's memory and the ledger of every process,
// which adds up to what the system reports as resident. As one process, or as several:
//
//   memory_ledger [strategy = zero3]
//   mpirun -n 4 memory_ledger zero3

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/tessera.hpp"

namespace {

void train(tessera::World& world, tessera::Strategy strategy) {
  const tessera::nn::DecoderConfig config{
      .layers = 4, .hidden = 128, .heads = 4, .vocab = 256, .seq = 64};
  auto gpt = tessera::shard(tessera::nn::Decoder(config), world, {.strategy = strategy});
  gpt.materialize(/*seed=*/1);
  gpt.optimize_with(tessera::AdamW{});

  // Memory that the library did not allocate is counted once it is registered.
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(4 * config.seq), 42);
  const tessera::CountedMemory data = world.memory().register_memory(
      tessera::Category::workspace, tokens.size() * sizeof(tokens[0]), "tokens");
  for (int step = 0; step < 3; ++step) {
    gpt.forward_backward(tokens, tokens);
    gpt.step();
  }

  const tessera::JobMemory memory = tessera::gather_memory(world);  // on every rank
  const std::vector<tessera::ProcessLedger> ledgers = tessera::gather_ledgers(world);  // likewise
  if (world.rank() == 0) {
    std::printf("%s\n", memory.text().c_str());
    for (const tessera::ProcessLedger& ledger : ledgers) {
      std::printf("%s\n", ledger.text().c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const tessera::Strategy strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
    tessera::run([&](tessera::World& world) { train(world, strategy); });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_ledger: %s\n", error.what());
    return 1;
  }
}
