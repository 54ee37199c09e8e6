// A model on meshes, with parts of parameters along tensor and units at places along pipe.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "support/refusal.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::mesh_model_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kMicroBatches = 2;
constexpr int kSteps = 3;
constexpr float kNothing = -1000.0F;

/// The result of a job: every element of every parameter, and the reports of its steps.
struct Result {
  std::map<std::string, std::vector<float>> parameters;
  std::vector<double> norms;
  std::vector<double> losses;
};

struct Case {
  std::vector<MeshDim> mesh;
  Strategy strategy = Strategy::zero3;
  DType compute = DType::fp32;
  int micro_batches = kMicroBatches;
};

float value_of(ConstValues values, std::int64_t at) {
  return values.dtype == DType::bf16 ? values.as<bfloat16>()[at].to_float()
                                     : values.as<float>()[at];
}

/// A gradient that is a small integer, so sums have the same bits in any order.
float gradient_of(std::uint32_t id, std::int64_t element, int sample, bool of_alias) {
  const std::int64_t mixed =
      std::int64_t{7} * id + 3 * element + std::int64_t{5} * sample + (of_alias ? 11 : 0);
  return static_cast<float>(mixed % 13 - 6);
}

/// Three units. Their parameters are cut along columns or rows, whole, in parts, frozen, or tied
/// from the last place along pipe to the first. No size divides another.
class MeshModel {
 public:
  MeshModel(World& world, const Case& from)
      : world_{world},
        mesh_{world, from.mesh.empty() ? MeshShape{{{"shard", 1}}} : MeshShape{from.mesh}},
        model_{world,
               {.strategy = from.strategy,
                .compute = from.compute,
                .accumulate = from.micro_batches,
                .mesh = from.mesh}} {
    const int last = mesh_.size("pipe") - 1;
    units_.push_back(model_.add_unit("table", {{.name = "w", .shape = {7, 5}, .cut = TensorCut{}}},
                                     {.pipe = 0}));
    units_.push_back(model_.add_unit(
        "block",
        {{.name = "qkv", .shape = {3, 18}, .cut = TensorCut{.dim = 1, .granule = 2, .sections = 3}},
         {.name = "norm", .shape = {11}, .tensor_gradient = TensorGradient::part},
         {.name = "fixed", .shape = {4}, .trainable = false},
         {.name = "down", .shape = {18, 3}, .cut = TensorCut{.dim = 0, .granule = 6}},
         {.name = "bias", .shape = {3}}},
        {.pipe = last / 2}));
    units_.push_back(model_.add_unit(
        "head",
        {{.name = "scale", .shape = {5}},
         {.name = "w", .shape = {7, 5}, .tied_to = TiedTo{"table", "w"}, .cut = TensorCut{}}},
        {.pipe = last}));
    model_.materialize(init::constant(0.5F));
    model_.optimize_with(SGD{.lr = 0.125F}, {.clip_norm = 0.0F});
  }

