// A trainer of one's own on a mesh: residual blocks of an MLP, each cut into columns and rows along
// `tensor`, its parameters sharded along `shard`. Losses are those of one rank.
//
//   mesh_trainer [tensor = 2] [shard = 2] [steps = 50]
//
// Exit status: 0 if every loss is one rank's within 1e-5, 1 if not or if a rank fails.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

using Matrix = std::vector<float>;  // row-major

constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kHidden = 61;  // no number of ranks divides it
constexpr std::int64_t kBlocks = 4;
constexpr std::int64_t kBatch = 24;  // samples of a step, shared out over the data ranks

// c += a b, where a is [rows, inner] and b [inner, cols].
void add_product(std::int64_t rows, std::int64_t inner, std::int64_t cols, const float* a,
                 const float* b, float* c) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < inner; ++k) {
      for (std::int64_t j = 0; j < cols; ++j) {
        c[r * cols + j] += a[r * inner + k] * b[k * cols + j];
      }
    }
  }
}

// c += a^T b, where a is [rows, n] and b [rows, m].
void add_transposed_product(std::int64_t rows, std::int64_t n, std::int64_t m, const float* a,
                            const float* b, float* c) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) { c[i * m + j] += a[r * n + i] * b[r * m + j]; }
    }
  }
}

// c += a b^T, where a is [rows, inner] and b [cols, inner].
void add_product_transposed(std::int64_t rows, std::int64_t inner, std::int64_t cols,
                            const float* a, const float* b, float* c) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < cols; ++j) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < inner; ++k) { sum += a[r * inner + k] * b[j * inner + k]; }
      c[r * cols + j] += sum;
    }
  }
}

// The ranks that share a layer, and how they add.
class TensorSum {
 public:
  TensorSum(tessera::World& world, const tessera::Mesh& mesh)
      : world_{world},
        channel_{mesh.along("tensor").beside("sums")},
        mark_{world.device().make_event()} {}

  // Leaves the sum of all ranks' `values` in `values`, ready on the compute stream.
  void add(Matrix& values) {
    tessera::Batch batch{"add along tensor"};
    batch.all_reduce({values.data(), std::ssize(values), tessera::DType::fp32});
    world_.compute_stream().record(mark_.get());
    channel_.stream.wait_for(mark_.get());
    channel_.communicator.submit(std::move(batch), channel_.stream);
    channel_.stream.record(mark_.get());
    world_.compute_stream().wait_for(mark_.get());
  }

 private:
  tessera::World& world_;
  tessera::Channel channel_;
  tessera::OwnedEvent mark_;
};

// y = x + tanh(x in + b) out + c, with a rank's columns of `in` and rows of `out`.
struct Block {
  tessera::Unit unit;
  Matrix x;  // what backward needs: input, and the rank's part of the hidden values
  Matrix h;
};

std::vector<tessera::ParameterSpec> block_parameters() {
  return {{.name = "in.weight", .shape = {kWidth, kHidden}, .cut = tessera::TensorCut{.dim = 1}},
          {.name = "in.bias", .shape = {kHidden}, .cut = tessera::TensorCut{.dim = 0}},
          {.name = "out.weight", .shape = {kHidden, kWidth}, .cut = tessera::TensorCut{.dim = 0}},
          {.name = "out.bias", .shape = {kWidth}}};  // every rank has it, with equal gradients
}

Matrix forward(Block& block, const tessera::ForwardScope& p, TensorSum& ranks, Matrix x) {
  const std::int64_t rows = std::ssize(x) / kWidth;
  const std::int64_t hidden = p["in.bias"].shape()[0];  // of this rank
  block.x = std::move(x);
  block.h.assign(static_cast<std::size_t>(rows * hidden), 0.0F);
  add_product(rows, kWidth, hidden, block.x.data(), p["in.weight"], block.h.data());
  const float* bias = p["in.bias"];
  for (std::int64_t i = 0; i < rows * hidden; ++i) {
    float& h = block.h[static_cast<std::size_t>(i)];
    h = std::tanh(h + bias[i % hidden]);
  }
  Matrix y(block.x.size());
  add_product(rows, hidden, kWidth, block.h.data(), p["out.weight"], y.data());
  ranks.add(y);  // each rank had a part of the sum over `hidden`
  const float* out_bias = p["out.bias"];
  for (std::size_t i = 0; i < y.size(); ++i) { y[i] += block.x[i] + out_bias[i % kWidth]; }
  return y;
}

