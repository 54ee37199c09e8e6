// Sharded modules train as libtorch alone does: the modules of the examples, and small ones.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "examples/torch/adamw.hpp"
#include "examples/torch/char_model.hpp"
#include "examples/torch/classifier.hpp"
#include "examples/torch/images.hpp"
#include "examples/torch/text.hpp"
#include "support/gpt_rounding.hpp"
#include "support/groups.hpp"
#include "support/places.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::torch_parity_test {
namespace {

using Module = ::torch::nn::Module;
using Tensors = std::map<std::string, at::Tensor>;

/// A module, and its loss on samples `first` to `first + count - 1`.
struct Task {
  std::string name;
  std::function<std::shared_ptr<Module>()> make;
  std::function<at::Tensor(Module&, std::int64_t first, std::int64_t count)> loss;
};

const Task kClassifier{"classifier", [] { return Classifier(Images::kClasses).ptr(); },
                       [](Module& module, std::int64_t first, std::int64_t count) {
                         const Images images = draw_images(first, count);
                         return ::torch::cross_entropy_loss(
                             module.as<ClassifierImpl>()->forward(images.pixels), images.labels);
                       }};

const CharModelSize kSize{.layers = 2, .hidden = 32, .heads = 2, .length = 16};
const Task kCharModel{"char model", [] { return CharModel(kSize).ptr(); },
                      [](Module& module, std::int64_t first, std::int64_t count) {
                        static const Text text{test::kSourceDir + std::string{"/LICENSE"}};
                        const Text::Pieces pieces = text.pieces(first, count, kSize.length);
                        const at::Tensor scores = module.as<CharModelImpl>()->forward(pieces.bytes);
                        return ::torch::cross_entropy_loss(scores.flatten(0, 1),
                                                           pieces.next.flatten());
                      }};

/// Images through a BatchNorm with statistics per rank.
struct NormedImpl : Module {
  NormedImpl() {
    layers = register_module(
        "layers", ::torch::nn::Sequential(ResidualBlockImpl::convolution(1, 6, 3, 2),
                                          ::torch::nn::BatchNorm2d(6), ::torch::nn::ReLU()));
    head = register_module("head", ::torch::nn::Linear(6, Images::kClasses));
  }
  at::Tensor forward(const at::Tensor& x) { return head(layers->forward(x).mean({2, 3})); }
  ::torch::nn::Sequential layers{nullptr};
  ::torch::nn::Linear head{nullptr};
};
const Task kNormed{"BatchNorm", [] { return std::make_shared<NormedImpl>(); },
                   [](Module& module, std::int64_t first, std::int64_t count) {
                     const Images images = draw_images(first, count);
                     return ::torch::cross_entropy_loss(
                         module.as<NormedImpl>()->forward(images.pixels), images.labels);
                   }};

/// Two matrices with a norm between them, in the dtype of the parameters.
struct SmallImpl : Module {
  SmallImpl() {
    in = register_module("in", ::torch::nn::Linear(8, 24));
    norm = register_module("norm", ::torch::nn::LayerNorm(::torch::nn::LayerNormOptions({24})));
    out = register_module("out", ::torch::nn::Linear(24, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    return out(::torch::relu(norm(in(x.to(in->weight.scalar_type()))))).to(at::kFloat);
  }
  ::torch::nn::Linear in{nullptr}, out{nullptr};
  ::torch::nn::LayerNorm norm{nullptr};
};
const Task kSmall{"small", [] { return std::make_shared<SmallImpl>(); },
                  [](Module& module, std::int64_t first, std::int64_t count) {
                    const at::Tensor x = ::torch::arange(first * 8, (first + count) * 8)
                                             .to(at::kFloat)
                                             .mul(0.37F)
                                             .sin()
                                             .view({count, 8});
                    const at::Tensor y = x.narrow(1, 0, 4) * x.narrow(1, 4, 4);
                    return (module.as<SmallImpl>()->forward(x) - y).pow(2).mean();
                  }};

/// Elementwise products: on a CPU libtorch 1.13 supports little else in fp16.
struct ElementsImpl : Module {
  ElementsImpl() {
    factor = register_parameter("factor", ::torch::linspace(-2, 2, 70));
    term = register_parameter("term", ::torch::zeros({70}));
  }
  at::Tensor factor, term;
};
const Task kElements{"elements", [] { return std::make_shared<ElementsImpl>(); },
                     [](Module& module, std::int64_t first, std::int64_t /*count*/) {
                       auto& elements = *module.as<ElementsImpl>();
                       const at::Tensor x = ::torch::linspace(-1, 1, 70).roll(first).to(
                           elements.factor.scalar_type());
                       const at::Tensor y = x * elements.factor + elements.term;
                       return (y.to(at::kFloat) - 0.5).pow(2).mean();
                     }};

// Ranks that are threads share libtorch's generator.
std::shared_ptr<Module> make(const Task& task) {
  static std::mutex generator;
  const std::lock_guard lock{generator};
  ::torch::manual_seed(1);
  return task.make();
}

/// Options of a training.
struct Training {
  int ranks = 1;
  int steps = 20;
  int batch = 8;  ///< samples per micro-batch, over all ranks
  ModelOptions model = {};
  float clip_norm = 0.0F;
  torch::Buffers buffers = torch::Buffers::local;
  WorldOptions world = {};
};

constexpr float kRate = 1e-3F;

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;     ///< of gradients
  Tensors gradients;             ///< averaged, of the first step
  Tensors weights;               ///< at the end
  std::vector<Tensors> buffers;  ///< by rank, at the end
};

Tensors copies(const ::torch::OrderedDict<std::string, at::Tensor>& tensors) {
  Tensors result;
  for (const auto& item : tensors) {
    result[item.key()] = item.value().detach().to(at::kFloat, false, true);
  }
  return result;
}

/// Rounds to nearest like the library's masters: ties of bf16 round away from zero.
at::Tensor rounded(const at::Tensor& master, at::ScalarType dtype) {
  if (dtype != at::kBFloat16) { return master.to(dtype); }
  return master.view(at::kInt)
      .add(0x8000)
      .bitwise_and(static_cast<std::int64_t>(-65536))
      .view(at::kFloat)
      .to(dtype);
}

at::ScalarType dtype_of(DType dtype) {
  return dtype == DType::bf16 ? at::kBFloat16 : dtype == DType::fp16 ? at::kHalf : at::kFloat;
}

/// libtorch alone: a replica of the module per rank. Gradients are summed over micro-batches, then
/// over ranks, in order. They update fp32 masters; the replicas are rounded copies of these.
Outcome train_alone(const Task& task, const Training& training) {
  at::set_num_threads(1);
  const at::ScalarType dtype = dtype_of(training.model.compute);
  Outcome outcome;
  std::vector<std::shared_ptr<Module>> replicas;
  std::vector<std::vector<at::Tensor>> parameters;
  std::vector<at::Tensor> masters;
  for (int rank = 0; rank < training.ranks; ++rank) {
    replicas.push_back(make(task));
    if (rank == 0) {
      for (const at::Tensor& parameter : replicas[0]->parameters()) {
        masters.push_back(parameter.detach().clone());
      }
    }
    replicas.back()->to(dtype);
    parameters.push_back(replicas.back()->parameters());
  }
  PlainAdamW optimizer{masters, kRate};
  const int accumulate = training.model.accumulate;
  const int mine = training.batch / training.ranks;
  // The library's average is fp32.
  const double average = static_cast<float>(1.0 / (training.ranks * accumulate));
  double scale = first_loss_scale(training.model.loss_scaling, training.model.compute,
                                  training.model.gradient);
  for (int step = 0; step < training.steps; ++step) {
    double loss = 0.0;
    std::vector<at::Tensor> sums(masters.size());
    for (int rank = 0; rank < training.ranks; ++rank) {
      std::vector<at::Tensor> of_rank(masters.size());
      for (int micro = 0; micro < accumulate; ++micro) {
        const std::int64_t first = (step * accumulate + micro) * training.batch + rank * mine;
        const auto at = static_cast<std::size_t>(rank);
        const at::Tensor of_batch = task.loss(*replicas[at], first, mine);
        (of_batch * scale).backward();
        loss += of_batch.item<double>() / (training.ranks * accumulate);
        for (std::size_t i = 0; i < masters.size(); ++i) {
          const at::Tensor gradient = parameters[at][i].grad().to(at::kFloat, false, true);
          parameters[at][i].mutable_grad() = at::Tensor{};
          of_rank[i] = micro == 0 ? gradient : of_rank[i] + gradient;
        }
      }
      for (std::size_t i = 0; i < masters.size(); ++i) {
        sums[i] = rank == 0 ? of_rank[i] : sums[i] + of_rank[i];
      }
    }
    double squares = 0.0;
    for (const at::Tensor& sum : sums) {
      squares += sum.to(at::kDouble).pow(2).sum().item<double>();
    }
    const double norm = std::sqrt(squares) * average / scale;
    outcome.losses.push_back(loss);
    outcome.norms.push_back(norm);
    if (!std::isfinite(norm)) {
      scale *= 0.5;
      continue;
    }
    double clip = 1.0;
    if (training.clip_norm > 0.0F) { clip = std::min(1.0, training.clip_norm / (norm + 1e-6)); }
    const auto names = replicas[0]->named_parameters();
    for (std::size_t i = 0; i < masters.size(); ++i) {
      masters[i].mutable_grad() = sums[i] * static_cast<float>(average * clip / scale);
      if (step == 0) { outcome.gradients[names[i].key()] = sums[i] * static_cast<float>(average); }
    }
    optimizer.step();
    const ::torch::NoGradGuard no_grad;
    for (const std::vector<at::Tensor>& replica : parameters) {
      for (std::size_t i = 0; i < masters.size(); ++i) {
        replica[i].copy_(rounded(masters[i], dtype));
      }
    }
  }
  outcome.weights = copies(replicas[0]->named_parameters());
  for (const auto& replica : replicas) {
    outcome.buffers.push_back(copies(replica->named_buffers()));
  }
  return outcome;
}

Tensors exported(ShardedModel& model, StateTensor what) {
  Tensors result;
  model.export_state(what, [&](const ParameterInfo& parameter, std::span<const float> values) {
    result[torch::ShardedModule::name_of(parameter)] =
        ::torch::tensor(at::ArrayRef<float>(values.data(), values.size()))
            .view(parameter.shape.dims());
  });
  return result;
}

using Start = std::function<void(int, const std::function<void(World&)>&, const WorldOptions&)>;

/// The same training, sharded; the results of rank 0.
Outcome train_sharded(const Task& task, const Training& training, const Start& start = run_ranks) {
  Outcome outcome;
  outcome.buffers.resize(static_cast<std::size_t>(training.ranks));
  start(
      training.ranks,
      [&](World& world) {
        const std::shared_ptr<Module> module = make(task);
        auto model =
            torch::shard(module, world, {.model = training.model, .buffers = training.buffers});
        model.optimize_with(AdamW{.lr = kRate}, {.clip_norm = training.clip_norm});
        Outcome mine;
        const int count = training.batch / world.size();
        for (int step = 0; step < training.steps; ++step) {
          for (int micro = 0; micro < training.model.accumulate; ++micro) {
            const std::int64_t first =
                (step * training.model.accumulate + micro) * training.batch + world.rank() * count;
            model.backward(model.forward([&] { return task.loss(*module, first, count); }));
          }
          if (step == 0) { mine.gradients = exported(model.model(), StateTensor::gradients); }
          model.step();
          mine.losses.push_back(model.report().loss);
          mine.norms.push_back(model.report().grad_norm);
        }
        mine.weights = exported(model.model(), StateTensor::parameters);
        const Tensors buffers = copies(module->named_buffers());
        if (world.rank() == 0) {
          mine.buffers = std::move(outcome.buffers);
          outcome = std::move(mine);
        }
        world.barrier();
        outcome.buffers[static_cast<std::size_t>(world.rank())] = buffers;
      },
      training.world);
  return outcome;
}

/// The names of tensors that differ in any bit (except the sign of a zero).
std::string different(const Tensors& expected, const Tensors& actual) {
  std::string names;
  for (const auto& [name, tensor] : expected) {
    if (!actual.contains(name) || !at::equal(tensor, actual.at(name))) { names += name + " "; }
  }
  return names + (expected.size() == actual.size() ? "" : "(other names)");
}

void expect_same_bits(const Outcome& expected, const Outcome& actual) {
  EXPECT_EQ(expected.losses, actual.losses);
  EXPECT_EQ(different(expected.weights, actual.weights), "");
  ASSERT_EQ(expected.buffers.size(), actual.buffers.size());
  for (std::size_t rank = 0; rank < expected.buffers.size(); ++rank) {
    EXPECT_EQ(different(expected.buffers[rank], actual.buffers[rank]), "") << "rank " << rank;
  }
}

/// The character model is a GPT. The classifier has fewer roundings, but ReLU: only its first steps
/// are compared.
const test::GPTBounds kWithin = test::between_runs({.layers = kSize.layers,
                                                    .hidden = kSize.hidden,
                                                    .heads = kSize.heads,
                                                    .vocab = kSize.vocabulary,
                                                    .seq = kSize.length},
                                                   3 * 8 * kSize.length);

void expect_close(const Outcome& expected, const Outcome& actual) {
  double squares = 0.0;
  double error = 0.0;
  ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
  for (const auto& [name, tensor] : expected.gradients) {
    const at::Tensor wide = tensor.to(at::kDouble);
    squares += wide.pow(2).sum().item<double>();
    error += (actual.gradients.at(name).to(at::kDouble) - wide).pow(2).sum().item<double>();
  }
  EXPECT_LE(std::sqrt(error / squares), kWithin.gradient);
  ASSERT_EQ(expected.losses.size(), actual.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], kWithin.later_loss * expected.losses[0])
        << "step " << i + 1;
  }
}