  void train(int samples_before) {
    const int data = mesh_.index("replicate") * mesh_.size("shard") + mesh_.index("shard");
    for (int m = 0; m < model_.options().accumulate; ++m) {
      const int sample = samples_before + data * model_.options().accumulate + m;
      for (const Unit unit : units_) {
        if (is_mine(unit)) { (void)model_.forward(unit); }
      }
      for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
        if (is_mine(*unit)) { backward(*unit, sample); }
      }
    }
    loss_ = world_.allocate(Category::activations, sizeof(double), "loss");
    *static_cast<double*>(loss_.data()) = samples_before + 10.0 + data;
    const bool tells = mesh_.index("pipe") == mesh_.size("pipe") - 1;
    model_.step(tells ? static_cast<const double*>(loss_.data()) : nullptr);
  }

  /// Copies this rank's elements to `to`; the rest is kNothing.
  void collect(Result& to) {
    for (const Unit unit : units_) {
      if (!is_mine(unit)) { continue; }
      const UnitLayout& layout = model_.layout(unit);
      const Evaluation evaluation = model_.evaluate();
      const ForwardScope scope = model_.forward(unit);
      for (std::size_t p = 0; p < layout.specs().size(); ++p) {
        const ParameterSpec& spec = layout.specs()[p];
        const bool tied = spec.tied_to.has_value();
        auto& values = to.parameters[tied ? "table.w" : model_.unit_name(unit) + "." + spec.name];
        values.resize(static_cast<std::size_t>(spec.shape.elems()), kNothing);
        const ConstValues mine = scope[spec.name];
        layout.part(p).for_each_run(
            {0, layout.part(p).elems()}, [&](const Range& whole, std::int64_t at) {
              for (std::int64_t i = 0; i < whole.elems; ++i) {
                values[static_cast<std::size_t>(whole.first + i)] = value_of(mine, at + i);
              }
            });
      }
    }
  }
  [[nodiscard]] StepReport report() const { return model_.report(); }

 private:
  /// Whether this rank has the unit. An alias's scope also opens the tie's owner at the alias's
  /// place.
  [[nodiscard]] bool is_mine(Unit unit) const {
    const int last = mesh_.size("pipe") - 1;
    const int place = unit == units_[0] ? 0 : unit == units_[1] ? last / 2 : last;
    return mesh_.index("pipe") == place;
  }

  void backward(Unit unit, int sample) {
    const UnitLayout& layout = model_.layout(unit);
    const BackwardScope scope = model_.backward(unit);
    for (std::size_t p = 0; p < layout.specs().size(); ++p) {
      const ParameterSpec& spec = layout.specs()[p];
      if (!scope.has_grad(spec.name)) { continue; }
      float* const gradient = scope.grad(spec.name);
      const auto id = static_cast<std::uint32_t>(spec.tied_to ? 0 : 10 * unit.index() + p);
      const bool in_parts = spec.tensor_gradient == TensorGradient::part;
      layout.part(p).for_each_run({0, layout.part(p).elems()}, [&](const Range& whole,
                                                                   std::int64_t at) {
        for (std::int64_t i = 0; i < whole.elems; ++i) {
          const std::int64_t element = whole.first + i;
          const bool mine = !in_parts || element % mesh_.size("tensor") == mesh_.index("tensor");
          const bool alias = spec.tied_to.has_value();
          gradient[at + i] += mine ? gradient_of(id, element, sample, alias) : 0.0F;
        }
      });
    }
  }

  World& world_;
  Mesh mesh_;
  ShardedModel model_;
  std::vector<Unit> units_;
  Buffer loss_;
};

/// Expects ranks that share an element to have the same value.
void merge(const std::vector<float>& values, const std::string& name, Result& to) {
  std::vector<float>& known = to.parameters[name];
  known.resize(values.size(), kNothing);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kNothing) { continue; }
    EXPECT_TRUE(known[i] == kNothing || known[i] == values[i]) << name << "[" << i << "] differs";
    known[i] = values[i];
  }
}

Result train(const Case& from) {
  Result result;
  std::mutex mutex;
  const int ranks = from.mesh.empty() ? 1 : MeshShape{from.mesh}.ranks();
  run_ranks(ranks, [&](World& world) {
    MeshModel model{world, from};
    for (int step = 0; step < kSteps; ++step) {
      model.train(100 * step);
      const StepReport report = model.report();
      if (world.rank() != ranks - 1) { continue; }
      result.norms.push_back(report.grad_norm);
      result.losses.push_back(report.loss);
    }
    Result mine;
    model.collect(mine);
    const std::scoped_lock lock{mutex};
    for (const auto& [name, values] : mine.parameters) { merge(values, name, result); }
  });
  return result;
}

/// The result of one rank with all samples.
Result alone(const Case& from) {
  const int data_ranks = MeshShape{from.mesh}.data_ranks();
  Result result = train(
      {.mesh = {}, .compute = from.compute, .micro_batches = from.micro_batches * data_ranks});
  for (double& loss : result.losses) { loss += (data_ranks - 1) / 2.0; }
  return result;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name =
      fmt::format("{}_{}", to_string(info.param.strategy), to_string(info.param.compute));
  for (const MeshDim& dim : info.param.mesh) { name += fmt::format("_{}{}", dim.name, dim.size); }
  return name;
}

class MeshModels : public ::testing::TestWithParam<Case> {};

TEST_P(MeshModels, EndWithTheBitsOfOneRank) {
  const Result one = alone(GetParam());
  const Result on_mesh = train(GetParam());
  EXPECT_EQ(on_mesh.norms, one.norms);
  EXPECT_EQ(on_mesh.losses, one.losses);
  ASSERT_EQ(on_mesh.parameters.size(), 7U);
  EXPECT_EQ(on_mesh.parameters, one.parameters);
}

