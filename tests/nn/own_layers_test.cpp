// A custom block made of the public kernels with only installed headers (examples/), on every
// backend: its gradients, and its training under every strategy.
#include <map>

#include "examples/llama_model.hpp"
#include "kernels/backend.hpp"
#include "nn/one_unit.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/world/simulate.hpp"
#include "world/host_pool.hpp"

namespace tessera::own_layers_test {
namespace {

using test::Matrix;
using test::Tensors;

// Sizes that are no multiple of a pack.
const llama::Sizes kSizes{
    .batch = 2, .seq = 5, .hidden = 12, .heads = 2, .wide = 9, .vocab = 11, .layers = 2};

Matrix rms_norm(const Matrix& x, const Matrix& weight) {
  Matrix y = x;
  for (Eigen::Index r = 0; r < x.rows(); ++r) {
    const double square = x.row(r).squaredNorm() / static_cast<double>(x.cols());
    y.row(r) = (x.row(r) / std::sqrt(square + static_cast<double>(1e-5F))).cwiseProduct(weight);
  }
  return y;
}

/// Head `head` of the rows of one sample, rotated by its tokens' positions.
Matrix turned(const Matrix& rows, Eigen::Index head, Eigen::Index size) {
  Matrix result = rows.middleCols(head * size, size);
  const Eigen::Index pairs = size / 2;
  for (Eigen::Index t = 0; t < rows.rows(); ++t) {
    for (Eigen::Index i = 0; i < pairs; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10'000.0, -2.0 * static_cast<double>(i) / double(size));
      const double a = rows(t, head * size + i);
      const double b = rows(t, head * size + i + pairs);
      result(t, i) = a * std::cos(angle) - b * std::sin(angle);
      result(t, i + pairs) = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return result;
}

/// Causal attention of one head.
Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v) {
  Matrix scores = q * k.transpose() / std::sqrt(static_cast<double>(q.cols()));
  for (Eigen::Index t = 0; t < scores.rows(); ++t) {
    for (Eigen::Index s = 0; s < scores.cols(); ++s) {
      scores(t, s) = s <= t ? std::exp(scores(t, s)) : 0.0;
    }
    scores.row(t) /= scores.row(t).sum();
  }
  return scores * v;
}

/// The block in float64, from the formulas.
Matrix block(const Tensors& weights, const Matrix& x) {
  const Eigen::Index hidden = kSizes.hidden, heads = kSizes.heads, seq = kSizes.seq;
  const Eigen::Index size = hidden / heads;
  const Matrix qkv = rms_norm(x, weights.at("attention_norm")) * weights.at("wqkv");
  Matrix mixed = x;
  for (Eigen::Index b = 0; b < kSizes.batch; ++b) {
    const Matrix rows = qkv.middleRows(b * seq, seq);
    for (Eigen::Index h = 0; h < heads; ++h) {
      mixed.block(b * seq, h * size, seq, size) =
          attention(turned(rows, h, size), turned(rows, heads + h, size),
                    rows.middleCols(2 * hidden + h * size, size));
    }
  }
  const Matrix middle = x + mixed * weights.at("wo");
  const Matrix both = rms_norm(middle, weights.at("ffn_norm")) * weights.at("w13");
  Matrix activated = both.leftCols(kSizes.wide);
  for (double& gate : activated.reshaped()) { gate /= 1.0 + std::exp(-gate); }
  activated = activated.cwiseProduct(both.rightCols(kSizes.wide));
  return middle + activated * weights.at("w2");
}

/// The slope of the sum of dy * block(x) along every element of `along`, one of its arguments.
Matrix slopes(const Tensors& weights, const Matrix& x, const Matrix& dy, Matrix& along) {
  const double h = 1e-5;
  Matrix result = along;
  for (Eigen::Index i = 0; i < along.size(); ++i) {
    const double at = along.data()[i];
    along.data()[i] = at + h;
    const double above = block(weights, x).cwiseProduct(dy).sum();
    along.data()[i] = at - h;
    const double below = block(weights, x).cwiseProduct(dy).sum();
    along.data()[i] = at;
    result.data()[i] = (above - below) / (2 * h);
  }
  return result;
}

Tensors random_weights() {
  Tensors weights;
  std::uint32_t seed = 1;
  for (const ParameterSpec& spec : llama::Block{kSizes}.parameters()) {
    const bool norm = spec.shape.rank() == 1;
    Matrix values = test::random_matrix(
        norm ? 1 : spec.shape[0], norm ? spec.shape[0] : spec.shape[1], ++seed, norm ? 0.2 : 0.4);
    if (norm) { values = (values.array() + 1.0).cast<float>().cast<double>(); }
    weights.emplace(spec.name, values);
  }
  return weights;
}

class OwnLayers : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::cuda && !test::no_cuda().empty()) {
      GTEST_SKIP() << test::no_cuda();
    }
  }
  static WorldOptions options() {
    WorldOptions options;
    options.device = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, OwnLayers, test::backends(), test::backend_name);

/// Device memory with a copy of `matrix`.
Values copied(World& world, llama::Memory& memory, const Matrix& matrix) {
  const std::vector<float> values = test::floats(matrix);
  float* const to = memory.take<float>(std::ssize(values));
  world.device().copy_in(to, values.data(), values.size() * sizeof(float), world.compute_stream());
  world.compute_stream().wait();
  return to;
}

Matrix read(World& world, ConstValues from, const Matrix& like) {
  std::vector<float> values(static_cast<std::size_t>(like.size()));
  world.device().copy_out(values.data(), from.data, values.size() * sizeof(float),
                          world.compute_stream());
  world.compute_stream().wait();
  return test::matrix(values, like.rows());
}

TEST_P(OwnLayers, GradientsAreTheSlopesOfTheFloat64Block) {
  Tensors weights = random_weights();
  Matrix x = test::random_matrix(kSizes.rows(), kSizes.hidden, 20);
  const Matrix dy = test::random_matrix(kSizes.rows(), kSizes.hidden, 21);
  run_ranks(
      1,
      [&](World& world) {
        const llama::Block own{kSizes};
        test::OneUnit unit(world, own.parameters(), weights);
        llama::Memory memory{world};
        const llama::RotaryTables tables{world, kSizes, memory};
        llama::Block::Saved saved = llama::take_saved(kSizes, tables, DType::fp32, memory);
        saved.x = copied(world, memory, x);
        saved.workspace = memory.take<float>(kernels::attention_workspace_elems(
            kSizes.attention(), DType::fp32, world.compute_stream()));
        const Values y = memory.take_values(x.size(), DType::fp32);
        const Values gradient = copied(world, memory, dy);
        const Values scratch = memory.take_values(own.scratch_elems(), DType::fp32);
        unit.run(
            [&](const ForwardScope& scope) { own.forward(scope, saved, y); },
            [&](const BackwardScope& scope) { own.backward(scope, saved, gradient, scratch); });

        test::expect_close(read(world, y, x), block(weights, x), test::kLayerTolerance, "y");
        test::expect_close(read(world, gradient, x), slopes(weights, x, dy, x),
                           test::kLayerTolerance, "x");
        Tensors expected;
        for (auto& [name, weight] : weights) {
          expected.emplace(name, slopes(weights, x, dy, weight));
        }
        test::expect_close(unit.gradients(), expected, test::kLayerTolerance);
      },
      options());
}

/// The result of a training: every step's loss and every parameter.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void train(World& world, const ModelOptions& model_options, int steps, Outcome* outcome) {
  ShardedModel model{world, model_options};
  llama::Model llama{model, kSizes};
  model.materialize(llama.initializer(1));
  model.optimize_with(AdamW{.lr = 1e-2F});
  for (int step = 0; step < steps; ++step) {
    const llama::Text text{kSizes, step, world.rank()};
    llama.forward_backward(text.tokens, text.targets);
    model.step(llama.loss());
    if (outcome != nullptr) { outcome->losses.push_back(model.report().loss); }
  }
  if (outcome == nullptr) { return; }
  model.export_state(
      StateTensor::parameters, [&](const ParameterInfo& parameter, std::span<const float> values) {
        outcome->parameters[std::to_string(parameter.id)] = {values.begin(), values.end()};
      });
}