class TorchParity : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, TorchParity, ::testing::ValuesIn(test::tried_strategies()),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(TorchParity, TrainsToTheBitsOfReplicasOfLibtorchAlone) {
  static std::map<std::string, Outcome> alone;  // the same for every strategy
  for (const Task* task : {&kClassifier, &kCharModel, &kNormed}) {
    for (const int ranks : test::tried_ranks({1, 2, 4}, {1, 4})) {
      SCOPED_TRACE(task->name + " on " + std::to_string(ranks));
      Training training{.ranks = ranks};
      training.model.strategy = GetParam();
      Outcome& expected = alone[task->name + std::to_string(ranks)];
      if (expected.losses.empty()) { expected = train_alone(*task, training); }
      expect_same_bits(expected, train_sharded(*task, training));
    }
  }
}

TEST_P(TorchParity, DelaysAndPoisonedSlotsChangeNoBit) {
  Training training{.ranks = 4, .steps = 6};
  training.model.strategy = GetParam();
  training.model.prefetch = 2;
  training.world.testing.poison = SlotPoison::nan;
  training.world.testing.delays =
      DelayInjection{.seed = 3, .longest = std::chrono::microseconds{300}};
  expect_same_bits(train_alone(kCharModel, training), train_sharded(kCharModel, training));
}

