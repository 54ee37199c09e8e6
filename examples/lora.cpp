// Low-rank adaptation (Hu et al. 2021) with Tessera: a base model is frozen, and small adapters
// beside its matrices are trained. Frozen parameters need neither gradients nor optimizer state,
// and with zero3 each rank keeps only 1/N of them.
//
//   block:  y = x + tanh(x W + (x A) B)      W [h, h] frozen, A [h, r] and B [r, h] trained, B = 0
//
// The base maps x to some y; the adapters learn the map of the same base with its last matrix
// rotated.
//
//   lora [strategy = zero3] [ranks = 4] [steps = 200]

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

using Matrix = std::vector<float>;  // row-major

constexpr std::int64_t kHidden = 48;
constexpr std::int64_t kRank = 4;
constexpr std::int64_t kBatch = 16;  // samples per rank
constexpr std::size_t kBlocks = 3;

// c (m x n) += a (m x k) * b (k x n), and variants with a transposed factor.
void add_product(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t j = 0; j < n; ++j) { c[i * n + j] += a[i * k + l] * b[l * n + j]; }
    }
  }
}
void add_product_bt(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                    std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) { c[i * n + j] += a[i * k + l] * b[j * k + l]; }
    }
  }
}
void add_product_at(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                    std::int64_t k) {
  for (std::int64_t l = 0; l < k; ++l) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) { c[i * n + j] += a[l * m + i] * b[l * n + j]; }
    }
  }
}

struct Saved {
  Matrix x, low, bent;  // the input, x A, and the tanh
};

void forward(const tessera::Scope& p, Saved& saved, Matrix& y) {
  saved.low.assign(kBatch * kRank, 0.0F);
  saved.bent.assign(kBatch * kHidden, 0.0F);
  add_product(saved.x.data(), p["base"], saved.bent.data(), kBatch, kHidden, kHidden);
  add_product(saved.x.data(), p["lora_a"], saved.low.data(), kBatch, kRank, kHidden);
  add_product(saved.low.data(), p["lora_b"], saved.bent.data(), kBatch, kHidden, kRank);
  y = saved.x;
  for (std::size_t i = 0; i < y.size(); ++i) {
    saved.bent[i] = std::tanh(saved.bent[i]);
    y[i] += saved.bent[i];
  }
}

// Replaces dy by dx. Only the adapters have gradients; the base has none.
void backward(const tessera::BackwardScope& g, const Saved& saved, Matrix& dy) {
  Matrix dz = dy;
  Matrix dlow(kBatch * kRank, 0.0F);
  for (std::size_t i = 0; i < dz.size(); ++i) { dz[i] *= 1.0F - saved.bent[i] * saved.bent[i]; }
  add_product_at(saved.low.data(), dz.data(), g.grad("lora_b"), kRank, kHidden, kBatch);
  add_product_bt(dz.data(), g["lora_b"], dlow.data(), kBatch, kRank, kHidden);
  add_product_at(saved.x.data(), dlow.data(), g.grad("lora_a"), kHidden, kRank, kBatch);
  add_product_bt(dlow.data(), g["lora_a"], dy.data(), kBatch, kHidden, kRank);
  add_product_bt(dz.data(), g["base"], dy.data(), kBatch, kHidden, kHidden);
}

// The base's trained weights, or, for the adapters' target, with a changed last matrix.
void base_weight(std::size_t block, bool turned, std::int64_t first, std::span<float> out) {
  tessera::init::fill_normal(/*seed=*/1, static_cast<std::uint32_t>(block), first, 0.2F, out);
  if (!turned || block + 1 < kBlocks) { return; }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = first + static_cast<std::int64_t>(i);
    const auto row = at / kHidden;
    out[i] += 0.3F * std::sin(static_cast<float>(row)) * std::cos(static_cast<float>(at % kHidden));
  }
}

struct Outcome {
  double first_loss = 0.0;
  double last_loss = 0.0;
  tessera::ModelStateBytes bytes;
  bool base_kept = true;
};

