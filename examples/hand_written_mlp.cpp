// A hand-written trainer with Tessera: its own loops and memory, raw pointers, and no layers from
// the library. It learns y = sin(x0) * x1 with a small MLP, on any number of ranks and with any
// strategy. Before it allocates anything, it plans what each rank will hold, by running the same
// program on a device that only counts.
//
//   hand_written_mlp [strategy = zero3] [ranks = 4] [steps = 300]

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

constexpr std::int64_t kInputs = 2;
constexpr std::int64_t kHidden = 61;  // no number of ranks divides it
constexpr std::int64_t kBatch = 16;   // samples per rank
constexpr std::size_t kOwnBytes = sizeof(float) * kBatch * (kInputs + 3 * kHidden + 1);

struct Layer {
  std::int64_t in;
  std::int64_t out;
  bool tanh;
  tessera::Unit unit;
};

// y = x w + b, then tanh on the hidden layers.
void forward(const Layer& layer, const Matrix& x, const float* w, const float* b, Matrix& y) {
  y.resize(static_cast<std::size_t>(kBatch * layer.out));
  for (std::int64_t r = 0; r < kBatch; ++r) {
    for (std::int64_t c = 0; c < layer.out; ++c) {
      float sum = b[c];
      for (std::int64_t k = 0; k < layer.in; ++k) {
        sum += x[static_cast<std::size_t>(r * layer.in + k)] * w[k * layer.out + c];
      }
      y[static_cast<std::size_t>(r * layer.out + c)] = layer.tanh ? std::tanh(sum) : sum;
    }
  }
}

// Adds to dw and db, which hold zeros or earlier micro-batches' gradients; overwrites dx.
void backward(const Layer& layer, const Matrix& x, const Matrix& y, const Matrix& dy,
              const float* w, float* dw, float* db, Matrix& dx) {
  dx.assign(static_cast<std::size_t>(kBatch * layer.in), 0.0F);
  for (std::int64_t r = 0; r < kBatch; ++r) {
    for (std::int64_t c = 0; c < layer.out; ++c) {
      const auto at = static_cast<std::size_t>(r * layer.out + c);
      const float dz = layer.tanh ? dy[at] * (1.0F - y[at] * y[at]) : dy[at];
      db[c] += dz;
      for (std::int64_t k = 0; k < layer.in; ++k) {
        dw[k * layer.out + c] += x[static_cast<std::size_t>(r * layer.in + k)] * dz;
        dx[static_cast<std::size_t>(r * layer.in + k)] += w[k * layer.out + c] * dz;
      }
    }
  }
}

void sample(std::int64_t first, Matrix& x, Matrix& target) {
  x.clear();
  target.clear();
  for (std::int64_t i = first; i < first + kBatch; ++i) {
    const auto a = static_cast<float>(std::fmod(static_cast<double>(i) * 0.754877666, 1.0) * 4 - 2);
    const auto b = static_cast<float>(std::fmod(static_cast<double>(i) * 0.569840291, 1.0) * 4 - 2);
    x.insert(x.end(), {a, b});
    target.push_back(std::sin(a) * b);
  }
}

// Mean squared errors of the first and the last steps.
struct Losses {
  double first = 0.0;
  double last = 0.0;
};

// One rank's program.
Losses train(tessera::World& world, tessera::Strategy strategy, int steps) {
  tessera::ShardedModel model{world, {.strategy = strategy}};
  std::vector<Layer> layers{{kInputs, kHidden, true, {}},
                            {kHidden, kHidden, true, {}},
                            {kHidden, kHidden, true, {}},
                            {kHidden, 1, false, {}}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].unit =
        model.add_unit("layer." + std::to_string(i),
                       {{"weight", {layers[i].in, layers[i].out}}, {"bias", {layers[i].out}}});
  }
  model.materialize(tessera::init::normal(/*seed=*/1, /*stddev=*/0.2F));
  model.optimize_with(tessera::AdamW{.lr = 0.01F, .weight_decay = 0.0F}, {.clip_norm = 1.0F});

  // Registering the program's own memory adds it to the reports.
  const auto own = world.memory().register_memory(tessera::Category::activations, kOwnBytes,
                                                  "activations of the layers");
  Losses losses;
  std::vector<Matrix> x(layers.size() + 1);
  Matrix target;
  Matrix dy;
  Matrix dx;
  for (int step = 0; step < steps; ++step) {
    sample((static_cast<std::int64_t>(step) * world.size() + world.rank()) * kBatch, x[0], target);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto p = model.forward(layers[i].unit);  // gathered here, released at the brace
      world.compute([&] { forward(layers[i], x[i], p["weight"], p["bias"], x[i + 1]); });
    }
    double loss = 0.0;
    world.compute([&] {  // skipped on a device that only counts
      dy.resize(kBatch);
      for (std::size_t r = 0; r < kBatch; ++r) {
        const float error = x.back()[r] - target[r];
        loss += static_cast<double>(error) * error / kBatch;
        dy[r] = 2.0F * error / kBatch;
      }
    });
    for (std::size_t i = layers.size(); i > 0; --i) {
      const Layer& layer = layers[i - 1];
      auto g = model.backward(layer.unit);  // gathered here, reduced at the brace
      world.compute([&] {
        backward(layer, x[i - 1], x[i], dy, g["weight"], g.grad("weight"), g.grad("bias"), dx);
      });
      dy.swap(dx);
    }
    model.step(&loss);
    const tessera::StepReport report = model.report();
    if (step < 10) { losses.first += report.loss / 10; }
    if (step >= steps - 10) { losses.last += report.loss / 10; }
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
    const int ranks = argc > 2 ? std::atoi(argv[2]) : 4;
    const int steps = argc > 3 ? std::atoi(argv[3]) : 300;
    // One step needs as much memory as any number of steps.
    const auto planned = tessera::plan({.ranks = ranks}, [&](tessera::World& world) {
      (void)train(world, strategy, /*steps=*/1);
    });
    for (const tessera::PlannedRank& rank : planned) {
      std::printf("planned: rank %d and %d like it hold %zu bytes at most\n", rank.rank,
                  rank.count - 1, rank.memory.peak_bytes);
    }

    Losses losses;
    bool as_planned = true;
    std::mutex printing;
    tessera::run_ranks(ranks, [&](tessera::World& world) {
      const Losses mine = train(world, strategy, steps);
      const std::size_t peak = world.memory().report().peak_bytes;
      const bool first_kind = world.rank() < planned[0].count;
      const std::lock_guard lock{printing};
      as_planned = as_planned && peak == planned[first_kind ? 0 : 1].memory.peak_bytes;
      std::printf("rank %d held %zu bytes at most\n", world.rank(), peak);
      if (world.rank() == 0) { losses = mine; }
    });
    std::printf("%s\n", as_planned ? "as planned, to the byte" : "NOT as planned");
    std::printf("mean squared error: %.4f at first, %.4f at last\n", losses.first, losses.last);
    return as_planned && losses.last < 0.5 * losses.first ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hand_written_mlp: %s\n", error.what());
    return 1;
  }
}