TEST_P(TorchParity, AccumulatesAndClips) {
  Training training{.ranks = 2, .steps = 8, .clip_norm = 0.3F};
  training.model = {.strategy = GetParam(), .accumulate = 3};
  const Outcome expected = train_alone(kCharModel, training);
  // Sharded ranks add micro-batches in another order.
  expect_close(expected, train_sharded(kCharModel, training));
  EXPECT_GT(expected.norms[0], 0.3) << "nothing is clipped";
  training.model.accumulate_mode = AccumulateMode::deferred;
  const Outcome deferred = train_sharded(kCharModel, training);
  // bound: equal gradients, and a sum of their 3e4 squares in fp64
  EXPECT_NEAR(deferred.norms[0] / expected.norms[0], 1.0, 1e-12);
  EXPECT_EQ(different(expected.weights, deferred.weights), "");
}

TEST_P(TorchParity, InBf16MastersAreFp32) {
  for (const int ranks : {1, 2}) {
    Training training{.ranks = ranks};
    training.model = {.strategy = GetParam(), .compute = DType::bf16};
    expect_same_bits(train_alone(kSmall, training), train_sharded(kSmall, training));
  }
}

TEST_P(TorchParity, InFp16TheLossScaleFallsUntilGradientsAreFinite) {
  Training training{.ranks = 2};
  training.model = {.strategy = GetParam(),
                    .compute = DType::fp16,
                    .loss_scaling = {.initial = LossScaling::kMost}};
  const Outcome expected = train_alone(kElements, training);
  EXPECT_FALSE(std::isfinite(expected.norms.front())) << "nothing is skipped";
  EXPECT_TRUE(std::isfinite(expected.norms.back()));
  expect_same_bits(expected, train_sharded(kElements, training));
}

