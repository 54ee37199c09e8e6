// A model whose layers are not part of Tessera (RMSNorm, rotary embedding, SwiGLU), built from the
// library's kernels with installed headers only (llama_block.hpp, docs/own-layers.md). It is
// trained replicated and sharded, with the same bits.
//
//   own_layers [ranks = 2] [steps = 40]

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "llama_model.hpp"
#include "tessera/world/run.hpp"

namespace {

std::vector<double> train(tessera::Strategy strategy, int ranks, int steps) {
  std::vector<double> losses;
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    const llama::Sizes sizes;
    tessera::ShardedModel model{world, {.strategy = strategy}};
    llama::Model llama{model, sizes};
    model.materialize(llama.initializer(/*seed=*/1));
    model.optimize_with(tessera::AdamW{.lr = 5e-3F});
    for (int step = 0; step < steps; ++step) {
      const llama::Text text{sizes, step, world.rank()};
      llama.forward_backward(text.tokens, text.targets);
      model.step(llama.loss());
      if (world.rank() == 0) { losses.push_back(model.report().loss); }
    }
  });
  return losses;
}

int run(int ranks, int steps) {
  const std::vector<double> replicated = train(tessera::Strategy::ddp, ranks, steps);
  const std::vector<double> sharded = train(tessera::Strategy::zero3, ranks, steps);
  std::printf("%d ranks, %d steps: a loss of %.4f, then %.4f\n", ranks, steps, replicated.front(),
              replicated.back());
  if (replicated != sharded) {
    std::fprintf(stderr, "ddp and zero3 differ\n");
    return 1;
  }
  std::printf("ddp and zero3 give the same bits\n");
  return replicated.back() < 0.6 * replicated.front() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 40;
  if (ranks < 1 || steps < 1) {
    std::fprintf(stderr, "usage: own_layers [ranks] [steps], both at least 1\n");
    return 2;
  }
  try {
    return run(ranks, steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
