// Plans the memory of a libtorch module before any rank holds it: docs/libtorch-features.md.
//
//   plan_net [RANKS]

#include <torch/torch.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "net.hpp"
#include "tessera/tessera.hpp"
#include "tessera/torch.hpp"

int main(int argc, char** argv) {
  try {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    const auto build = [] { return Net(); };
    const auto first_step = [](auto& model) {
      const auto [x, y] = read_batch(0, 16);
      model.backward(torch::mse_loss(model(x), y));
    };
    const std::size_t activations = tessera::torch::measure_activations(build, first_step);
    for (const auto strategy : {tessera::Strategy::ddp, tessera::Strategy::zero3}) {
      const auto plan = tessera::torch::plan(
          build, {.ranks = {.ranks = ranks, .world = {.budget_bytes = std::size_t{1} << 20U}},
                  .shard = {.model = {.strategy = strategy}},
                  .measured_activations = activations});
      std::printf("%s: %s", tessera::to_string(strategy).data(), plan.text().c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