// Ranks add up parts of a batch; groups of ranks add in another order.
TEST(TorchParityOfBatches, PartsOfABatchGiveTheLossesOfTheWhole) {
  for (const Task* task : {&kClassifier, &kCharModel}) {
    Training training{.steps = task == &kClassifier ? 10 : 50};
    const Outcome whole = train_alone(*task, training);
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(task->name + " on " + std::to_string(ranks));
      training.ranks = ranks;
      training.model = {.strategy = Strategy::zero3};
      expect_close(whole, train_sharded(*task, training));
    }
    training.model = {.strategy = Strategy::hybrid, .shard_group = 2};
    expect_close(whole, train_sharded(*task, training));
  }
}

// Under mpirun; without it, one rank.
TEST(TorchProcesses, TrainToTheBitsOfLibtorchAlone) {
  const auto job = launched_job();
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    Training training{.ranks = job ? job->size : 1, .steps = 5};
    training.model.strategy = strategy;
    const Outcome processes =
        train_sharded(kCharModel, training,
                      [](int, const std::function<void(World&)>& body,
                         const WorldOptions& options) { run(body, options); });
    if (launched_rank() != 0) { continue; }
    const Outcome expected = train_alone(kCharModel, training);
    EXPECT_EQ(expected.losses, processes.losses);
    EXPECT_EQ(different(expected.weights, processes.weights), "");
  }
}

