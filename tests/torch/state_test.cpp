// Buffers, state dicts and checkpoints of sharded modules, under the modules' own names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/rounding.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/run.hpp"
#include "torch/state_net.hpp"

namespace tessera::torch_state_test {
namespace {

using tessera::torch::Buffers;
using tessera::torch::Sharded;
using tessera::torch::ShardedModule;
using tessera::torch::ShardOptions;
using test::bits;
using test::built_net;
using test::difference;
using test::message_of;
using test::rows;
using test::StateNet;
using test::StateNetImpl;
using test::TemporaryFolder;
using test::Tensors;
using test::tensors_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Between runs that add in different orders: 8 products and 3 norms of at most 24 terms, 8 rows.
const double kWithin = test::chain_difference(test::layers_roundings(11, 24, 8));

struct Job {
  Strategy strategy = Strategy::zero3;
  int ranks = 1;
  DType compute = DType::fp32;

  [[nodiscard]] ShardOptions options() const {
    return {.model = {.strategy = strategy, .compute = compute}};
  }
  [[nodiscard]] std::string name() const {
    return std::string{to_string(strategy)} + " on " + std::to_string(ranks) + " in " +
           std::string{to_string(compute)};
  }
};

/// Runs a sharded net with the options of a job.
void run(const Job& job, std::uint64_t seed,
         const std::function<void(World&, Sharded<StateNetImpl>&)>& body) {
  SCOPED_TRACE(job.name());
  run_ranks(job.ranks, [&](World& world) {
    auto model = tessera::torch::shard(built_net(seed), world, job.options());
    model.optimize_with(AdamW{.lr = 0.01F});
    body(world, model);
  });
}

void accumulate(World& world, Sharded<StateNetImpl>& model, std::uint64_t step) {
  const auto dtype = model.model().options().compute == DType::bf16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor out = model(rows(step, world.rank(), world.size()).to(dtype));
  const at::Tensor target = rows(step + 1'000, world.rank(), world.size());
  model.backward(::torch::mse_loss(out.to(at::kFloat), target));
}

/// Trains steps [first, end) and returns their losses.
std::vector<double> train(World& world, Sharded<StateNetImpl>& model, std::uint64_t first,
                          std::uint64_t end) {
  std::vector<double> losses;
  for (std::uint64_t step = first; step < end; ++step) {
    accumulate(world, model, step);
    model.step();
    losses.push_back(model.report().loss);
  }
  return losses;
}

void copy_into(::torch::nn::Module& module, const Tensors& state) {
  const ::torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_of(module)) { tensor.copy_(state.at(name)); }
}

std::vector<std::string> names_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) { names.push_back(name); }
  return names;
}

/// The number of ranks, including rank 0, whose buffers equal rank 0's.
int ranks_like_0(World& world, const ::torch::nn::Module& module) {
  std::string mine;
  for (const auto& buffer : module.named_buffers()) { mine += bits(buffer.value()); }
  const std::vector<std::string> all = world.exchange(mine);
  return static_cast<int>(std::count(all.begin(), all.end(), all[0]));
}