Matrix backward(const Block& block, const tessera::BackwardScope& g, TensorSum& ranks,
                const Matrix& dy) {
  const std::int64_t rows = std::ssize(dy) / kWidth;
  const std::int64_t hidden = g["in.bias"].shape()[0];
  float* out_bias = g.grad("out.bias");
  for (std::size_t i = 0; i < dy.size(); ++i) { out_bias[i % kWidth] += dy[i]; }
  add_transposed_product(rows, hidden, kWidth, block.h.data(), dy.data(), g.grad("out.weight"));
  Matrix dh(block.h.size());
  add_product_transposed(rows, kWidth, hidden, dy.data(), g["out.weight"], dh.data());
  float* bias = g.grad("in.bias");
  for (std::size_t i = 0; i < dh.size(); ++i) {
    dh[i] *= 1.0F - block.h[i] * block.h[i];
    bias[static_cast<std::int64_t>(i) % hidden] += dh[i];
  }
  add_transposed_product(rows, kWidth, hidden, block.x.data(), dh.data(), g.grad("in.weight"));
  Matrix dx(dy.size());
  add_product_transposed(rows, hidden, kWidth, dh.data(), g["in.weight"], dx.data());
  ranks.add(dx);
  for (std::size_t i = 0; i < dx.size(); ++i) { dx[i] += dy[i]; }
  return dx;
}

void sample(std::int64_t first, std::int64_t rows, Matrix& x, Matrix& target) {
  x.clear();
  target.clear();
  for (std::int64_t i = first * kWidth; i < (first + rows) * kWidth; ++i) {
    x.push_back(static_cast<float>(std::fmod(static_cast<double>(i) * 0.754877666, 1.0) * 4 - 2));
    target.push_back(std::sin(2 * x.back()));
  }
}

// One rank's program. Returns the loss of each step.
std::vector<double> train(tessera::World& world, std::vector<tessera::MeshDim> dims, int steps) {
  const tessera::Mesh mesh{world, dims};
  tessera::ShardedModel model{world, {.strategy = tessera::Strategy::zero3, .mesh = dims}};
  std::vector<Block> blocks(kBlocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].unit = model.add_unit("block." + std::to_string(i), block_parameters());
  }
  model.materialize(tessera::init::normal(/*seed=*/1, /*stddev=*/0.3F));
  model.optimize_with(tessera::AdamW{.lr = 0.003F}, {.clip_norm = 1.0F});

  TensorSum along_tensor{world, mesh};
  // Ranks along `tensor` have the same samples, ranks along `replicate` and `shard` different ones.
  const tessera::SubMesh data = mesh.along("replicate", "shard");
  const std::int64_t rows = kBatch / data.size();
  std::vector<double> losses;
  Matrix x;
  Matrix target;
  for (int step = 0; step < steps; ++step) {
    sample(step * kBatch + data.index() * rows, rows, x, target);
    for (Block& block : blocks) {
      x = forward(block, model.forward(block.unit), along_tensor, std::move(x));
    }
    double loss = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float error = x[i] - target[i];
      loss += static_cast<double>(error) * error / static_cast<double>(x.size());
      x[i] = 2.0F * error / static_cast<float>(x.size());
    }
    for (std::size_t i = blocks.size(); i-- > 0;) {
      x = backward(blocks[i], model.backward(blocks[i].unit), along_tensor, x);
    }
    model.step(&loss);
    losses.push_back(model.report().loss);
  }
  return losses;
}

std::vector<double> losses_of(const std::vector<tessera::MeshDim>& dims, int steps) {
  std::vector<double> losses;
  tessera::run_ranks(tessera::MeshShape{dims}.ranks(), [&](tessera::World& world) {
    std::vector<double> mine = train(world, dims, steps);
    if (world.rank() == 0) { losses = std::move(mine); }
  });
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int tensor = argc > 1 ? std::atoi(argv[1]) : 2;
    const int shard = argc > 2 ? std::atoi(argv[2]) : 2;
    const int steps = argc > 3 ? std::atoi(argv[3]) : 50;
    if (shard < 1 || kBatch % shard != 0 || steps < 1) {
      std::fprintf(stderr, "mesh_trainer: shard divides %lld, and steps is at least 1\n",
                   static_cast<long long>(kBatch));
      return 1;
    }
    const std::vector<double> alone = losses_of({{"tensor", 1}}, steps);
    const std::vector<double> together = losses_of({{"shard", shard}, {"tensor", tensor}}, steps);
    double apart = 0.0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      apart = std::max(apart, std::abs(alone[i] - together[i]));
    }
    std::printf("loss %.6f at first, %.6f at last; from one rank's at most %.1e\n",
                together.front(), together.back(), apart);
    return apart < 1e-5 && together.back() < together.front() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mesh_trainer: %s\n", error.what());
    return 1;
  }
}
