// A trainer written against tessera/c.h matches the same trainer in C++ bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "c/c_support.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::c_test {
namespace {

constexpr int kSteps = 3;
constexpr int kUnits = 3;
constexpr std::int64_t kRows = 7;
constexpr std::int64_t kColumns = 11;

using Weights = std::map<std::string, std::vector<float>>;

/// The settings of both trainers.
struct Course {
  const char* name;
  int ranks;
  Strategy strategy;
  std::int32_t rule;  // TESSERA_ADAMW, ...
  int accumulate = 1;
  bool in_flight = false;  // all micro-batches at once
  bool declared = false;   // the order of units is declared
  DType compute = DType::fp32;
  bool everything = false;  // groups, decay, clipping, moments, a rate that changes
};

void PrintTo(const Course& course, std::ostream* out) {
  *out << course.name;
}

/// A made-up gradient of element `i`.
float slope(float weight, std::int64_t i, int rank, int step, int micro_batch) {
  const int place = 7 * rank + 3 * step + 5 * micro_batch;
  return 0.1F * weight + std::sin(static_cast<float>(i + place));
}

// What a rank counts where a course has everything.
constexpr double kLoss = 0.5;
constexpr double kCounted = 3.0;
constexpr double kTokens = 8.0;

float rate_of(int step) {
  return 0.01F / static_cast<float>(step + 1);
}

float read(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::bf16) { return static_cast<const bfloat16*>(data)[i].to_float(); }
  return static_cast<const float*>(data)[i];
}

std::string unit_name(int unit) {
  return "unit." + std::to_string(unit);
}

// ------------------------------------------------------------------------------- in C++

Optimizer rule_of(std::int32_t rule) {
  switch (rule) {
    case TESSERA_ADAM:
      return Adam{.lr = 0.02F, .weight_decay = 0.1F};
    case TESSERA_SGD:
      return SGD{.lr = 0.02F, .momentum = 0.5F};
    case TESSERA_LION:
      return Lion{.lr = 0.02F};
    default:
      return AdamW{.lr = 0.02F};
  }
}

OptimizerOptions options_of(const Course& course) {
  if (!course.everything) { return {}; }
  OptimizerOptions options{.clip_norm = 0.5F};
  options.decays = [](std::string_view name, const Shape&) { return name.ends_with("bias"); };
  options.groups = {{.name = "first",
                     .contains = [](const ParameterInfo& p) { return p.unit == "unit.0"; },
                     .lr_scale = 0.25F,
                     .weight_decay = 0.3F}};
  options.moments = MomentFormat::bf16;
  options.rounding = Rounding::stochastic;
  options.rounding_seed = 9;
  return options;
}

Weights train_in_cpp(World& world, const Course& course) {
  ShardedModel model{
      world,
      {.strategy = course.strategy, .compute = course.compute, .accumulate = course.accumulate}};
  std::vector<Unit> units;
  for (int u = 0; u < kUnits; ++u) {
    units.push_back(model.add_unit(unit_name(u), {{"weight", {kRows, kColumns}},
                                                  {"bias", {kColumns}},
                                                  {"still", {kRows}, /*trainable=*/false}}));
  }
  if (course.declared) { model.declare_order(units); }
  model.materialize(init::normal(5, 0.3F));
  model.optimize_with(rule_of(course.rule), options_of(course));

  const auto forward = [&](int m) {
    for (const Unit unit : units) { model.forward(unit, m).close(); }
  };
  const auto backward = [&](int step, int m) {
    for (int u = kUnits; u-- > 0;) {
      const auto scope = model.backward(units[static_cast<std::size_t>(u)], m);
      for (const char* name : {"weight", "bias"}) {
        auto* const gradient = static_cast<float*>(scope.grad(name));
        const ConstTensor weights = scope[name];
        for (std::int64_t i = 0; i < weights.shape().elems(); ++i) {
          gradient[i] += slope(read(weights.data(), course.compute, i), i, world.rank(), step, m);
        }
      }
    }
  };
  for (int step = 0; step < kSteps; ++step) {
    if (course.everything) { model.set_learning_rate(rate_of(step)); }
    for (int m = 0; m < course.accumulate; ++m) {
      forward(m);
      if (!course.in_flight) { backward(step, m); }
    }
    for (int m = 0; course.in_flight && m < course.accumulate; ++m) { backward(step, m); }
    if (course.everything) {
      model.step(&kLoss, {&kCounted, kTokens});
    } else {
      model.step();
    }
  }
  Weights weights;
  model.export_state(StateTensor::parameters, [&](const ParameterInfo& parameter, auto values) {
    weights[parameter.full_name()].assign(values.begin(), values.end());
  });
  return weights;
}