TEST_P(OwnLayers, TrainToTheSameBitsReplicatedAndSharded) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    std::map<Strategy, Outcome> outcomes;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
      Outcome& outcome = outcomes[strategy];
      run_ranks(
          2,
          [&](World& world) {
            Outcome others;
            train(world, {.strategy = strategy, .compute = compute}, 6,
                  world.rank() == 0 ? &outcome : &others);
          },
          options());
    }
    const Outcome& replicated = outcomes.at(Strategy::ddp);
    EXPECT_EQ(outcomes.at(Strategy::zero3), replicated) << to_string(compute);
    EXPECT_EQ(replicated.parameters.size(), 15U);
    EXPECT_LT(replicated.losses.back(), 0.95 * replicated.losses.front());
  }
}

TEST_P(OwnLayers, MemoryIsPlannedToTheByte) {
  const ModelOptions model{.strategy = Strategy::zero3, .compute = DType::bf16};
  const auto body = [&](World& world) { train(world, model, 2, nullptr); };
  const std::vector<PlannedRank> planned = plan(
      {.ranks = 2, .backend = {.device = GetParam(), .comm = CommKind::local}, .world = {}}, body);
  run_ranks(
      2,
      [&](World& world) {
        body(world);
        const auto& rank = planned[planned.size() > 1 && world.rank() == 1 ? 1 : 0];
        EXPECT_EQ(test::difference(rank.memory, world.memory().report()), "") << world.rank();
      },
      options());
}

