// Ranks of a C program: how they fail, what they leave behind, and what they hold.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "c/c_support.hpp"
#include "support/temporary_folder.hpp"

namespace tessera::c_test {
namespace {

/// How the callback of rank 1 fails, and the message of the run.
struct Failure {
  const char* name;
  tessera_status (*fail)(tessera_world* world, const Line& line);
  tessera_status expected;
  const char* text;
};

void PrintTo(const Failure& failure, std::ostream* out) {
  *out << failure.name;
}

const Failure kFailures[] = {
    {"WithATextOfItsOwn",
     [](tessera_world*, const Line&) { return tessera_fail(TESSERA_ERROR, "no data"); },
     TESSERA_ERROR, "rank 1: no data"},
    {"WithAKindOfItsOwn",
     [](tessera_world*, const Line&) { return tessera_fail(TESSERA_FORMAT_ERROR, "odd file"); },
     TESSERA_FORMAT_ERROR, "rank 1: odd file"},
    {"WithTheStatusOfACall",
     [](tessera_world* world, const Line&) { return tessera_sum(world, 1.0, nullptr); },
     TESSERA_CONTRACT_ERROR, "rank 1: tessera_sum: sum is NULL"},
    {"WithABareStatus",
     [](tessera_world*, const Line&) -> tessera_status { return TESSERA_OUT_OF_MEMORY; },
     TESSERA_OUT_OF_MEMORY, "rank 1: the rank's callback returned 3 (out of memory)"},
    {"WithANumberOfItsOwn", [](tessera_world*, const Line&) -> tessera_status { return 42; },
     TESSERA_ERROR, "rank 1: the rank's callback returned 42 (unknown status)"},
    {"WithAnotherStatusThanTheCallThatFailed",
     [](tessera_world* world, const Line&) -> tessera_status {
       (void)tessera_sum(world, 1.0, nullptr);
       return TESSERA_CONFIG_ERROR;
     },
     TESSERA_CONFIG_ERROR, "rank 1: the rank's callback returned 2 (config error)"},
    {"InTheMiddleOfAScope",
     [](tessera_world*, const Line& line) {
       tessera_scope* scope = nullptr;
       EXPECT_DONE(tessera_forward(line.model, line.unit, &scope));
       return tessera_fail(TESSERA_ERROR, "gave up");
     },
     TESSERA_ERROR, "rank 1: gave up"},
    {"ByItsAbort",
     [](tessera_world* world, const Line&) {
       EXPECT_DONE(tessera_abort(world, "the disk is full"));
       return tessera_barrier(world);
     },
     TESSERA_COMM_ERROR, "the disk is full"},
};

class ACallbackThatFails : public testing::TestWithParam<Failure> {};
INSTANTIATE_TEST_SUITE_P(CApi, ACallbackThatFails, testing::ValuesIn(kFailures),
                         [](const auto& failure) { return std::string{failure.param.name}; });

TEST_P(ACallbackThatFails, EndsAllRanksWithTheFirstCause) {
  std::atomic<int> told{0};
  const tessera_status status = run_ranks(3, [&](tessera_world* world) -> tessera_status {
    std::int32_t rank = -1;
    std::int32_t size = -1;
    EXPECT_DONE(tessera_world_place(world, &rank, &size));
    EXPECT_EQ(size, 3);
    const Line line{world, TESSERA_DDP};  // its scopes need no other rank
    if (rank == 1) { return GetParam().fail(world, line); }
    const tessera_status waited = tessera_barrier(world);
    told += waited == TESSERA_COMM_ERROR ? 1 : 0;
    return waited;
  });
  expect_failed(status, GetParam().expected, GetParam().text);
  const std::string text = tessera_last_error();
  if (text.starts_with("rank 1")) {  // an abort names no rank
    EXPECT_EQ(text.find("rank 0"), std::string::npos) << "a rank that was told is no cause";
  }
  EXPECT_EQ(told, 2) << "the other ranks waited";
}

TEST(CRanks, AreRefusedInImpossibleNumbers) {
  tessera_world_options options;
  EXPECT_DONE(tessera_world_options_init(&options, sizeof options));
  const auto never = [](tessera_world*, void*) { return tessera_fail(TESSERA_ERROR, "it ran"); };
  for (const int ranks : {-1, 0, 1025}) {
    expect_failed(tessera_run_ranks(ranks, never, nullptr, nullptr), TESSERA_CONFIG_ERROR,
                  "ranks must be from 1 to 1024");
  }
  options.threads = 0;
  expect_failed(tessera_run_ranks(2, never, nullptr, &options), TESSERA_CONFIG_ERROR, "`threads`");
  expect_failed(tessera_run_ranks(2, nullptr, nullptr, nullptr), TESSERA_CONTRACT_ERROR,
                "tessera_run_ranks: the callback is NULL");
}

TEST(CRanks, SumInTheirOrderAndMeetAtABarrier) {
  EXPECT_DONE(run_ranks(3, [](tessera_world* world) -> tessera_status {
    std::int32_t rank = 0;
    double sum = 0.0;
    TESSERA_TRY(tessera_world_place(world, &rank, nullptr));
    TESSERA_TRY(tessera_sum(world, rank + 0.5, &sum));
    EXPECT_EQ(sum, 4.5);
    void* stream = world;
    TESSERA_TRY(tessera_world_stream(world, &stream));
    EXPECT_EQ(stream, nullptr) << "of a CPU";
    return tessera_barrier(world);
  }));
}

TEST(CRanks, MayReturnWithAModelButNotWithAScope) {
  EXPECT_DONE(
      run_ranks(2, [](tessera_world* world) -> tessera_status { return Line{world}.step(); }));
  expect_failed(run_ranks(1,
                          [](tessera_world* world) -> tessera_status {
                            const Line line{world};
                            tessera_scope* scope = nullptr;
                            return tessera_forward(line.model, line.unit, &scope);
                          }),
                TESSERA_CONTRACT_ERROR,
                "the rank's callback has returned: a scope of unit 'line' is open");
  expect_failed(run_ranks(1,
                          [](tessera_world* world) -> tessera_status {
                            tessera_evaluation* evaluation = nullptr;
                            return tessera_evaluate(Line{world}.model, &evaluation);
                          }),
                TESSERA_CONTRACT_ERROR, "the model is being evaluated");
}

TEST(CRanks, EndTheirHandles) {
  tessera_world* world = nullptr;
  tessera_model* model = nullptr;
  tessera_registration* registration = nullptr;
  EXPECT_DONE(run_ranks(1, [&](tessera_world* rank) {
    world = rank;
    model = Line{rank}.model;
    return tessera_register_memory(rank, TESSERA_ACTIVATIONS, 64, "mine", &registration);
  }));
  expect_failed(tessera_barrier(world), TESSERA_CONTRACT_ERROR,
                "tessera_barrier: the world has been closed, or its rank has ended");
  expect_failed(tessera_step(model, nullptr), TESSERA_CONTRACT_ERROR, "the model has been closed");
  expect_failed(tessera_unregister_memory(registration), TESSERA_CONTRACT_ERROR,
                "the registration has been closed");
}

TEST(CMemory, CountsTheTrainersMemory) {
  EXPECT_DONE(run_ranks(1, [](tessera_world* world) -> tessera_status {
    const auto live = [&](tessera_category category) {
      tessera_memory_report report = {};
      report.size = sizeof report;
      EXPECT_DONE(tessera_memory(world, &report));
      return report.live[category];
    };
    tessera_registration* registration = nullptr;
    TESSERA_TRY(tessera_register_memory(world, TESSERA_WORKSPACE, 1000, "mine", &registration));
    EXPECT_EQ(live(TESSERA_WORKSPACE), 1000U);
    TESSERA_TRY(tessera_unregister_memory(registration));
    EXPECT_EQ(live(TESSERA_WORKSPACE), 0U);
    void* address = nullptr;
    TESSERA_TRY(tessera_allocate(world, TESSERA_ACTIVATIONS, 256, "activations", &address));
    std::memset(address, 1, 256);
    EXPECT_EQ(live(TESSERA_ACTIVATIONS), 256U);
    expect_failed(tessera_free(world, world), TESSERA_CONTRACT_ERROR,
                  "does not come from tessera_allocate");
    TESSERA_TRY(tessera_free(world, address));
    expect_failed(tessera_free(world, address), TESSERA_CONTRACT_ERROR, "or is already freed");
    EXPECT_EQ(live(TESSERA_ACTIVATIONS), 0U);
    return tessera_free(world, nullptr);
  }));
  EXPECT_STREQ(tessera_category_name(TESSERA_ACTIVATIONS), "activations");
  EXPECT_EQ(tessera_category_name(10), nullptr);
}

TEST(CMemory, IsLimitedByItsBudget) {
  tessera_world_options options;
  EXPECT_DONE(tessera_world_options_init(&options, sizeof options));
  options.budget_bytes = 1 << 20;
  expect_failed(run_ranks(
                    2,
                    [](tessera_world* world) -> tessera_status {
                      void* address = nullptr;
                      return tessera_allocate(world, TESSERA_ACTIVATIONS, 2 << 20, "too much",
                                              &address);
                    },
                    &options),
                TESSERA_OUT_OF_MEMORY, "too much");
}

TEST(CMemory, IsPlannedToTheByte) {
  Body body = [](tessera_world* world) -> tessera_status {
    std::int32_t computes = -1;
    TESSERA_TRY(tessera_world_computes(world, &computes));
    const Line line{world};
    tessera_scope* scope = nullptr;
    TESSERA_TRY(tessera_forward(line.model, line.unit, &scope));
    struct DLManagedTensor* view = nullptr;
    if (computes == 0) {
      expect_failed(tessera_parameter_dlpack(scope, "w", &view), TESSERA_CONTRACT_ERROR,
                    "a simulated rank");
    }
    TESSERA_TRY(tessera_close(scope));
    TESSERA_TRY(tessera_backward(line.model, line.unit, &scope));
    TESSERA_TRY(tessera_close(scope));
    return tessera_step(line.model, nullptr);
  };
  for (const int rank : {0, 1}) {
    tessera_plan_options plan;
    EXPECT_DONE(tessera_plan_options_init(&plan, sizeof plan));
    plan.ranks = 2;
    plan.rank = rank;
    tessera_memory_report planned = {};
    planned.size = sizeof planned;
    EXPECT_DONE(tessera_plan(&plan, call_body, &body, &planned));
    std::uint64_t measured = 0;
    EXPECT_DONE(run_ranks(2, [&](tessera_world* world) -> tessera_status {
      TESSERA_TRY(body(world));
      std::int32_t mine = 0;
      tessera_memory_report report = {};
      report.size = sizeof report;
      TESSERA_TRY(tessera_world_place(world, &mine, nullptr));
      TESSERA_TRY(tessera_memory(world, &report));
      if (mine == rank) { measured = report.peak_bytes; }
      return TESSERA_OK;
    }));
    EXPECT_GT(planned.peak_bytes, 0U);
    EXPECT_EQ(planned.peak_bytes, measured) << "rank " << rank;
  }
  tessera_plan_options plan;
  EXPECT_DONE(tessera_plan_options_init(&plan, sizeof plan));
  plan.rank = 7;
  tessera_memory_report report = {};
  report.size = sizeof report;
  expect_failed(tessera_plan(&plan, call_body, &body, &report), TESSERA_CONFIG_ERROR,
                "has no rank 7");
}

TEST(CCheckpoints, AreRefusedIfRanksGiveDifferentValues) {
  const test::TemporaryFolder folder;
  const std::string runs = (folder.path() / "runs").string();
  expect_failed(run_ranks(2,
                          [&](tessera_world* world) -> tessera_status {
                            const Line line{world};
                            TESSERA_TRY(line.step());
                            std::int32_t rank = 0;
                            TESSERA_TRY(tessera_world_place(world, &rank, nullptr));
                            const tessera_value seed = {"seed", rank == 0 ? "3" : "4"};
                            tessera_save_options options;
                            TESSERA_TRY(tessera_save_options_init(&options, sizeof options));
                            options.values = &seed;
                            options.value_count = 1;
                            return tessera_save(line.model, runs.c_str(), &options);
                          }),
                TESSERA_CONTRACT_ERROR, "the value 'seed' is '3' on rank 0, but '4' on rank 1");
}

/// Saves a Line after one step together with values, and loads them into another one.
TEST(CCheckpoints, HoldTheStateAndTheTrainersValues) {
  const test::TemporaryFolder folder;
  const std::string runs = (folder.path() / "runs").string();
  const std::string weights = (folder.path() / "weights.safetensors").string();
  EXPECT_DONE(run_ranks(2, [&](tessera_world* world) -> tessera_status {
    const Line line{world};
    TESSERA_TRY(line.step());
    const tessera_value values[] = {{"position", "17"}, {"seed", "3"}};
    tessera_save_options options;
    TESSERA_TRY(tessera_save_options_init(&options, sizeof options));
    options.values = values;
    options.value_count = 2;
    TESSERA_TRY(tessera_save(line.model, runs.c_str(), &options));
    const auto name = [](const tessera_parameter_info* parameter, void* user) -> const char* {
      auto& text = *static_cast<std::string*>(user);
      text = std::string{"model/"} + parameter->name;
      return text.c_str();
    };
    std::string text;
    TESSERA_TRY(tessera_save_weights(line.model, weights.c_str(), name, &text));
    tessera_model* again = nullptr;
    tessera_unit unit = 0;
    const tessera_parameter_spec specs[] = {vector_of("w", 5), vector_of("b", 1)};
    TESSERA_TRY(tessera_model_create(world, nullptr, &again));
    TESSERA_TRY(tessera_add_unit(again, "line", specs, 2, nullptr, &unit));
    expect_failed(tessera_materialize_from(again, weights.c_str(), nullptr, nullptr),
                  TESSERA_FORMAT_ERROR, "no tensor 'line.w'");
    TESSERA_TRY(tessera_materialize_from(again, weights.c_str(), name, &text));
    EXPECT_EQ(weight_of(again, unit), 0.5F);
    return TESSERA_OK;
  }));

  char path[512];
  char short_path[4];
  std::int64_t step = 0;
  expect_failed(tessera_newest_checkpoint(runs.c_str(), short_path, sizeof short_path, nullptr),
                TESSERA_CONTRACT_ERROR, "`path` has room for 4 bytes");
  EXPECT_DONE(tessera_newest_checkpoint(runs.c_str(), path, sizeof path, &step));
  EXPECT_EQ(step, 1);
  EXPECT_DONE(run_ranks(3, [&](tessera_world* world) -> tessera_status {
    const Line line{world, TESSERA_DDP};
    std::map<std::string, std::string> values;
    tessera_load_options options;
    TESSERA_TRY(tessera_load_options_init(&options, sizeof options));
    options.value = [](const char* name, const char* value, void* user) -> tessera_status {
      (*static_cast<std::map<std::string, std::string>*>(user))[name] = value;
      return TESSERA_OK;
    };
    options.value_user = &values;
    TESSERA_TRY(tessera_load(line.model, path, &options));
    EXPECT_EQ(values, (std::map<std::string, std::string>{{"position", "17"}, {"seed", "3"}}));
    std::int64_t steps = 0;
    TESSERA_TRY(tessera_steps(line.model, &steps));
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(weight_of(line.model, line.unit), 0.5F);
    return TESSERA_OK;
  }));
  expect_failed(run_ranks(2,
                          [&](tessera_world* world) -> tessera_status {
                            return tessera_load(Line{world}.model, "/nowhere", nullptr);
                          }),
                TESSERA_FORMAT_ERROR, "/nowhere");
}

// A C program gets no list of them: it would train on with weights that nobody loaded.
TEST(CCheckpoints, WeightsThatOnlyOneSideHasAreAnErrorUnlessAllowed) {
  const test::TemporaryFolder folder;
  EXPECT_DONE(run_ranks(2, [&](tessera_world* world) -> tessera_status {
    const Line line{world};
    TESSERA_TRY(line.step());
    TESSERA_TRY(tessera_save(line.model, folder.path().c_str(), nullptr));
    const std::string path = (folder.path() / "step-00000001").string();
    for (const auto& [other, text] :
         {std::pair{"more",
                    "the files lack the model's 'line.more'; the model lacks the files' 'line.b'"},
          std::pair{"b", ""}}) {
      tessera_model* model = nullptr;
      tessera_unit unit = 0;
      const tessera_parameter_spec specs[] = {vector_of("w", 5), vector_of(other, 1)};
      TESSERA_TRY(tessera_model_create(world, nullptr, &model));
      TESSERA_TRY(tessera_add_unit(model, "line", specs, 2, nullptr, &unit));
      TESSERA_TRY(tessera_materialize_constant(model, 1.0F));
      tessera_load_options options;
      TESSERA_TRY(tessera_load_options_init(&options, sizeof options));
      options.weights_only = 1;
      const tessera_status status = tessera_load(model, path.c_str(), &options);
      if (*text == '\0') {
        EXPECT_DONE(status);
      } else {
        expect_failed(status, TESSERA_FORMAT_ERROR, text);
        EXPECT_EQ(weight_of(model, unit), 1.0F) << "a refused load changes nothing";
      }
      options.allow_partial = 1;
      EXPECT_DONE(tessera_load(model, path.c_str(), &options));
      EXPECT_EQ(weight_of(model, unit), 0.5F);
      options.weights_only = 0;
      expect_failed(tessera_load(model, path.c_str(), &options), TESSERA_CONTRACT_ERROR,
                    "`allow_partial` has no effect without `weights_only`");
    }
    return TESSERA_OK;
  }));
}

TEST(CSteps, LeaveAFrozenParameterAsItIs) {
  EXPECT_DONE(run_ranks(2, [](tessera_world* world) -> tessera_status {
    const Line line{world};
    const auto step = [&](bool with_w) -> tessera_status {
      tessera_scope* scope = nullptr;
      TESSERA_TRY(tessera_forward(line.model, line.unit, &scope));
      TESSERA_TRY(tessera_close(scope));
      TESSERA_TRY(tessera_backward(line.model, line.unit, &scope));
      std::int32_t has = -1;
      TESSERA_TRY(tessera_has_gradient(scope, "w", &has));
      EXPECT_EQ(has, with_w ? 1 : 0);
      void* gradient = nullptr;
      TESSERA_TRY(tessera_gradient(scope, "b", TESSERA_FP32, &gradient));
      *static_cast<float*>(gradient) += 1.0F;
      if (with_w) {
        TESSERA_TRY(tessera_gradient(scope, "w", TESSERA_FP32, &gradient));
        for (int i = 0; i < 5; ++i) { static_cast<float*>(gradient)[i] += 1.0F; }
      }
      TESSERA_TRY(tessera_close(scope));
      return tessera_step(line.model, nullptr);
    };
    TESSERA_TRY(step(true));
    TESSERA_TRY(tessera_freeze(line.model, line.unit, "w"));
    TESSERA_TRY(step(false));
    EXPECT_EQ(weight_of(line.model, line.unit), 0.5F);
    TESSERA_TRY(tessera_unfreeze(line.model, line.unit, "w"));
    TESSERA_TRY(step(true));
    EXPECT_EQ(weight_of(line.model, line.unit), 0.0F);
    expect_failed(tessera_freeze(line.model, line.unit, "nothing"), TESSERA_CONTRACT_ERROR,
                  "has no parameter 'nothing'");
    return TESSERA_OK;
  }));
}

TEST(CReports, DescribeStepsAndScales) {
  EXPECT_DONE(run_ranks(2, [](tessera_world* world) -> tessera_status {
    const Line line{world};
    tessera_step_report report = {};
    report.size = sizeof report;
    expect_failed(tessera_report(line.model, &report), TESSERA_CONTRACT_ERROR,
                  "no step has been made");
    const float* scale = nullptr;
    TESSERA_TRY(tessera_loss_scale(line.model, &scale));
    EXPECT_EQ(*scale, 1.0F);
    TESSERA_TRY(line.step());
    TESSERA_TRY(tessera_set_learning_rate(line.model, 0.25F));
    TESSERA_TRY(line.step());
    TESSERA_TRY(tessera_report(line.model, &report));
    EXPECT_EQ(report.size, sizeof report);
    EXPECT_EQ(report.step, 2);
    EXPECT_EQ(report.lr, 0.25F);
    // bound: gradients are small integers; their norm is a sum in fp64
    EXPECT_NEAR(report.grad_norm, std::sqrt(6.0), 1e-9);
    EXPECT_EQ(report.skipped, 0);
    TESSERA_TRY(tessera_previous_report(line.model, &report));
    EXPECT_EQ(report.step, 1);
    EXPECT_EQ(report.lr, 0.5F);
    EXPECT_EQ(weight_of(line.model, line.unit), 0.25F);
    return TESSERA_OK;
  }));
}

}  // namespace
}  // namespace tessera::c_test
