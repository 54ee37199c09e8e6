// Mistakes of a C program are refused with an error text, and the model still works.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>

#include "c/c_support.hpp"

namespace tessera::c_test {
namespace {

/// A rank with a trainable model, a declared one, and handles that are closed.
struct Place {
  tessera_world* world;
  Line line;
  tessera_model* declared = nullptr;
  tessera_unit other_unit = 0;
  tessera_scope* closed_scope = nullptr;
  tessera_model* closed_model = nullptr;

  explicit Place(tessera_world* rank) : world{rank}, line{rank} {
    EXPECT_DONE(tessera_model_create(world, nullptr, &declared));
    const tessera_parameter_spec spec = vector_of("w", 5);
    EXPECT_DONE(tessera_add_unit(declared, "other", &spec, 1, nullptr, &other_unit));
    EXPECT_DONE(tessera_model_create(world, nullptr, &closed_model));
    EXPECT_DONE(tessera_model_destroy(closed_model));
    closed_scope = open();
    EXPECT_DONE(tessera_close(closed_scope));
    tessera_scope* scope = nullptr;
    EXPECT_DONE(tessera_backward(line.model, line.unit, &scope));
    EXPECT_DONE(tessera_close(scope));
    EXPECT_DONE(tessera_step(line.model, nullptr));
  }
  [[nodiscard]] tessera_scope* open() const {
    tessera_scope* scope = nullptr;
    EXPECT_DONE(tessera_forward(line.model, line.unit, &scope));
    return scope;
  }
};

/// A mistake: the call, and its message.
struct Mistake {
  const char* name;
  tessera_status (*make)(const Place& at);
  tessera_status expected;
  const char* text;
};

tessera_status add(const Place& at, const tessera_parameter_spec& spec) {
  tessera_unit unit = 0;
  return tessera_add_unit(at.declared, "more", &spec, 1, nullptr, &unit);
}

/// Creates a model with options that `change` has modified.
template <class Change>
tessera_status create(const Place& at, const Change& change) {
  tessera_model_options options;
  EXPECT_DONE(tessera_model_options_init(&options, sizeof options));
  change(options);
  tessera_model* model = nullptr;
  return tessera_model_create(at.world, &options, &model);
}

template <class Change>
tessera_status optimize(const Place& at, const Change& change) {
  tessera_optimizer_options options;
  EXPECT_DONE(tessera_optimizer_options_init(&options, sizeof options, TESSERA_ADAMW));
  change(options);
  return tessera_optimize_with(at.line.model, &options);
}

/// Calls `use` with an open scope, then closes the scope.
template <class Use>
tessera_status in_scope(const Place& at, const Use& use) {
  tessera_scope* const scope = at.open();
  const tessera_status status = use(scope);
  const std::string text = tessera_last_error();
  EXPECT_DONE(tessera_close(scope));
  return status == TESSERA_OK ? status : tessera_fail(status, text.c_str());
}

const Mistake kMistakes[] = {
    // Handles.
    {"NullWorld", [](const Place&) { return tessera_barrier(nullptr); }, TESSERA_CONTRACT_ERROR,
     "tessera_barrier: the world is NULL"},
    {"NullModel", [](const Place&) { return tessera_step(nullptr, nullptr); },
     TESSERA_CONTRACT_ERROR, "tessera_step: the model is NULL"},
    {"CountedStepOfNothing",
     [](const Place& at) { return tessera_step_counted(at.line.model, nullptr, nullptr, 0.0); },
     TESSERA_CONTRACT_ERROR,
     "tessera_step_counted: `of` is the number of all tokens, above 0 and finite"},
    {"NullScope", [](const Place&) { return tessera_close(nullptr); }, TESSERA_CONTRACT_ERROR,
     "tessera_close: the scope is NULL"},
    {"NullEvaluation", [](const Place&) { return tessera_end_pass(nullptr); },
     TESSERA_CONTRACT_ERROR, "the evaluation is NULL"},
    {"NullRegistration", [](const Place&) { return tessera_unregister_memory(nullptr); },
     TESSERA_CONTRACT_ERROR, "the registration is NULL"},
    {"ClosedScope", [](const Place& at) { return tessera_close(at.closed_scope); },
     TESSERA_CONTRACT_ERROR, "tessera_close: the scope has been closed, or its rank has ended"},
    {"ParameterOfAClosedScope",
     [](const Place& at) {
       const void* w = nullptr;
       return tessera_parameter(at.closed_scope, "w", TESSERA_FP32, &w);
     },
     TESSERA_CONTRACT_ERROR, "tessera_parameter: the scope has been closed"},
    {"DestroyedModel", [](const Place& at) { return tessera_model_destroy(at.closed_model); },
     TESSERA_CONTRACT_ERROR, "the model has been closed"},
    {"HandleOfAnotherKind",
     [](const Place& at) { return tessera_close(reinterpret_cast<tessera_scope*>(at.world)); },
     TESSERA_CONTRACT_ERROR, "tessera_close: this handle belongs to a world, not to a scope"},
    {"PointerOfTheCallers",
     [](const Place& at) {
       return tessera_barrier(reinterpret_cast<tessera_world*>(const_cast<Place*>(&at)));
     },
     TESSERA_CONTRACT_ERROR, "is not a handle of a world; pass one that the library has written"},
    // Units.
    {"NoUnit",
     [](const Place& at) {
       tessera_scope* scope = nullptr;
       return tessera_forward(at.line.model, 0, &scope);
     },
     TESSERA_CONTRACT_ERROR, "tessera_forward: the unit is 0, which is invalid"},
    {"UnitOfAnotherModel",
     [](const Place& at) {
       tessera_scope* scope = nullptr;
       return tessera_forward(at.line.model, at.other_unit, &scope);
     },
     TESSERA_CONTRACT_ERROR, "tessera_forward: the unit is of another model"},
    {"UnitThatWasNeverDeclared",
     [](const Place& at) {
       tessera_scope* scope = nullptr;
       return tessera_forward(at.line.model, at.line.unit + 1, &scope);
     },
     TESSERA_CONTRACT_ERROR, "the unit is of another model"},
    // Declarations.
    {"TooManyDims",
     [](const Place& at) {
       tessera_parameter_spec spec = vector_of("x", 3);
       spec.dims = 9;
       return add(at, spec);
     },
     TESSERA_CONTRACT_ERROR, "parameter 'x' has 9 dims, but may have 0 to 8"},
    {"ParameterWithoutAName", [](const Place& at) { return add(at, vector_of(nullptr, 3)); },
     TESSERA_CONTRACT_ERROR, "the name of a parameter is NULL"},
    {"NegativeExtent", [](const Place& at) { return add(at, vector_of("x", -3)); },
     TESSERA_CONTRACT_ERROR, "-3"},
    {"ReservedBytes",
     [](const Place& at) {
       tessera_parameter_spec spec = vector_of("x", 3);
       spec.reserved[3] = 1;
       return add(at, spec);
     },
     TESSERA_CONTRACT_ERROR, "reserved bytes that are not zero"},
    {"AliasOfNothing",
     [](const Place& at) {
       tessera_parameter_spec spec = vector_of("x", 3);
       spec.tied_unit = "nowhere";
       spec.tied_parameter = "w";
       return add(at, spec);
     },
     TESSERA_CONTRACT_ERROR, "nowhere"},
    {"HalfAnAlias",
     [](const Place& at) {
       tessera_parameter_spec spec = vector_of("x", 3);
       spec.tied_unit = "other";
       return add(at, spec);
     },
     TESSERA_CONTRACT_ERROR, "tied_parameter is NULL"},
    {"SecondUnitOfAName",
     [](const Place& at) {
       tessera_unit unit = 0;
       const tessera_parameter_spec spec = vector_of("w", 5);
       return tessera_add_unit(at.declared, "other", &spec, 1, nullptr, &unit);
     },
     TESSERA_CONTRACT_ERROR, "other"},
    {"UnitAfterMaterialize",
     [](const Place& at) {
       tessera_unit unit = 0;
       const tessera_parameter_spec spec = vector_of("w", 5);
       return tessera_add_unit(at.line.model, "late", &spec, 1, nullptr, &unit);
     },
     TESSERA_CONTRACT_ERROR, "add_unit"},
    // Options.
    {"OptionsWithoutASize",
     [](const Place& at) { return create(at, [](auto& options) { options.size = 0; }); },
     TESSERA_CONTRACT_ERROR, "the size of tessera_model_options is 0"},
    {"OptionsOfANewerHeader",
     [](const Place& at) { return create(at, [](auto& options) { options.size += 8; }); },
     TESSERA_CONTRACT_ERROR, "use the header of this library"},
    {"StrategyOutOfTheTable",
     [](const Place& at) { return create(at, [](auto& options) { options.strategy = 77; }); },
     TESSERA_CONTRACT_ERROR, "strategy is 77, but must be from 0 to 5"},
    {"FlagThatIsNone",
     [](const Place& at) { return create(at, [](auto& options) { options.inference = 2; }); },
     TESSERA_CONTRACT_ERROR, "inference is 2, but must be a flag, 0 or 1"},
    {"DtypeThatIsNone",
     [](const Place& at) { return create(at, [](auto& options) { options.compute = 0; }); },
     TESSERA_CONTRACT_ERROR, "compute is 0, which is no dtype"},
    {"HalfAMesh",
     [](const Place& at) { return create(at, [](auto& options) { options.mesh_shard = 1; }); },
     TESSERA_CONTRACT_ERROR, "`mesh_replicate`"},
    {"OptionWithoutEffect",
     [](const Place& at) { return create(at, [](auto& options) { options.shard_group = 2; }); },
     TESSERA_CONFIG_ERROR, "`shard_group`"},
    {"UnknownStrategyName",
     [](const Place&) {
       tessera_strategy strategy = 0;
       return tessera_strategy_from("zero4", &strategy);
     },
     TESSERA_CONFIG_ERROR, "unknown strategy 'zero4'"},
    {"UnknownRule",
     [](const Place&) {
       tessera_optimizer_options options;
       return tessera_optimizer_options_init(&options, sizeof options, 9);
     },
     TESSERA_CONTRACT_ERROR, "update rule 9 does not exist"},
    {"OptimizerNull", [](const Place& at) { return tessera_optimize_with(at.line.model, nullptr); },
     TESSERA_CONTRACT_ERROR, "tessera_optimizer_options is NULL"},
    {"GroupWithoutAFunction",
     [](const Place& at) {
       return optimize(at, [](auto& options) {
         static tessera_parameter_group group = {};
         group.name = "mine";
         options.groups = &group;
         options.group_count = 1;
       });
     },
     TESSERA_CONTRACT_ERROR, "the group 'mine' has no function `chooses`; set it"},
    // Order.
    {"OptimizeTwice", [](const Place& at) { return optimize(at, [](auto&) {}); },
     TESSERA_CONTRACT_ERROR, "optimize_with"},
    {"StepBeforeMaterialize", [](const Place& at) { return tessera_step(at.declared, nullptr); },
     TESSERA_CONTRACT_ERROR, "step"},
    {"ForwardBeforeMaterialize",
     [](const Place& at) {
       tessera_scope* scope = nullptr;
       return tessera_forward(at.declared, at.other_unit, &scope);
     },
     TESSERA_CONTRACT_ERROR, "materialize"},
    {"StepWithoutBackward", [](const Place& at) { return tessera_step(at.line.model, nullptr); },
     TESSERA_CONTRACT_ERROR, "step"},
    {"InitialiserThatFails",
     [](const Place& at) {
       return tessera_materialize(
           at.declared,
           [](const tessera_parameter_info* parameter, std::int64_t, std::int64_t, float*, void*) {
             return tessera_fail(TESSERA_FORMAT_ERROR, parameter->full_name);
           },
           nullptr);
     },
     TESSERA_FORMAT_ERROR, "other.w"},
    // Scopes.
    {"UnknownParameter",
     [](const Place& at) {
       return in_scope(at, [](tessera_scope* scope) {
         const void* data = nullptr;
         return tessera_parameter(scope, "weigth", TESSERA_FP32, &data);
       });
     },
     TESSERA_CONTRACT_ERROR, "weigth"},
    {"ParameterOfAnotherDtype",
     [](const Place& at) {
       return in_scope(at, [](tessera_scope* scope) {
         const void* data = nullptr;
         return tessera_parameter(scope, "w", TESSERA_BF16, &data);
       });
     },
     TESSERA_CONTRACT_ERROR, "the elements of 'w' are fp32, but were requested as bf16"},
    {"GradientInForward",
     [](const Place& at) {
       return in_scope(at, [](tessera_scope* scope) {
         void* data = nullptr;
         return tessera_gradient(scope, "w", TESSERA_FP32, &data);
       });
     },
     TESSERA_CONTRACT_ERROR, "tessera_gradient: a forward scope has no gradients"},
    {"NullResult",
     [](const Place& at) {
       return in_scope(at, [](tessera_scope* scope) {
         return tessera_parameter(scope, "w", TESSERA_FP32, nullptr);
       });
     },
     TESSERA_CONTRACT_ERROR, "tessera_parameter: data is NULL"},
    {"UnitThatIsOpen",
     [](const Place& at) {
       return in_scope(at, [&](tessera_scope*) {
         tessera_scope* again = nullptr;
         return tessera_forward(at.line.model, at.line.unit, &again);
       });
     },
     TESSERA_CONTRACT_ERROR, "line"},
    {"DestroyWithAnOpenScope",
     [](const Place& at) {
       return in_scope(at, [&](tessera_scope*) { return tessera_model_destroy(at.line.model); });
     },
     TESSERA_CONTRACT_ERROR, "a scope of unit 'line' is open; call tessera_close first"},
    {"BackwardInAnEvaluation",
     [](const Place& at) {
       tessera_evaluation* evaluation = nullptr;
       tessera_scope* scope = nullptr;
       EXPECT_DONE(tessera_evaluate(at.line.model, &evaluation));
       const tessera_status status = tessera_backward(at.line.model, at.line.unit, &scope);
       const std::string text = tessera_last_error();
       EXPECT_DONE(tessera_end_evaluation(evaluation));
       return tessera_fail(status, text.c_str());
     },
     TESSERA_CONTRACT_ERROR, "evaluat"},
    {"EvaluationEndsWithAnOpenScope",
     [](const Place& at) {
       tessera_evaluation* evaluation = nullptr;
       EXPECT_DONE(tessera_evaluate(at.line.model, &evaluation));
       const tessera_status status =
           in_scope(at, [&](tessera_scope*) { return tessera_end_evaluation(evaluation); });
       const std::string text = tessera_last_error();
       EXPECT_DONE(tessera_end_evaluation(evaluation));
       return tessera_fail(status, text.c_str());
     },
     TESSERA_CONTRACT_ERROR, "close it before the evaluation ends"},
    {"SinkThatFails",
     [](const Place& at) {
       return tessera_export_state(
           at.line.model, TESSERA_PARAMETERS,
           [](const tessera_parameter_info*, const float*, std::int64_t, void*) {
             return tessera_fail(TESSERA_ERROR, "the pipe is closed");
           },
           nullptr);
     },
     TESSERA_ERROR, "the pipe is closed"},
    {"ExportOfSlots",
     [](const Place& at) {
       return tessera_export_state(
           at.line.model, TESSERA_GATHER,
           [](const tessera_parameter_info*, const float*, std::int64_t, void*) -> tessera_status {
             return TESSERA_OK;
           },
           nullptr);
     },
     TESSERA_CONTRACT_ERROR, "TESSERA_PARAMETERS or TESSERA_GRADIENTS"},
    {"ReportWithoutASize",
     [](const Place& at) {
       tessera_step_report report = {};
       return tessera_report(at.line.model, &report);
     },
     TESSERA_CONTRACT_ERROR, "the size of tessera_step_report is 0"},
};

class AMistake : public testing::TestWithParam<Mistake> {};
void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}
INSTANTIATE_TEST_SUITE_P(CApi, AMistake, testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return std::string{mistake.param.name}; });

