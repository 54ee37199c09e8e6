// A custom trainer on a mesh: residual blocks of an MLP, divided into stages along `pipe`, each cut
// into columns and rows along `tensor`, with its states sharded along `shard`. The losses are those
// of one rank.
//
//   mesh_trainer [pipe = 2] [shard = 1] [tensor = 2] [steps = 50]
//
// Exit status: 0 if every loss is within 1e-5 of one rank's, 1 if not or if a rank fails.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/nn/tensor_ranks.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/tessera.hpp"

namespace {

using Matrix = std::vector<float>;  // row-major

constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kHidden = 61;  // no number of ranks divides it
constexpr int kBlocks = 5;
constexpr int kMicroBatches = 4;
constexpr std::int64_t kBatch = 48;  // samples of a step, divided over data ranks

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

// y = x + tanh(x in + b) out + c, with a rank's columns of `in` and rows of `out`. A block keeps
// this from its forward pass for backward.
struct Kept {
  Matrix x;
  Matrix h;  // the rank's part of the hidden values
};

std::vector<tessera::ParameterSpec> block_parameters() {
  return {{.name = "in.weight", .shape = {kWidth, kHidden}, .cut = tessera::TensorCut{.dim = 1}},
          {.name = "in.bias", .shape = {kHidden}, .cut = tessera::TensorCut{.dim = 0}},
          {.name = "out.weight", .shape = {kHidden, kWidth}, .cut = tessera::TensorCut{.dim = 0}},
          {.name = "out.bias", .shape = {kWidth}}};  // every rank has it, with equal gradients
}

Matrix forward(const tessera::ForwardScope& p, const tessera::nn::TensorRanks& ranks, Matrix x,
               Kept& kept) {
  const std::int64_t rows = std::ssize(x) / kWidth;
  const std::int64_t hidden = p["in.bias"].shape()[0];  // of this rank
  kept.x = std::move(x);
  kept.h.assign(static_cast<std::size_t>(rows * hidden), 0.0F);
  add_product(rows, kWidth, hidden, kept.x.data(), p["in.weight"], kept.h.data());
  const float* bias = p["in.bias"];
  for (std::int64_t i = 0; i < rows * hidden; ++i) {
    float& h = kept.h[static_cast<std::size_t>(i)];
    h = std::tanh(h + bias[i % hidden]);
  }
  Matrix y(kept.x.size());
  add_product(rows, hidden, kWidth, kept.h.data(), p["out.weight"], y.data());
  // Each rank has a partial sum over `hidden`.
  ranks.sum({y.data(), tessera::DType::fp32}, rows, kWidth);
  const float* out_bias = p["out.bias"];
  for (std::size_t i = 0; i < y.size(); ++i) { y[i] += kept.x[i] + out_bias[i % kWidth]; }
  return y;
}

Matrix backward(const tessera::BackwardScope& g, const tessera::nn::TensorRanks& ranks,
                const Kept& kept, const Matrix& dy) {
  const std::int64_t rows = std::ssize(dy) / kWidth;
  const std::int64_t hidden = g["in.bias"].shape()[0];
  float* out_bias = g.grad("out.bias");
  for (std::size_t i = 0; i < dy.size(); ++i) { out_bias[i % kWidth] += dy[i]; }
  add_transposed_product(rows, hidden, kWidth, kept.h.data(), dy.data(), g.grad("out.weight"));
  Matrix dh(kept.h.size());
  add_product_transposed(rows, kWidth, hidden, dy.data(), g["out.weight"], dh.data());
  float* bias = g.grad("in.bias");
  for (std::size_t i = 0; i < dh.size(); ++i) {
    dh[i] *= 1.0F - kept.h[i] * kept.h[i];
    bias[static_cast<std::int64_t>(i) % hidden] += dh[i];
  }
  add_transposed_product(rows, kWidth, hidden, kept.x.data(), dh.data(), g.grad("in.weight"));
  Matrix dx(dy.size());
  add_product_transposed(rows, hidden, kWidth, dh.data(), g["in.weight"], dx.data());
  ranks.sum({dx.data(), tessera::DType::fp32}, rows, kWidth);
  for (std::size_t i = 0; i < dx.size(); ++i) { dx[i] += dy[i]; }
  return dx;
}

struct Samples {
  Matrix x;
  Matrix target;
};

Samples sample(std::int64_t first, std::int64_t rows) {
  Samples samples;
  for (std::int64_t i = first * kWidth; i < (first + rows) * kWidth; ++i) {
    const double x = std::fmod(static_cast<double>(i) * 0.754877666, 1.0) * 4 - 2;
    samples.x.push_back(static_cast<float>(x));
    samples.target.push_back(static_cast<float>(std::sin(2 * x)));
  }
  return samples;
}

std::size_t slot_of(const tessera::pipeline::Turn& turn) {
  return static_cast<std::size_t>(turn.slot);
}

// The mean squared error of one micro-batch; replaces `y` by its gradient.
double mean_squared_error(Matrix& y, const Matrix& target) {
  double loss = 0.0;
  const auto elems = static_cast<float>(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float error = y[i] - target[i];
    loss += static_cast<double>(error) * error / static_cast<double>(y.size());
    y[i] = 2.0F * error / elems;
  }
  return loss;
}

Matrix copy_of(tessera::ConstView view) {
  const auto* const data = static_cast<const float*>(view.data);
  return {data, data + view.elems};
}

void copy(const Matrix& from, tessera::View to) {
  std::ranges::copy(from, static_cast<float*>(to.data));
}

// One rank's program. Returns the loss of each step.
std::vector<double> train(tessera::World& world, const std::vector<tessera::MeshDim>& dims,
                          int steps) {
  const tessera::Mesh mesh{world, dims};
  const int places = mesh.size("pipe");
  tessera::ShardedModel model{world,
                              {.strategy = tessera::Strategy::zero2,
                               .accumulate = kMicroBatches,
                               .mesh = dims,
                               .accumulate_mode = tessera::AccumulateMode::deferred}};
  std::vector<tessera::Unit> here;     // the blocks of this rank's stage
  for (int i = 0; i < kBlocks; ++i) {  // every rank declares all of them
    const int place = i * places / kBlocks;
    const std::string name = "block." + std::to_string(i);
    const tessera::Unit block = model.add_unit(name, block_parameters(), {.pipe = place});
    if (place == mesh.index("pipe")) { here.push_back(block); }
  }
  model.materialize(tessera::init::normal(/*seed=*/1, /*stddev=*/0.3F));
  model.optimize_with(tessera::AdamW{.lr = 0.003F}, {.clip_norm = 1.0F});

  // Ranks along `pipe` and `tensor` have the same samples, other ranks have different ones.
  const tessera::nn::TensorRanks tensor{world, dims};
  const tessera::SubMesh data = mesh.along("replicate", "shard");
  const std::int64_t rows = kBatch / kMicroBatches / data.size();
  tessera::pipeline::Pipeline pipe{
      mesh,
      tessera::pipeline::one_forward_one_backward(places, kMicroBatches),
      {.elems = rows * kWidth}};
  std::vector<std::vector<Kept>> kept(static_cast<std::size_t>(pipe.most_in_flight()),
                                      std::vector<Kept>(here.size()));
  std::vector<Matrix> dy(kept.size());  // of the last stage
  int step = 0;
  double loss = 0.0;
  const auto samples = [&](int micro_batch) {
    const std::int64_t batch = std::int64_t{step} * kMicroBatches + micro_batch;
    return sample((batch * data.size() + data.index()) * rows, rows);
  };
  const tessera::pipeline::Passes passes{
      .forward =
          [&](const tessera::pipeline::Turn& turn, tessera::ConstView input, tessera::View output) {
            const int m = turn.action.micro_batch;
            Samples batch = samples(m);
            Matrix x = input.elems > 0 ? copy_of(input) : std::move(batch.x);
            for (std::size_t i = 0; i < here.size(); ++i) {
              x = forward(model.forward(here[i], m), tensor, std::move(x), kept[slot_of(turn)][i]);
            }
            if (output.elems > 0) { return copy(x, output); }
            loss += mean_squared_error(x, batch.target) / kMicroBatches;
            dy[slot_of(turn)] = std::move(x);
          },
      .backward =
          [&](const tessera::pipeline::Turn& turn, tessera::ConstView /*input*/,
              tessera::ConstView output_gradient, tessera::View input_gradient) {
            const int m = turn.action.micro_batch;
            Matrix d = output_gradient.elems > 0 ? copy_of(output_gradient) : dy[slot_of(turn)];
            for (std::size_t i = here.size(); i-- > 0;) {
              d = backward(model.backward(here[i], m), tensor, kept[slot_of(turn)][i], d);
            }
            if (input_gradient.elems > 0) { copy(d, input_gradient); }
          },
      .backward_weight = {}};

  const bool last = mesh.index("pipe") + 1 == places;
  std::vector<double> losses;
  for (; step < steps; ++step) {
    loss = 0.0;
    pipe.run(passes);
    model.step(last ? &loss : nullptr);
    losses.push_back(model.report().loss);
  }
  return losses;
}

// The argument `index`, or `preset` if there are fewer.
int argument(int argc, char** argv, int index, const char* name, int preset) {
  if (index >= argc) { return preset; }
  const std::string word = argv[index];
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 1) {
    throw std::invalid_argument(std::string{name} + ": '" + word +
                                "' is no whole number from 1; give one");
  }
  return value;
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
    const int pipe = argument(argc, argv, 1, "pipe", 2);
    const int shard = argument(argc, argv, 2, "shard", 1);
    const int tensor = argument(argc, argv, 3, "tensor", 2);
    const int steps = argument(argc, argv, 4, "steps", 50);
    if (kBatch / kMicroBatches % shard != 0 || pipe > kBlocks) {
      std::fprintf(stderr, "mesh_trainer: pipe is at most %d, shard divides %lld\n", kBlocks,
                   static_cast<long long>(kBatch / kMicroBatches));
      return 1;
    }
    const std::vector<double> alone = losses_of({{"pipe", 1}}, steps);
    const std::vector<double> together =
        losses_of({{"pipe", pipe}, {"shard", shard}, {"tensor", tensor}}, steps);
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