// One rank's program; with `full` nothing is frozen and everything is trained.
Outcome train(tessera::World& world, tessera::Strategy strategy, bool full, int steps) {
  tessera::ShardedModel model{world, {.strategy = strategy}};
  std::vector<tessera::Unit> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(
        model.add_unit("block." + std::to_string(i),
                       {{.name = "base", .shape = {kHidden, kHidden}, .trainable = full},
                        {.name = "lora_a", .shape = {kHidden, kRank}},
                        {.name = "lora_b", .shape = {kRank, kHidden}}}));
  }
  const auto initial = [](const tessera::ParameterInfo& p, std::int64_t first,
                          std::span<float> out) {
    if (p.name == "base") { return base_weight(p.id / 3, false, first, out); }
    if (p.name == "lora_b") { return std::fill(out.begin(), out.end(), 0.0F); }
    tessera::init::fill_normal(/*seed=*/2, p.id, first, 0.3F, out);
  };
  model.materialize(initial);
  model.optimize_with(tessera::AdamW{.lr = 0.01F, .weight_decay = 0.0F});

  Matrix wanted(kHidden * kHidden);
  Outcome outcome{.bytes = model.state_bytes()};
  std::vector<Saved> saved(kBlocks);
  for (int step = 0; step < steps; ++step) {
    Matrix x(kBatch * kHidden), target;
    const auto sample = static_cast<std::uint32_t>(step * world.size() + world.rank());
    tessera::init::fill_normal(/*seed=*/3, sample, 0, 1.0F, x);
    target = x;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      Matrix bent(kBatch * kHidden, 0.0F);
      base_weight(i, true, 0, wanted);
      add_product(target.data(), wanted.data(), bent.data(), kBatch, kHidden, kHidden);
      for (std::size_t j = 0; j < bent.size(); ++j) { target[j] += std::tanh(bent[j]); }
    }
    for (std::size_t i = 0; i < kBlocks; ++i) {
      saved[i].x = x;
      const auto p = model.forward(blocks[i]);
      forward(p, saved[i], x);
    }
    double loss = 0.0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const float error = x[j] - target[j];
      loss += static_cast<double>(error) * error / static_cast<double>(x.size());
      x[j] = 2.0F * error / static_cast<float>(x.size());
    }
    for (std::size_t i = kBlocks; i-- > 0;) {
      const auto g = model.backward(blocks[i]);
      backward(g, saved[i], x);
    }
    model.step(&loss);
    (step == 0 ? outcome.first_loss : outcome.last_loss) = model.report().loss;
  }
  model.export_state(tessera::StateTensor::parameters,
                     [&](const tessera::ParameterInfo& p, std::span<const float> values) {
                       if (p.name != "base" || full) { return; }
                       Matrix before(values.size());
                       base_weight(p.id / 3, false, 0, before);
                       outcome.base_kept = outcome.base_kept &&
                                           std::equal(before.begin(), before.end(), values.begin());
                     });
  return outcome;
}

Outcome run(tessera::Strategy strategy, int ranks, bool full, int steps) {
  Outcome of_rank0;
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    const Outcome mine = train(world, strategy, full, steps);
    if (world.rank() == 0) { of_rank0 = mine; }
  });
  return of_rank0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
    const int ranks = argc > 2 ? std::atoi(argv[2]) : 4;
    const int steps = argc > 3 ? std::atoi(argv[3]) : 200;
    const Outcome all = run(strategy, ranks, /*full=*/true, /*steps=*/0);
    const Outcome lora = run(strategy, ranks, /*full=*/false, steps);

    std::printf("bytes on rank 0      parameters  gradients  optimizer\n");
    for (const auto& [name, bytes] :
         {std::pair{"all trained", all.bytes}, {"adapters", lora.bytes}}) {
      std::printf("%-20s %10zu %10zu %10zu\n", name, bytes.parameters, bytes.gradients,
                  bytes.optimizer);
    }
    // Of h h + 2 r h elements 2 r h are trained: 6 of 42 here. Each shard is rounded up to 64.
    const double trained =
        static_cast<double>(lora.bytes.optimizer) / static_cast<double>(all.bytes.optimizer);
    std::printf("optimizer memory: %.3f of all trained; loss %.5f at first, %.5f at last\n",
                trained, lora.first_loss, lora.last_loss);
    const bool small = trained < 0.2 && lora.bytes.gradients * 5 < all.bytes.gradients;
    if (!lora.base_kept) { std::printf("the frozen base has CHANGED\n"); }
    return small && lora.base_kept && lora.last_loss < 0.6 * lora.first_loss ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lora: %s\n", error.what());
    return 1;
  }
}