TEST(TorchBuffers, AreRank0sAtEachMicroBatchsFirstForwardOrEachRanksOwn) {
  for (const bool broadcasts : {true, false}) {
    SCOPED_TRACE(broadcasts);
    run_ranks(3, [&](World& world) {
      StateNet net = built_net(1);
      for (const auto& item : net->named_buffers()) {
        const at::Tensor buffer = item.value();
        if (world.rank() == 0) { continue; }
        buffer.scalar_type() == at::kBool ? buffer.logical_not_() : buffer.add_(world.rank());
      }
      auto model = tessera::torch::shard(
          net, world, {.buffers = broadcasts ? Buffers::broadcast : Buffers::local});
      model.optimize_with(AdamW{});
      EXPECT_EQ(ranks_like_0(world, *net), broadcasts ? 3 : 1);
      const auto disturb = [&] { net->first->seen += 100 * world.rank(); };
      const auto seen = [&] {
        return net->first->seen.item<std::int64_t>() - (std::int64_t{1} << 60);
      };
      disturb();
      at::Tensor loss = model(rows(1)).mean();  // brings rank 0's buffers
      const int own = broadcasts ? 0 : 101 * world.rank();
      EXPECT_EQ(seen(), 2 + own);
      disturb();
      loss = loss + model(rows(2)).mean();  // they stay within the micro-batch
      EXPECT_EQ(seen(), 3 + own + 100 * world.rank());
      model.backward(loss);
      model.step();
      model.evaluate([&] { (void)model(rows(3)); });
      EXPECT_EQ(seen(), 3 + own + 100 * world.rank());
      (void)model(rows(3));
      EXPECT_EQ(seen(), 4 + (broadcasts ? 0 : 301 - 100) * (broadcasts ? 0 : world.rank()));
    });
  }
}

TEST(TorchStateDict, IsTheModulesOwnAndAPlainModuleComputesTheSameWithIt) {
  for (const Job& job : {Job{Strategy::ddp, 1}, Job{Strategy::zero1, 2}, Job{Strategy::zero2, 4},
                         Job{Strategy::zero3, 4}, Job{Strategy::hybrid, 2}}) {
    run(job, 5, [](World& world, Sharded<StateNetImpl>& model) {
      const Tensors plain = tensors_of(*built_net(5));
      const Tensors first = model.state_dict(/*on_all_ranks=*/true);
      EXPECT_EQ(difference(first, plain), "");
      EXPECT_TRUE(first.contains("tied") && first.contains("in.weight"));
      (void)train(world, model, 0, 3);
      const Tensors state = model.state_dict();
      const at::Tensor x = rows(77);
      const at::Tensor out = model.evaluate([&] { return model(x); });
      if (world.rank() != 0) {
        EXPECT_THAT(state, IsEmpty());
        return;
      }
      EXPECT_NE(bits(state.at("blocks.1.a.weight")), bits(first.at("blocks.1.a.weight")));
      EXPECT_NE(bits(state.at("first.mean")), bits(first.at("first.mean")));
      StateNet fresh = built_net(6);
      copy_into(*fresh, state);
      fresh->eval();
      EXPECT_EQ(bits(fresh(x)), bits(out));
    });
  }
}

TEST(TorchStateDict, HandsOutGradientsAsAutogradMakesThem) {
  StateNet plain = built_net(5);
  ::torch::mse_loss(plain(rows(0)), rows(1'000)).backward();
  Tensors expected;
  for (const auto& item : plain->named_parameters()) {
    if (item.value().requires_grad()) { expected.emplace(item.key(), item.value().grad()); }
  }
  for (const Job& job :
       {Job{Strategy::zero3, 1}, Job{Strategy::zero1, 2}, Job{Strategy::zero3, 4}}) {
    run(job, 5, [&](World& world, Sharded<StateNetImpl>& model) {
      accumulate(world, model, 0);
      const Tensors gradients = model.export_gradients();
      if (world.rank() != 0) { return; }
      EXPECT_EQ(names_of(gradients), names_of(expected));
      EXPECT_EQ(gradients.count("in.bias"), 0U);  // frozen
      for (const auto& [name, tensor] : gradients) {
        const double largest = expected.at(name).abs().max().item<double>();
        EXPECT_TRUE(::torch::allclose(tensor, expected.at(name), 0.0, kWithin * largest)) << name;
      }
      if (world.size() == 1) { EXPECT_EQ(difference(gradients, expected), ""); }
    });
  }
}

TEST(TorchCheckpoint, ResumesOnOtherRanksUnderAnotherStrategyAsIfUninterrupted) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const TemporaryFolder folder;
    std::filesystem::path saved;
    Tensors state;
    std::vector<double> losses;
    run({Strategy::zero3, 4, compute}, 5, [&](World& world, Sharded<StateNetImpl>& model) {
      (void)train(world, model, 0, 3);
      const auto path = model.save(folder / "run", {{"data", "row 17"}});
      Tensors mine = model.state_dict();
      const std::vector<double> after = train(world, model, 3, 6);
      if (world.rank() == 0) { std::tie(saved, state, losses) = std::tie(path, mine, after); }
    });
    for (const Job& job : {Job{Strategy::zero3, 4, compute}, Job{Strategy::ddp, 1, compute},
                           Job{Strategy::zero2, 2, compute}, Job{Strategy::hybrid, 4, compute}}) {
      run(job, 99, [&](World& world, Sharded<StateNetImpl>& model) {
        const LoadReport report = model.load(saved);
        EXPECT_EQ(report.step, 3);
        EXPECT_EQ(report.values.at("data"), "row 17");
        EXPECT_EQ(difference(model.state_dict(true), state), "");
        const std::vector<double> again = train(world, model, 3, 6);
        for (std::size_t i = 0; i < again.size(); ++i) {
          // In bf16 a weight whose master lies at a boundary may be rounded the other way, by 2 u.
          const double bound =
              losses[0] * (compute == DType::fp32 ? kWithin : 2 * test::unit_roundoff(compute));
          EXPECT_NEAR(again[i], losses[i], world.size() == 4 ? 0.0 : bound) << i;
        }
      });
    }
  }
}