// The simulated rank computes nothing, and logs the same work as a real one.
TEST(OwnLayersLog, HoldsTheKernelsOfARealRank) {
  WorldOptions options;
  options.log_work = true;
  std::vector<trace::KernelWork> real, simulated;
  const auto body = [](std::vector<trace::KernelWork>& kernels) {
    return [&kernels](World& world) {
      train(world, {}, 2, nullptr);
      kernels = world.work_log()->kernels();
    };
  };
  run_ranks(1, body(real), options);
  simulate_rank({.rank = 0, .ranks = 1, .backend = {}}, body(simulated), options);
  std::map<std::string, int> calls;
  for (const trace::KernelWork& work : real) { ++calls[work.name]; }
  EXPECT_EQ(calls["rotary_forward"], 2 * kSizes.layers);
  EXPECT_EQ(calls["rotary_backward"], 2 * kSizes.layers);
  EXPECT_EQ(calls["glu_forward"], 2 * kSizes.layers);
  EXPECT_EQ(calls["glu_backward"], 2 * kSizes.layers);
  EXPECT_EQ(calls["rms_norm_forward"], 2 * (2 * kSizes.layers + 1));
  EXPECT_EQ(calls["rms_norm_backward"], 2 * (2 * kSizes.layers + 1));
  for (const trace::KernelWork& work : simulated) { --calls[work.name]; }
  for (const auto& [name, more] : calls) {
    // Fills and copies are logged only in simulation.
    if (name != "fill" && name.find("copy") == std::string::npos) { EXPECT_EQ(more, 0) << name; }
  }
}

// The stream of host work has the CPU's kernels, whatever the rank's device.
TEST_P(OwnLayers, KernelsComputeInTheHostPoolToo) {
  run_ranks(
      1,
      [](World& world) {
        const Buffer buffer = world.allocate_host(Category::activations, 3 * sizeof(float), "host");
        float* const values = buffer.floats();
        std::fill_n(values, 3, 2.0F);
        const std::string unit = "unit";
        world::HostPool{world}.compute([=](Stream cpu) { kernels::scale(values, 1.5F, 3, cpu); },
                                       "scale", unit);
        world::HostPool{world}.compute_stream().wait();
        EXPECT_EQ(std::vector(values, values + 3), (std::vector{3.0F, 3.0F, 3.0F}));
      },
      options());
}

}  // namespace
}  // namespace tessera::own_layers_test
