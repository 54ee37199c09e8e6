// What each rank holds under each strategy: the same model, wrapped six times, trained for a few
// steps, its memory side by side; hybrid in two groups where the ranks are even.
//
//   ddp_vs_zero [ranks = 4] [layers = 8] [width = 256]

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

struct Size {
  int ranks;
  std::int64_t layers;
  std::int64_t width;
};

struct RankMemory {
  tessera::ModelStateBytes state;
  tessera::MemoryReport memory;
};

int half(tessera::Strategy strategy, const Size& size) {
  if (strategy != tessera::Strategy::hybrid) { return 0; }
  return size.ranks % 2 == 0 ? size.ranks / 2 : size.ranks;
}

// A stack of equal layers y = x + 0.1 w x, on one vector: enough to move every byte that training
// moves. The loss is |y|^2 / 2.
std::vector<RankMemory> train(tessera::Strategy strategy, const Size& size, double& loss_out) {
  std::vector<RankMemory> per_rank(static_cast<std::size_t>(size.ranks));
  tessera::run_ranks(size.ranks, [&](tessera::World& world) {
    tessera::ShardedModel model{world, {.strategy = strategy, .shard_group = half(strategy, size)}};
    std::vector<tessera::Unit> layers;
    for (std::int64_t i = 0; i < size.layers; ++i) {
      layers.push_back(
          model.add_unit("layer." + std::to_string(i), {{"weight", {size.width, size.width}}}));
    }
    model.materialize(tessera::init::normal(1, 0.05F));
    model.optimize_with(tessera::AdamW{.lr = 0.01F});

    const auto n = static_cast<std::size_t>(size.width);
    double loss = 0.0;
    for (int step = 0; step < 4; ++step) {
      std::vector<std::vector<float>> x{std::vector<float>(n, 0.1F)};
      for (const tessera::Unit layer : layers) {
        const auto p = model.forward(layer);
        const float* w = p["weight"];
        std::vector<float> y = x.back();
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t k = 0; k < n; ++k) { y[i] += 0.1F * w[i * n + k] * x.back()[k]; }
        }
        x.push_back(std::move(y));
      }
      std::vector<float> dy = x.back();
      loss = 0.0;
      for (const float y : x.back()) { loss += 0.5 * static_cast<double>(y) * y; }
      for (std::size_t l = layers.size(); l > 0; --l) {
        const auto g = model.backward(layers[l - 1]);
        const float* w = g["weight"];
        float* dw = g.grad("weight");
        std::vector<float> dx = dy;
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t k = 0; k < n; ++k) {
            dw[i * n + k] += 0.1F * dy[i] * x[l - 1][k];
            dx[k] += 0.1F * w[i * n + k] * dy[i];
          }
        }
        dy = std::move(dx);
      }
      model.step(&loss);
    }
    per_rank[static_cast<std::size_t>(world.rank())] = {model.state_bytes(),
                                                        world.memory().report()};
    if (world.rank() == 0) { loss_out = model.report().loss; }
  });
  return per_rank;
}

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void print(tessera::Strategy strategy, const std::vector<RankMemory>& ranks, double loss) {
  const std::string name{tessera::to_string(strategy)};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& [state, memory] = ranks[r];
    std::printf("%-6s %4zu  %10.2f %10.2f %10.2f  %8.2f %8.2f  %10.2f   %.17g\n", name.c_str(), r,
                mib(state.parameters), mib(state.gradients), mib(state.optimizer),
                mib(memory.at_peak[tessera::Category::gather]),
                mib(memory.at_peak[tessera::Category::reduce]), mib(memory.peak_bytes), loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Size size{argc > 1 ? std::atoi(argv[1]) : 4, argc > 2 ? std::atoll(argv[2]) : 8,
                    argc > 3 ? std::atoll(argv[3]) : 256};
    std::printf("%lld layers of %lld x %lld on %d ranks, fp32, AdamW; MiB\n\n",
                static_cast<long long>(size.layers), static_cast<long long>(size.width),
                static_cast<long long>(size.width), size.ranks);
    std::printf(
        "        rank  parameters  gradients  optimizer    gather   reduce        peak   "
        "last loss\n");
    bool same = true;
    double reference = 0.0;
    std::map<tessera::Strategy, std::size_t> peak;
    for (const tessera::Strategy strategy : tessera::all_strategies()) {
      double loss = 0.0;
      const std::vector<RankMemory> ranks = train(strategy, size, loss);
      print(strategy, ranks, loss);
      peak[strategy] = ranks.back().memory.peak_bytes;
      if (strategy == tessera::Strategy::dp) { reference = loss; }
      // Groups add up their gradients first: the same to rounding.
      const double allowed = strategy == tessera::Strategy::hybrid ? 1e-5 * std::abs(reference) : 0;
      same = same && std::abs(loss - reference) <= allowed;
    }
    std::printf("\nlosses are %s\n",
                same ? "bit-identical, hybrid's to rounding" : "NOT identical");
    const bool saves = size.ranks == 1 || size.layers < 6 ||
                       peak[tessera::Strategy::zero3] < peak[tessera::Strategy::ddp];
    return same && saves ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_vs_zero: %s\n", error.what());
    return 1;
  }
}