// --------------------------------------------------------------------------------- in C

tessera_status add_units(tessera_model* model, tessera_unit* units) {
  for (int u = 0; u < kUnits; ++u) {
    tessera_parameter_spec specs[3] = {{}, vector_of("bias", kColumns), vector_of("still", kRows)};
    specs[0].name = "weight";
    specs[0].dims = 2;
    specs[0].shape[0] = kRows;
    specs[0].shape[1] = kColumns;
    specs[2].frozen = 1;
    TESSERA_TRY(tessera_add_unit(model, unit_name(u).c_str(), specs, 3, nullptr, &units[u]));
  }
  return TESSERA_OK;
}

tessera_status optimize(tessera_model* model, const Course& course) {
  tessera_optimizer_options options;
  TESSERA_TRY(tessera_optimizer_options_init(&options, sizeof options, course.rule));
  options.lr = 0.02F;
  if (course.rule == TESSERA_ADAM) { options.weight_decay = 0.1F; }
  if (course.rule == TESSERA_SGD) { options.momentum = 0.5F; }
  tessera_parameter_group group = {};
  if (course.everything) {
    options.clip_norm = 0.5F;
    options.decays = [](const char* name, const std::int64_t*, std::int32_t, void*) {
      return std::int32_t{std::string_view{name}.ends_with("bias")};
    };
    group.name = "first";
    group.chooses = [](const tessera_parameter_info* parameter, void*) {
      return std::int32_t{std::string_view{parameter->unit} == "unit.0"};
    };
    group.lr_scale = 0.25F;
    group.has_weight_decay = 1;
    group.weight_decay = 0.3F;
    options.groups = &group;
    options.group_count = 1;
    options.moments = TESSERA_MOMENTS_BF16;
    options.round_stochastically = 1;
    options.rounding_seed = 9;
  }
  return tessera_optimize_with(model, &options);
}

tessera_status forward(tessera_model* model, const tessera_unit* units, int micro_batch) {
  for (int u = 0; u < kUnits; ++u) {
    tessera_scope* scope = nullptr;
    TESSERA_TRY(tessera_forward_of(model, units[u], micro_batch, &scope));
    TESSERA_TRY(tessera_close(scope));
  }
  return TESSERA_OK;
}

tessera_status backward(tessera_model* model, const tessera_unit* units, const Course& course,
                        int rank, int step, int micro_batch) {
  const tessera_dtype dtype = course.compute == DType::bf16 ? TESSERA_BF16 : TESSERA_FP32;
  for (int u = kUnits; u-- > 0;) {
    tessera_scope* scope = nullptr;
    TESSERA_TRY(tessera_backward_of(model, units[u], micro_batch, &scope));
    for (const auto& [name, elems] :
         {std::pair{"weight", kRows * kColumns}, std::pair{"bias", kColumns}}) {
      void* gradient = nullptr;
      const void* weights = nullptr;
      TESSERA_TRY(tessera_gradient(scope, name, TESSERA_FP32, &gradient));
      TESSERA_TRY(tessera_parameter(scope, name, dtype, &weights));
      for (std::int64_t i = 0; i < elems; ++i) {
        static_cast<float*>(gradient)[i] +=
            slope(read(weights, course.compute, i), i, rank, step, micro_batch);
      }
    }
    TESSERA_TRY(tessera_close(scope));
  }
  return TESSERA_OK;
}