/// The padded elements of the model's units for `ranks` ranks: all units, and the largest.
struct Padded {
  std::size_t all = 0;
  std::size_t root = 0;
  std::size_t block = 0;
};
Padded padded(ShardedModel& model, int ranks) {
  const std::size_t cut = 64 * static_cast<std::size_t>(ranks);
  std::map<std::string, std::size_t> units;
  model.export_state(StateTensor::parameters,
                     [&](const ParameterInfo& parameter, std::span<const float> values) {
                       units[parameter.unit] += (values.size() + 63) / 64 * 64;
                     });
  Padded result;
  for (const auto& [name, elems] : units) {
    const std::size_t whole = (elems + cut - 1) / cut * cut;
    result.all += whole;
    (name == "(root)" ? result.root : result.block) =
        std::max(name == "(root)" ? result.root : result.block, whole);
  }
  return result;
}

// DESIGN's table, fp32: 4 bytes of parameters and gradients, 8 of moments.
TEST_P(TorchParity, KeepsTheStateOfItsStrategy) {
  constexpr int kRanks = 4;
  run_ranks(kRanks, [&](World& world) {
    const Strategy strategy = GetParam();
    const std::shared_ptr<Module> module = make(kCharModel);
    auto model = torch::shard(module, world, {.model = {.strategy = strategy}});
    model.optimize_with(AdamW{});
    for (int step = 0; step < 2; ++step) {
      model.backward(model.forward([&] { return kCharModel.loss(*module, world.rank(), 1); }));
      model.step();
    }
    const CategoryBytes peak = world.memory().report().at_peak;
    const Padded elems = padded(model.model(), kRanks);
    const bool dp = strategy == Strategy::dp;
    const bool keeps = !dp || world.rank() == 0;
    const bool cuts_parameters = strategy == Strategy::zero3 || strategy == Strategy::hybrid;
    const bool cuts_gradients = cuts_parameters || strategy == Strategy::zero2;
    const bool cuts_states = cuts_gradients || strategy == Strategy::zero1;
    const auto part = [&](bool cut) { return elems.all / (cut ? kRanks : 1); };
    const ModelStateBytes state = model.model().state_bytes();
    EXPECT_EQ(state.parameters, keeps ? 4 * part(cuts_parameters) : 0);
    EXPECT_EQ(state.gradients, keeps ? 4 * part(cuts_gradients) : 0);
    EXPECT_EQ(state.optimizer, keeps ? 8 * part(cuts_states) : 0);
    EXPECT_EQ(peak[Category::parameters], state.parameters);
    EXPECT_EQ(peak[Category::gradients], state.gradients);
    EXPECT_EQ(peak[Category::optimizer], state.optimizer);
    if (dp) { return; }
    // The root stays gathered; blocks share a ring of two slots.
    const std::size_t slots = 4 * (elems.root + 2 * elems.block);
    EXPECT_EQ(peak[Category::gather], cuts_parameters ? slots : 0);
    EXPECT_EQ(peak[Category::reduce], cuts_gradients ? slots : 0);
  });
}

}  // namespace
}  // namespace tessera::torch_parity_test