TEST_P(AMistake, IsRefusedWithATextAndTheModelGoesOn) {
  EXPECT_DONE(run_ranks(1, [](tessera_world* world) -> tessera_status {
    const Place at{world};
    expect_failed(GetParam().make(at), GetParam().expected, GetParam().text);
    EXPECT_DONE(at.line.step());
    EXPECT_EQ(weight_of(at.line.model, at.line.unit), 0.5F);
    return TESSERA_OK;
  }));
}

TEST(CErrors, BelongToTheirThread) {
  expect_failed(tessera_fail(TESSERA_NUMERIC_ERROR, "mine"), TESSERA_NUMERIC_ERROR, "mine");
  std::thread{[] { EXPECT_STREQ(tessera_last_error(), ""); }}.join();
  EXPECT_STREQ(tessera_last_error(), "mine");
  expect_failed(tessera_fail(TESSERA_OK, nullptr), TESSERA_ERROR, "no reason given");
}

TEST(CErrors, HaveANameEach) {
  EXPECT_STREQ(tessera_status_name(TESSERA_OK), "ok");
  EXPECT_STREQ(tessera_status_name(TESSERA_ERROR), "error");
  EXPECT_STREQ(tessera_status_name(9), "unknown status");
  EXPECT_STREQ(tessera_status_name(-1), "unknown status");
}

}  // namespace
}  // namespace tessera::c_test