TEST(TorchCheckpoint, IsWrittenWhileTrainingGoesOnWithTheBuffersOfItsStep) {
  const TemporaryFolder folder;
  std::filesystem::path saved;
  Tensors state;
  run({Strategy::zero3, 2}, 5, [&](World& world, Sharded<StateNetImpl>& model) {
    Checkpointer saves{model.model(),
                       {.folder = folder / "run", .save = {.name = ShardedModule::name_of}}};
    (void)train(world, model, 0, 2);
    const Tensors mine = model.state_dict();
    saves.save(model.checkpoint_extras());
    (void)train(world, model, 2, 4);
    saves.finish();
    if (world.rank() == 0) { std::tie(saved, state) = std::tuple{saves.newest(), mine}; }
  });
  // Read as another program would: shared tensors occur once, integers are integers.
  SafetensorsReader weights{saved};
  SafetensorsReader extras{saved / "extras.safetensors"};
  EXPECT_EQ(weights.entries().size() + extras.entries().size(), state.size() - 2);
  for (SafetensorsReader* const file : {&weights, &extras}) {
    for (const auto& [name, entry] : file->entries()) {
      std::string data(entry.bytes, '\0');
      file->read_bytes(name, 0, std::as_writable_bytes(std::span{data}));
      const at::Tensor& expected = state.at(name);
      EXPECT_EQ(data, std::string(static_cast<const char*>(expected.data_ptr()), expected.nbytes()))
          << name;
    }
  }
  EXPECT_EQ(extras.entries().at("first.seen").dtype, "I64");
  EXPECT_EQ(extras.entries().at("first.mask").dtype, "BOOL");
  EXPECT_EQ(extras.entries().at("first.columns").shape, (Shape{3, 2}));
}

/// Writes a state as another program would, without `left_out`.
void write_file(const std::filesystem::path& path, const Tensors& state,
                const std::string& left_out) {
  std::vector<SafetensorsWriter::Declared> declared;
  const auto dtype_of = [](const at::Tensor& tensor) {
    const std::map<at::ScalarType, std::string> names{
        {at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kLong, "I64"},     {at::kInt, "I32"},
        {at::kBool, "BOOL"}, {at::kHalf, "F16"},   {at::kBFloat16, "BF16"}};
    return names.at(tensor.scalar_type());
  };
  for (const auto& [name, tensor] : state) {
    if (name != left_out) {
      declared.push_back({"net." + name, Shape{tensor.sizes().vec()}, dtype_of(tensor)});
    }
  }
  SafetensorsWriter file{path, declared};
  for (const auto& one : declared) {
    const at::Tensor whole = state.at(one.name.substr(4)).contiguous();
    file.write_bytes(one.name, {static_cast<const std::byte*>(whole.data_ptr()), whole.nbytes()});
  }
  file.finish();
}

