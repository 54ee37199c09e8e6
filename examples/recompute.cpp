// Recompute in a hand-written trainer: its own loops and memory, and raw pointers. A block's
// backward scope has the same parameters as its forward scope, so the trainer may rerun the block's
// forward in it instead of keeping what is inside the block: one gather serves both. This program
// trains twice, keeping everything and keeping only the blocks' inputs, and compares the two.
//
//   recompute [strategy = zero3] [ranks = 2] [steps = 40]

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kInside = 4 * kWidth;
constexpr std::int64_t kBatch = 32;  // samples per rank
constexpr int kBlocks = 6;

// y = x + tanh(x w) v, for rows of kWidth; `inside` keeps tanh(x w) for backward.
void forward(const float* x, const float* w, const float* v, float* inside, float* y) {
  for (std::int64_t r = 0; r < kBatch; ++r) {
    for (std::int64_t i = 0; i < kInside; ++i) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < kWidth; ++k) { sum += x[r * kWidth + k] * w[k * kInside + i]; }
      inside[r * kInside + i] = std::tanh(sum);
    }
    for (std::int64_t c = 0; c < kWidth && y != nullptr; ++c) {
      float sum = x[r * kWidth + c];
      for (std::int64_t i = 0; i < kInside; ++i) {
        sum += inside[r * kInside + i] * v[i * kWidth + c];
      }
      y[r * kWidth + c] = sum;
    }
  }
}

struct Gradients {
  float* dw;
  float* dv;
  float* dx;  // in: gradient of y; out: gradient of x
};

void backward(const float* x, const float* w, const float* v, const float* inside,
              const Gradients& to) {
  std::vector<float> dz(kInside);
  for (std::int64_t r = 0; r < kBatch; ++r) {
    float* dx = to.dx + r * kWidth;
    for (std::int64_t i = 0; i < kInside; ++i) {
      const float t = inside[r * kInside + i];
      float sum = 0.0F;
      for (std::int64_t c = 0; c < kWidth; ++c) {
        sum += dx[c] * v[i * kWidth + c];
        to.dv[i * kWidth + c] += dx[c] * t;
      }
      dz[static_cast<std::size_t>(i)] = sum * (1.0F - t * t);
    }
    for (std::int64_t k = 0; k < kWidth; ++k) {
      for (std::int64_t i = 0; i < kInside; ++i) {
        const float d = dz[static_cast<std::size_t>(i)];
        to.dw[k * kInside + i] += x[r * kWidth + k] * d;
        dx[k] += w[k * kInside + i] * d;
      }
    }
  }
}

enum class Keep { everything, inputs };

struct Outcome {
  std::vector<double> losses;
  std::size_t peak_bytes = 0;
};

// One rank's program.
Outcome train(tessera::World& world, tessera::Strategy strategy, int steps, Keep keep) {
  tessera::ShardedModel model{world, {.strategy = strategy}};
  std::vector<tessera::Unit> blocks;
  for (int b = 0; b < kBlocks; ++b) {
    blocks.push_back(model.add_unit("block." + std::to_string(b),
                                    {{"w", {kWidth, kInside}}, {"v", {kInside, kWidth}}}));
  }
  model.materialize(tessera::init::normal(/*seed=*/1, /*stddev=*/0.1F));
  model.optimize_with(tessera::AdamW{.lr = 3e-3F});

  // The residual stream before and after each block, and what is inside: for each block, or for one
  // at a time.
  constexpr std::int64_t stream = kBatch * kWidth;
  constexpr std::int64_t inside = kBatch * kInside;
  const int held = keep == Keep::everything ? kBlocks : 1;
  const tessera::Buffer own = world.allocate(
      tessera::Category::activations,
      sizeof(float) * static_cast<std::size_t>((kBlocks + 2) * stream + held * inside), "own");
  const auto x = [&](std::size_t b) {
    return own.floats() + static_cast<std::int64_t>(b) * stream;
  };
  float* const dx = x(kBlocks + 1);
  const auto inside_of = [&](std::size_t b) {
    const std::size_t slot = keep == Keep::everything ? b : 0;
    return dx + stream + static_cast<std::int64_t>(slot) * inside;
  };

  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    world.compute([&] {
      for (std::int64_t i = 0; i < stream; ++i) {
        x(0)[i] = std::sin(static_cast<float>(i * 7 + step % 5 + world.rank()));
      }
    });
    for (std::size_t b = 0; b < kBlocks; ++b) {
      auto p = model.forward(blocks[b]);
      world.compute([&] { forward(x(b), p["w"], p["v"], inside_of(b), x(b + 1)); });
    }
    double loss = 0.0;
    world.compute([&] {  // mean squared difference from the reversed input
      for (std::int64_t i = 0; i < stream; ++i) {
        const float error = x(kBlocks)[i] - x(0)[stream - 1 - i];
        loss += static_cast<double>(error) * error / stream;
        dx[i] = 2.0F * error / stream;
      }
    });
    for (std::size_t b = kBlocks; b-- > 0;) {
      auto g = model.backward(blocks[b]);
      world.compute([&] {
        // The last block's are still there.
        const bool again = keep == Keep::inputs && b + 1 < kBlocks;
        if (again) { forward(x(b), g["w"], g["v"], inside_of(b), nullptr); }
        backward(x(b), g["w"], g["v"], inside_of(b), {g.grad("w"), g.grad("v"), dx});
      });
    }
    model.step(&loss);
    outcome.losses.push_back(model.report().loss);
  }
  outcome.peak_bytes = world.memory().report().peak_bytes;
  return outcome;
}

Outcome run(tessera::Strategy strategy, int ranks, int steps, Keep keep) {
  Outcome outcome;
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    Outcome mine = train(world, strategy, steps, keep);
    if (world.rank() == 0) { outcome = std::move(mine); }
  });
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
    const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
    const int steps = argc > 3 ? std::atoi(argv[3]) : 40;
    const Outcome kept = run(strategy, ranks, steps, Keep::everything);
    const Outcome again = run(strategy, ranks, steps, Keep::inputs);
    std::printf("loss %.6f -> %.6f, peak %zu bytes, keeping everything\n", kept.losses.front(),
                kept.losses.back(), kept.peak_bytes);
    std::printf("loss %.6f -> %.6f, peak %zu bytes, keeping inputs\n", again.losses.front(),
                again.losses.back(), again.peak_bytes);
    const bool same = kept.losses == again.losses;  // to the bit
    const std::size_t saved = sizeof(float) * (kBlocks - 1) * kBatch * kInside;
    const bool smaller = kept.peak_bytes - again.peak_bytes == saved;
    std::printf("%s, %s\n", same ? "the same bits" : "NOT the same bits",
                smaller ? "smaller by what is inside five blocks" : "NOT smaller as it should be");
    return same && smaller && kept.losses.back() < 0.7 * kept.losses.front() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "recompute: %s\n", error.what());
    return 1;
  }
}