tessera_status keep(const tessera_parameter_info* parameter, const float* values,
                    std::int64_t count, void* user) {
  (*static_cast<Weights*>(user))[parameter->full_name].assign(values, values + count);
  return TESSERA_OK;
}

tessera_status train_in_c(tessera_world* world, const Course& course, Weights& weights) {
  std::int32_t rank = 0;
  TESSERA_TRY(tessera_world_place(world, &rank, nullptr));
  tessera_model_options options;
  TESSERA_TRY(tessera_model_options_init(&options, sizeof options));
  options.strategy = static_cast<tessera_strategy>(course.strategy);
  options.compute = course.compute == DType::bf16 ? TESSERA_BF16 : TESSERA_FP32;
  options.accumulate = course.accumulate;
  tessera_model* model = nullptr;
  TESSERA_TRY(tessera_model_create(world, &options, &model));
  tessera_unit units[kUnits];
  TESSERA_TRY(add_units(model, units));
  if (course.declared) { TESSERA_TRY(tessera_declare_order(model, units, kUnits)); }
  TESSERA_TRY(tessera_materialize_normal(model, 5, 0.3F));
  TESSERA_TRY(optimize(model, course));
  for (int step = 0; step < kSteps; ++step) {
    if (course.everything) { TESSERA_TRY(tessera_set_learning_rate(model, rate_of(step))); }
    for (int m = 0; m < course.accumulate; ++m) {
      TESSERA_TRY(forward(model, units, m));
      if (!course.in_flight) { TESSERA_TRY(backward(model, units, course, rank, step, m)); }
    }
    for (int m = 0; course.in_flight && m < course.accumulate; ++m) {
      TESSERA_TRY(backward(model, units, course, rank, step, m));
    }
    if (course.everything) {
      TESSERA_TRY(tessera_step_counted(model, &kLoss, &kCounted, kTokens));
    } else {
      TESSERA_TRY(tessera_step(model, nullptr));
    }
  }
  Weights other;
  return tessera_export_state(model, TESSERA_PARAMETERS, keep, rank == 0 ? &weights : &other);
}

class SameBits : public testing::TestWithParam<Course> {};
INSTANTIATE_TEST_SUITE_P(
    CApi, SameBits,
    testing::Values(Course{"alone", 1, Strategy::zero3, TESSERA_ADAMW},
                    Course{"dp", 2, Strategy::dp, TESSERA_ADAMW},
                    Course{"ddp", 2, Strategy::ddp, TESSERA_ADAM},
                    Course{"zero1", 2, Strategy::zero1, TESSERA_SGD},
                    Course{"zero2", 3, Strategy::zero2, TESSERA_LION, 2},
                    Course{"zero3", 3, Strategy::zero3, TESSERA_ADAMW, 3, true, true},
                    Course{"bf16", 2, Strategy::zero3, TESSERA_ADAMW, 1, false, false, DType::bf16},
                    Course{"everything", 2, Strategy::zero3, TESSERA_ADAMW, 2, false, false,
                           DType::fp32, true}),
    [](const auto& course) { return std::string{course.param.name}; });

TEST_P(SameBits, EqualTheCppTrainers) {
  Weights expected;
  tessera::run_ranks(GetParam().ranks, [&](World& world) {
    Weights mine = train_in_cpp(world, GetParam());
    if (world.rank() == 0) { expected = std::move(mine); }
  });
  Weights actual;
  EXPECT_DONE(run_ranks(GetParam().ranks, [&](tessera_world* world) {
    return train_in_c(world, GetParam(), actual);
  }));
  EXPECT_EQ(expected.size(), 3U * kUnits);
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace tessera::c_test