TEST(TorchWeights, ComeFromFilesOfOtherProgramsByPatternsOfNames) {
  const TemporaryFolder folder;
  Tensors state;
  for (const auto& [name, tensor] : tensors_of(*built_net(3))) {
    state.emplace(name, tensor.detach().clone());
  }
  state.at("second.mean").fill_(3.0);
  state.at("second.mean") = state.at("second.mean").to(at::kFloat);  // the module has Double
  state.emplace("pooler.weight", ::torch::ones({2}));
  state.erase("tied");  // equals in.weight
  write_file(folder / "whole.safetensors", state, "blocks.1.norm.bias");
  state.at("first.mean") = ::torch::ones({4}, at::kDouble);
  write_file(folder / "shape.safetensors", state, "first.seen");

  const LoadOptions weights{
      .name =
          [](const ParameterInfo& parameter) { return "net." + ShardedModule::name_of(parameter); },
      .what = LoadOptions::What::weights};
  const Tensors before = tensors_of(*built_net(4));
  for (const Job& job : {Job{Strategy::zero3, 3}, Job{Strategy::ddp, 1}}) {
    run(job, 4, [&](World&, Sharded<StateNetImpl>& model) {
      const LoadReport report = model.load(folder / "whole.safetensors", weights);
      EXPECT_THAT(report.missing, ElementsAre("net.blocks.1.norm.bias"));
      EXPECT_THAT(report.unexpected, ElementsAre("net.pooler.weight"));
      for (const auto& [name, tensor] : model.state_dict(true)) {
        const Tensors& from = name == "blocks.1.norm.bias" ? before : state;
        const at::Tensor& expected = from.at(name == "tied" ? "in.weight" : name);
        if (name.starts_with("first.mean")) { continue; }
        EXPECT_EQ(bits(tensor), bits(expected.to(tensor.scalar_type()))) << name;
      }

      LoadOptions some = weights;
      some.only = [](const std::string& name) { return name.starts_with("net.first."); };
      EXPECT_THAT(
          message_of<ConfigError>([&] { (void)model.load(folder / "shape.safetensors", some); }),
          AllOf(HasSubstr("'net.first.mean' has shape [4]"), HasSubstr("has shape [5]")));
      EXPECT_THAT(
          message_of<FormatError>([&] { (void)model.load(folder / "none.safetensors", weights); }),
          HasSubstr("none.safetensors"));
    });
    run(job, 4, [&](World&, Sharded<StateNetImpl>& model) {
      LoadOptions some = weights;
      some.only = [](const std::string& name) { return name.starts_with("net.blocks.0."); };
      (void)model.load(folder / "whole.safetensors", some);
      for (const auto& [name, tensor] : model.state_dict(true)) {
        const Tensors& from = name.starts_with("blocks.0.") ? state : before;
        EXPECT_EQ(bits(tensor), bits(from.at(name))) << name;
      }
    });
  }
}