using enum Strategy;
INSTANTIATE_TEST_SUITE_P(
    Mesh, MeshModels,
    ::testing::Values(Case{{{"tensor", 2}}}, Case{{{"tensor", 3}}, ddp},
                      Case{{{"tensor", 5}}, zero1}, Case{{{"pipe", 2}}}, Case{{{"pipe", 3}}, zero2},
                      Case{{{"pipe", 2}, {"replicate", 3}}, ddp},
                      Case{{{"pipe", 2}, {"shard", 2}, {"tensor", 2}}},
                      Case{{{"pipe", 2}, {"shard", 2}, {"tensor", 2}}, zero1},
                      Case{{{"pipe", 2}, {"shard", 2}, {"tensor", 2}}, zero3, DType::bf16},
                      Case{{{"tensor", 2}, {"shard", 2}, {"pipe", 2}}, zero2},
                      Case{{{"replicate", 2}, {"shard", 2}, {"tensor", 2}}, hybrid},
                      Case{{{"pipe", 3}, {"replicate", 2}, {"tensor", 2}}, zero3, DType::bf16},
                      Case{{{"pipe", 2}, {"replicate", 2}, {"shard", 2}, {"tensor", 3}}}),
    name_of);

TEST(MeshModel, IsRefusedUnderDp) {
  const std::string text = refusal<ConfigError>(2, [](World& world) {
    ShardedModel model{world, {.strategy = dp, .mesh = {{"tensor", 2}}}};
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("mesh tensor 2"), HasSubstr("under dp rank 0 keeps the whole")));
}

TEST(MeshModel, RefusesAUnitBeyondTheLastPlaceAlongPipe) {
  const std::string text = refusal<ConfigError>(2, [](World& world) {
    ShardedModel model{world, {.mesh = {{"pipe", 2}}}};
    model.add_unit("block", {{.name = "w", .shape = {3}}}, {.pipe = 2});
  });
  EXPECT_THAT(text, HasSubstr("unit 'block': `pipe` is 2, and the mesh has 2 places along pipe"));
}

TEST(MeshModel, RefusesADimensionThatItDoesNotUse) {
  const auto materialize = [](const char* dimension) {
    return refusal<ConfigError>(2, [&](World& world) {
      ShardedModel model{world, {.mesh = {{dimension, 2}}}};
      model.add_unit("block", {{.name = "w", .shape = {3}}});
      model.materialize(init::constant(1.0F));
    });
  };
  EXPECT_THAT(materialize("tensor"), HasSubstr("mesh tensor 2: no parameter is cut along tensor"));
  EXPECT_THAT(materialize("pipe"), HasSubstr("mesh pipe 2: no unit is at place 1 along pipe"));
}

TEST(MeshModel, RefusesToOpenAUnitOfAnotherPlace) {
  const std::string text = refusal<ContractError>(2, [](World& world) {
    ShardedModel model{world, {.mesh = {{"pipe", 2}}}};
    model.add_unit("first", {{.name = "w", .shape = {3}}});
    const Unit unit = model.add_unit("block", {{.name = "w", .shape = {3}}}, {.pipe = 1});
    model.materialize(init::constant(1.0F));
    EXPECT_EQ(model.has(unit), world.rank() == 1);
    (void)model.forward(unit);
  });
  EXPECT_THAT(text,
              HasSubstr("forward of unit 'block': the unit is at place 1 along pipe, and this "
                        "rank at place 0"));
}

TEST(MeshModel, RefusesToTieParametersThatAreCutDifferently) {
  const std::string text = refusal<ContractError>(1, [](World& world) {
    ShardedModel model{world};
    model.add_unit("a", {{.name = "w", .shape = {3}, .cut = TensorCut{}}});
    model.add_unit("b", {{.name = "w", .shape = {3}, .tied_to = TiedTo{"a", "w"}}});
  });
  EXPECT_THAT(text, HasSubstr("'b.w' is tied to 'a.w', but the two are cut differently"));
}

/// A rank along tensor without elements of the only trained parameter decides like the others.
TEST(MeshModel, ChecksWholeParametersOnRanksWithoutAPart) {
  const std::vector<ModelOptions> some{
      {.compute = DType::bf16, .master_weights = MasterWeights::remainder},
      {.compute = DType::bf16, .offload = Offload::state}};
  for (ModelOptions options : some) {
    options.mesh = {{"tensor", 2}};
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, options};
      const Unit unit = model.add_unit("a", {{.name = "w", .shape = {1, 32}, .cut = TensorCut{}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(AdamW{});
      const bool has_it = world.rank() == 1;
      EXPECT_EQ(model.layout(unit).part(0).elems(), has_it ? 32 : 0);
    });
  }
}