// A value may be rounded, as weights are, and no more.
TEST(TorchWeights, BuffersTakeAFilesValuesOrRefuseThemByName) {
  const TemporaryFolder folder;
  const LoadOptions weights{
      .name =
          [](const ParameterInfo& parameter) { return "net." + ShardedModule::name_of(parameter); },
      .what = LoadOptions::What::weights};
  const double infinity = std::numeric_limits<double>::infinity();
  const std::int64_t large = (std::int64_t{1} << 24) + 1;
  struct Case {
    const char* name;
    at::Tensor values;
    std::string refusal;  // empty: taken
  };
  const std::vector<Case> cases{
      {"first.seen", ::torch::tensor(7.0F), ""},
      {"first.seen", ::torch::tensor(2.5F), "'net.first.seen': 1 of its values, the first 2.5 at"},
      {"first.seen", ::torch::tensor(std::nan("")), "not a whole number in the range of Long"},
      {"first.seen", ::torch::tensor(0x1p63), "the first 9.22337e+18 at element 0"},
      {"first.columns", ::torch::full({3, 2}, std::int64_t{1} << 31, ::torch::kLong),
       "6 of its values, the first 2147483648 at element 0, are not"},
      {"first.columns", ::torch::full({3, 2}, -0x1p31, ::torch::kDouble), ""},
      {"first.mask", ::torch::tensor({1, 0, 1, 1, 0}, ::torch::kInt), ""},
      {"first.mask", ::torch::tensor({1, 0, 2, -1, 0}, ::torch::kInt),
       "2 of its values, the first 2 at element 2"},
      {"first.half", ::torch::tensor({1.001, infinity}, ::torch::kDouble), ""},
      {"first.half", ::torch::tensor({0.1F, -65504.0F}).to(::torch::kFloat16), ""},
      {"first.half", ::torch::tensor({0.0F, -3.4e38F}),
       "the first -3.4e+38 at element 1, is beyond the range of BFloat16"},
      {"first.scale", ::torch::full({5}, large, ::torch::kLong), ""},
      {"first.scale", ::torch::full({5}, 1e39, ::torch::kDouble), "beyond the range of Float"},
  };
  run({Strategy::zero3, 2}, 4, [&](World& world, Sharded<StateNetImpl>& model) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name + c.refusal);
      const std::filesystem::path path = folder / "one.safetensors";
      // A refused file changes no other tensor either.
      const bool is_scale = std::string_view{c.name} == "first.scale";
      const auto other = is_scale ? std::pair{"first.seen", ::torch::tensor(9.0F)}
                                  : std::pair{"first.scale", ::torch::full({5}, 9.0F)};
      if (world.rank() == 0) { write_file(path, {{c.name, c.values}, other}, ""); }
      (void)world.exchange("");
      const auto all = model.state_dict(true);
      const at::Tensor before = all.at(c.name);
      if (c.refusal.empty()) {
        (void)model.load(path, weights);
        EXPECT_EQ(bits(model.state_dict(true).at(c.name)), bits(c.values.to(before.scalar_type())));
        continue;
      }
      EXPECT_THAT(message_of<ConfigError>([&] { (void)model.load(path, weights); }),
                  HasSubstr(c.refusal));
      for (const auto& [name, value] : model.state_dict(true)) {
        EXPECT_EQ(bits(value), bits(all.at(name))) << name;
      }
    }
    LoadOptions whole = weights;
    whole.allow_partial = false;
    EXPECT_THAT(
        message_of<ContractError>([&] { (void)model.load(folder / "one.safetensors", whole); }),
        HasSubstr("`allow_partial` false does not know the module's buffers"));
  });
}

TEST(TorchWeights, BuffersOfACheckpointThatTheModuleLacksAreUnexpected) {
  const TemporaryFolder folder;
  std::filesystem::path saved;
  run_ranks(2, [&](World& world) {
    StateNet net = built_net(5);
    net->register_buffer("more", ::torch::ones({2}));
    auto model = tessera::torch::shard(net, world);
    model.optimize_with(AdamW{});
    const auto path = model.save(folder / "run");
    if (world.rank() == 0) { saved = path; }
  });
  run({Strategy::zero3, 2}, 4, [&](World&, Sharded<StateNetImpl>& model) {
    const LoadReport report = model.load(saved, {.what = LoadOptions::What::weights});
    EXPECT_THAT(report.unexpected, ElementsAre("more"));
    EXPECT_THAT(report.missing, IsEmpty());
  });
}

}  // namespace
}  // namespace tessera::torch_state_test