TEST(MeshModel, NamesTheSameOriginOfNaNOnRanksWithoutAPart) {
  std::vector<std::string> told(2);
  run_ranks(2, [&](World& world) {
    ShardedModel model{world, {.mesh = {{"tensor", 2}}, .max_skips = 2}};
    std::vector<Unit> units;
    units.push_back(model.add_unit("a", {{.name = "w", .shape = {1, 4}, .cut = TensorCut{}}}));
    for (const char* const name : {"b", "c"}) {
      units.push_back(model.add_unit(name, {{.name = "w", .shape = {4}}}));
    }
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{});
    try {
      for (int step = 0; step < 3; ++step) {
        for (const Unit unit : units) { (void)model.forward(unit); }
        for (const Unit unit : {units[2], units[1], units[0]}) {
          const BackwardScope scope = model.backward(unit);
          float* const gradient = scope.grad("w");
          if (unit == units[1]) { gradient[0] = std::numeric_limits<float>::quiet_NaN(); }
        }
        model.step();
      }
    } catch (const NumericError& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(told[0], HasSubstr("in the gradients of unit 'b'"));
  EXPECT_EQ(told[0], told[1]);
}

TEST(MeshModel, NamesTheFirstUnitOfAPassWhoseValuesAreNotFinite) {
  struct Origin {
    bool parameters;  // parameters are not finite; false: only gradients
    bool whole;       // each rank declares the order of all units; false: of its own units
    const char* told;
  };
  // Without an order of all units, the order of declaration decides which unit is first.
  for (const Origin& c : {Origin{true, true, "in the parameters of unit 'first' on rank 0"},
                          Origin{false, true, "in the gradients of unit 'last' on rank 1"},
                          Origin{true, false, "in the parameters of unit 'last' on rank 1"},
                          Origin{false, false, "in the gradients of unit 'first' on rank 0"}}) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::string text = refusal<NumericError>(2, [&](World& world) {
      ShardedModel model{world, {.mesh = {{"pipe", 2}}, .max_skips = 1}};
      const Unit last = model.add_unit("last", {{.name = "w", .shape = {3}}}, {.pipe = 1});
      const Unit first = model.add_unit("first", {{.name = "w", .shape = {3}}}, {.pipe = 0});
      const Unit mine = world.rank() == 0 ? first : last;
      model.declare_order(c.whole ? std::vector{first, last} : std::vector{mine});
      model.materialize(init::constant(c.parameters ? nan : 1.0F));
      model.optimize_with(SGD{});
      (void)model.forward(mine);
      model.backward(mine).grad("w")[0] = nan;
      model.step();
    });
    EXPECT_THAT(text, HasSubstr(c.told));
  }
}

TEST(MeshModel, AsksOnlyTheRanksWithTheLossForItsScale) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world,
                       {.mesh = {{"pipe", 2}},
                        .loss_scaling = {.mode = LossScaleMode::fixed, .initial = 1024.0F}}};
    const std::vector<Unit> units{model.add_unit("a", {{.name = "w", .shape = {4}}}),
                                  model.add_unit("b", {{.name = "w", .shape = {4}}}, {.pipe = 1})};
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{});
    const Unit mine = units[static_cast<std::size_t>(world.rank())];
    if (world.rank() == 1) { EXPECT_EQ(*model.loss_scale(), 1024.0F); }
    (void)model.forward(mine);
    { (void)model.backward(mine); }
    model.step();
    EXPECT_EQ(model.report().loss_scale, 1024.0F);
  });
}

TEST(MeshModel, RefusesToOffloadTheUpdateOfWhatPlacesShare) {
  const std::string text = refusal<ConfigError>(2, [](World& world) {
    ShardedModel model{world, {.mesh = {{"pipe", 2}}, .offload = Offload::optimizer}};
    model.add_unit("a", {{.name = "w", .shape = {3}}});
    model.add_unit("b", {{.name = "w", .shape = {3}, .tied_to = TiedTo{"a", "w"}}}, {.pipe = 1});
    model.materialize(init::constant(1.0F));
  });
  EXPECT_THAT(text, AllOf(HasSubstr("unit 'a': `offload` optimizer"), HasSubstr("along pipe")));
}

}  // namespace
}  // namespace tessera::test::mesh_model_test
