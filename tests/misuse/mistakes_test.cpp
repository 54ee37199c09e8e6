#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "misuse/mistaken_trainer.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/engine/activation_store.hpp"
#include "tessera/tessera.hpp"

// Each mistake ends in the documented error (docs/error-kinds.md) of the documented kind, with a
// text that names the mistake: no crash, no hang, no silent result. CI also runs this under the
// sanitizers.
namespace tessera::test::mistakes_test {
namespace {

using ::testing::HasSubstr;

using Trainer = MistakenTrainer;

enum class Kind { contract, config, memory, comm, format, numeric, other };

struct Mistake {
  const char* name;
  Kind kind;
  std::vector<std::string> texts;  // what() contains all of them
  std::function<void()> make;

  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }
};

// Use of an object after its World: made within a run, kept beyond it.
template <class T, class Use>
void after_the_world(const std::function<T(World&)>& make, const Use& use) {
  T kept{};
  run_ranks(1, [&](World& world) { kept = make(world); });
  use(kept);
}

std::vector<Mistake> lifetimes() {
  using Model = std::unique_ptr<Trainer>;
  using Store = std::unique_ptr<ActivationStore>;
  const std::function<Model(World&)> make_model = [](World& world) {
    return std::make_unique<Trainer>(world, kPlain);
  };
  const std::function<Store(World&)> make_store = [](World& world) {
    return std::make_unique<ActivationStore>(world,
                                             ActivationStoreOptions{.count = 2, .bytes = 64});
  };
  return {
      {"ModelBeforeAForwardScope",
       Kind::contract,
       {"destroyed while a scope of unit 'a'", "end every scope before its model"},
       trainer(kPlain,
               [](Trainer& t) {
                 const auto scope = t.model->forward(t.a);
                 t.model.reset();
               })},
      {"ModelBeforeABackwardScope",
       Kind::contract,
       {"destroyed while a scope of unit 'b'"},
       trainer(kPlain,
               [](Trainer& t) {
                 t.forward();
                 const auto scope = t.model->backward(t.b);
                 t.model.reset();
                 scope.grad("w")[0] += 1.0F;
               })},
      {"ModelBeforeItsEvaluation",
       Kind::contract,
       {"destroyed during an evaluation"},
       trainer(kPlain,
               [](Trainer& t) {
                 const auto evaluation = t.model->evaluate();
                 t.model.reset();
               })},
      {"TensorAfterTheModel",
       Kind::contract,
       {"tensor of unit 'a' is used after its scope ended"},
       trainer(kPlain,
               [](Trainer& t) {
                 std::optional<ConstTensor> kept;
                 kept = t.model->forward(t.a)["w"];
                 t.model.reset();
                 EXPECT_EQ(kept->shape().size(), 2U);
                 (void)kept->data();
               })},
      {"ModelAfterItsWorld",
       Kind::contract,
       {"a model is used after its World has ended", "within the rank's body"},
       [=] { after_the_world(make_model, [](Model& kept) { kept->pass(); }); }},
      {"StepAfterTheWorld",
       Kind::contract,
       {"a model is used after its World has ended"},
       [=] { after_the_world(make_model, [](Model& kept) { kept->model->step(); }); }},
      {"ScopeAfterItsWorld",
       Kind::contract,
       {"a scope is used after its World has ended"},
       [=] {
         Model kept;
         struct Held {
           ForwardScope scope;
         };
         std::unique_ptr<Held> held;
         run_ranks(1, [&](World& world) {
           kept = make_model(world);
           held.reset(new Held{kept->model->forward(kept->a)});
         });
         (void)held->scope.stream();
       }},
      {"ActivationStoreAfterItsWorld",
       Kind::contract,
       {"an ActivationStore is used after its World has ended"},
       [=] { after_the_world(make_store, [](Store& kept) { (void)kept->open(0); }); }},
  };
}

std::vector<Mistake> units() {
  return {
      {"ADefaultUnit",
       Kind::contract,
       {"forward: a default Unit{} is no unit", "it has 'a', 'b'"},
       trainer(kPlain, [](Trainer& t) { (void)t.model->forward(Unit{}); })},
      {"AnotherModelsUnit",
       Kind::contract,
       {"forward: the unit is of another model"},
       on(1,
          [](World& world) {
            const Trainer one{world};
            Trainer two{world};
            (void)two.model->forward(one.a);
          })},
      {"AnotherModelsUnitInTheOrder",
       Kind::contract,
       {"declare_order: the unit is of another model", "it has none"},
       on(1,
          [](World& world) {
            const Trainer one{world};
            ShardedModel two{world};
            two.declare_order({one.a});
          })},
      {"AnotherModelsUnitLookedAt",
       Kind::contract,
       {"layout: the unit is of another model"},
       on(1,
          [](World& world) {
            const Trainer one{world};
            const Trainer two{world};
            (void)two.model->layout(one.b);
          })},
      {"APlaceWithoutUnit",
       Kind::contract,
       {"the model has 2 units, and none at index 2"},
       trainer(kPlain, [](Trainer& t) { (void)t.model->unit(2); })},
      {"RatesThatDifferByRank",
       Kind::comm,
       {"rank 1 issued batch \"step at learning rate 0.25\"",
        "rank 0 issued batch \"step at learning rate 0.125\""},
       trainer(kPlain,
               [](Trainer& t) {
                 t.pass();
                 t.model->step();
                 t.pass();
                 t.model->set_learning_rate(t.model->world().rank() == 0 ? 0.125F : 0.25F);
                 t.model->step();
                 (void)t.model->report();
               })},
      {"ARateThatOneRankSets",
       Kind::comm,
       {"rank 1 issued batch \"step at learning rate 0.25\"", "rank 0 issued batch \"step\""},
       trainer(kPlain,
               [](Trainer& t) {
                 t.pass();
                 t.model->step();
                 t.pass();
                 if (t.model->world().rank() == 1) { t.model->set_learning_rate(0.25F); }
                 t.model->step();
                 (void)t.model->report();
               })},
      {"AForgottenBackward",
       Kind::contract,
       {"step 1, micro-batch 1 of 1: unit 'a' had 1 forward scopes and 0 backward scopes"},
       trainer(kStrict,
               [](Trainer& t) {
                 t.forward();
                 (void)t.model->backward(t.b);
                 t.model->step();
               })},
      {"AForgottenBackwardOfTheFirstMicroBatch",
       Kind::contract,
       {"step 1, micro-batch 1 of 2: unit 'b'"},
       trainer({.strategy = Strategy::zero2, .accumulate = 2, .checks = Checks::strict},
               [](Trainer& t) {
                 t.forward();
                 (void)t.model->backward(t.a);
                 t.pass();
                 t.model->step();
               })},
  };
}

std::vector<Mistake> others() {
  const WorldOptions soon{.deadline = std::chrono::milliseconds{200}};
  return {
      {"ATensorAfterItsScope",
       Kind::contract,
       {"a gather tensor of unit 'a' is used after its scope ended"},
       trainer(kPlain,
               [](Trainer& t) {
                 std::optional<ConstTensor> kept;
                 kept = t.model->forward(t.a)["w"];
                 (void)kept->data();
               })},
      {"AStepInAScope",
       Kind::contract,
       {"step: a scope is still open and holds the memory of unit 'a'"},
       trainer(kPlain,
               [](Trainer& t) {
                 const auto scope = t.model->forward(t.a);
                 t.model->step();
               })},
      {"AScopeLeftByAnException",
       Kind::contract,
       {"the forward scope of unit 'a' was left by an exception"},
       trainer(kPlain,
               [](Trainer& t) {
                 try {
                   const auto scope = t.model->forward(t.a);
                   throw std::runtime_error{"a kernel that fails"};
                 } catch (const std::runtime_error&) {  // swallowed
                 }
                 (void)t.model->forward(t.b);
               })},
      {"AnOptionThatCannotBe",
       Kind::config,
       {"`accumulate` is 0"},
       trainer({.accumulate = 0}, [](Trainer&) {})},
      {"ChecksWithoutGradients",
       Kind::config,
       {"`checks` has no effect on a model for inference"},
       trainer({.checks = Checks::strict, .purpose = Purpose::inference}, [](Trainer&) {})},
      {"MoreThanTheBudget",
       Kind::memory,
       {"no room for", "the budget is 256 B"},
       on(1, [](World& world) { const Trainer trainer{world}; }, {.budget_bytes = 256})},
      {"AShapeWithoutThatExtent",
       Kind::contract,
       {"shape [3, 5] has 2 extents, and none at index 2"},
       [] { (void)Shape{3, 5}[2]; }},
      {"ARankThatNeverComes",
       Kind::comm,
       {"all_reduce", "alone"},
       on(
           2,
           [](World& world) {
             float value = 0;
             if (world.rank() == 1) { return; }
             const Channel channel = world.reduce_channel();
             channel.communicator.submit(Batch{"alone"}.all_reduce(View{&value, 1, DType::fp32}),
                                         channel.stream);
             channel.stream.wait();
           },
           soon)},
      {"RanksThatDoOtherThings",
       Kind::comm,
       {"rank 1 issued batch \"b\" where rank 0 issued batch \"a\""},
       on(
           2,
           [](World& world) {
             float value = 0;
             const Channel channel = world.reduce_channel();
             channel.communicator.submit(
                 Batch{world.rank() == 0 ? "a" : "b"}.all_reduce(View{&value, 1, DType::fp32}),
                 channel.stream);
             channel.stream.wait();
           },
           soon)},
      {"ASlotReleasedTwice",
       Kind::contract,
       {"a workspace slot was released twice; its last owner is a"},
       on(1,
          [](World& world) {
            Arena arena{world.allocate(Category::workspace, 128, "slots", BufferUse::parts)};
            SlotRing ring{{world.device(), world.memory(), Category::workspace}, arena, 1, 64};
            Slot& slot = ring.acquire("a", 64, world.compute_stream());
            ring.release(slot, world.compute_stream());
            ring.release(slot, world.compute_stream());
          })},
      {"AnExceptionOfTheTrainers",
       Kind::other,
       {"rank 1: the disk is full"},
       on(2,
          [](World& world) {
            if (world.rank() == 1) { throw std::runtime_error{"the disk is full"}; }
            world.barrier();
          })},
      {"AFileThatIsNone",
       Kind::format,
       {"none.safetensors"},
       [] {
         const TemporaryFolder folder;
         std::ofstream{folder / "none.safetensors"} << "no header";
         const SafetensorsReader reader{folder / "none.safetensors"};
       }},
      {"GradientsThatAreNotFinite",
       Kind::numeric,
       {"step 1: the gradient is not finite", "unit 'a'"},
       trainer({.strategy = Strategy::zero3, .max_skips = 1},
               [](Trainer& t) {
                 t.forward();
                 (void)t.model->backward(t.b);
                 t.add(t.a, 0, std::numeric_limits<float>::infinity());
                 t.model->step();
               })},
  };
}

std::string strategy_name(Strategy strategy) {
  return std::string{to_string(strategy)};
}

void expect(const Mistake& mistake) {
  const auto is_told = [&](Kind kind, const std::exception& error) {
    EXPECT_EQ(kind, mistake.kind) << error.what();
    for (const std::string& text : mistake.texts) { EXPECT_THAT(error.what(), HasSubstr(text)); }
  };
  try {
    mistake.make();
    ADD_FAILURE() << "nobody noticed";
  } catch (const ContractError& error) {
    is_told(Kind::contract, error);
  } catch (const ConfigError& error) {
    is_told(Kind::config, error);
  } catch (const OutOfMemory& error) {
    is_told(Kind::memory, error);
  } catch (const CommError& error) {
    is_told(Kind::comm, error);
  } catch (const FormatError& error) {
    is_told(Kind::format, error);
  } catch (const NumericError& error) {
    is_told(Kind::numeric, error);
  } catch (const Error& error) { is_told(Kind::other, error); }
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, EndInTheDocumentedError) {
  expect(GetParam());
}

const auto kNames = [](const auto& test) { return std::string{test.param.name}; };
INSTANTIATE_TEST_SUITE_P(Lifetimes, Mistakes, ::testing::ValuesIn(lifetimes()), kNames);
INSTANTIATE_TEST_SUITE_P(Units, Mistakes, ::testing::ValuesIn(units()), kNames);
INSTANTIATE_TEST_SUITE_P(Others, Mistakes, ::testing::ValuesIn(others()), kNames);

/// Every strategy, with gradients in slots and without.
class MemoryMistakes : public ::testing::TestWithParam<std::tuple<Strategy, int>> {
 protected:
  static ModelOptions options() {
    const auto [strategy, accumulate] = GetParam();
    return {.strategy = strategy,
            .shard_group = strategy == Strategy::hybrid ? 2 : 0,
            .accumulate = accumulate,
            .checks = Checks::memory};
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, MemoryMistakes,
                         ::testing::Combine(::testing::ValuesIn(all_strategies()),
                                            ::testing::Values(1, 2)),
                         [](const auto& test) {
                           return strategy_name(std::get<0>(test.param)) + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(MemoryMistakes, ALateAdditionToAGradientIsNamed) {
  expect({"",
          Kind::contract,
          {"backward scope of unit 'b': the gradient of 'w' was written after the scope ended"},
          trainer(options(), [](Trainer& t) {
            t.forward();
            float* const late = t.add(t.b, 0, 1.0F);
            late[3] += 0.25F;
            (void)t.add(t.a, 0, 1.0F);
            if (t.model->options().accumulate > 1) { t.pass(); }
            t.model->step();
          })});
}

TEST_P(MemoryMistakes, ALateAdditionBehindTheLastScopeIsNamedByTheStep) {
  expect({"",
          Kind::contract,
          {"backward scope of unit 'a': the gradient of 'w' was written after the scope ended"},
          trainer(options(), [](Trainer& t) {
            if (t.model->options().accumulate > 1) { t.pass(); }
            t.forward();
            (void)t.add(t.b, 0, 1.0F);
            float* const late = t.add(t.a, 0, 1.0F);
            late[14] = 2.0F;
            t.model->step();
          })});
}

TEST_P(MemoryMistakes, AWriteBeyondAGradientsEndIsNamed) {
  expect({"",
          Kind::contract,
          {"backward scope of unit 'a': a kernel wrote element 15 of the gradient of 'w', whose "
           "size is 15"},
          trainer(options(), [](Trainer& t) {
            t.forward();
            (void)t.add(t.b, 0, 1.0F);
            (void)t.add(t.a, 15, 1.0F);
            if (t.model->options().accumulate > 1) { t.pass(); }
            t.model->step();
          })});
}

// Kernels may write zeros to the room after a parameter, and nothing else.
TEST(Rooms, HoldZerosAndAreGuardedAtTheirEnd) {
  struct Write {
    int at;
    float value;
    bool is_told;
  };
  for (const Write& write :
       {Write{15, 0.0F, false}, Write{15, 2.0F, true}, Write{70, 0.5F, true}}) {
    std::string error;
    try {
      run_ranks(2, [&](World& world) {
        ShardedModel model{world, kMemory};
        const Unit a = model.add_unit("a", {{.name = "w", .shape = {3, 5}, .room = 70}});
        model.materialize(init::constant(0.5F));
        model.optimize_with(SGD{});
        (void)model.forward(a);
        {
          const auto g = model.backward(a);
          float* const gradient = g.grad("w");
          gradient[write.at] = write.value;
        }
        model.step();
      });
    } catch (const ContractError& refused) { error = refused.what(); }
    EXPECT_EQ(!error.empty(), write.is_told) << write.at;
    if (!write.is_told) { continue; }
    EXPECT_THAT(error,
                HasSubstr("element " + std::to_string(write.at) + " of the gradient of 'w'"));
  }
}

TEST_P(MemoryMistakes, TheFirstNaNIsNamed) {
  expect({"",
          Kind::numeric,
          {"backward scope of unit 'b': the gradient of 'w' is NaN at element 4"},
          trainer(options(), [](Trainer& t) {
            t.forward();
            (void)t.add(t.b, 4, std::numeric_limits<float>::quiet_NaN());
            (void)t.add(t.a, 0, 1.0F);
          })});
}

TEST_P(MemoryMistakes, ACorrectTrainerIsUnaffectedAndHoldsTheSameMemory) {
  std::array<std::size_t, 2> peaks{};
  for (const bool checked : {false, true}) {
    ModelOptions with = options();
    if (!checked) { with.checks = Checks::off; }
    run_ranks(2, [&](World& world) {
      Trainer trainer{world, with};
      for (int step = 0; step < 3; ++step) {
        for (int micro = 0; micro < with.accumulate; ++micro) { trainer.pass(); }
        trainer.model->step();
      }
      EXPECT_GT(trainer.model->report().grad_norm, 0.0);
      if (world.rank() == 0) { peaks[checked ? 1 : 0] = world.memory().report().peak_bytes; }
    });
  }
  EXPECT_EQ(peaks[0], peaks[1]);
}

// Covers tied tables, units opened twice, micro-batches, narrow dtypes and an offloaded optimizer.
TEST(CheckedTraining, HasTheSameBits) {
  std::vector<ToyRun> runs;
  for (const Strategy strategy : all_strategies()) {
    for (const bool tied : {false, true}) {
      ToyRun run{.options = {.strategy = strategy}, .ranks = 2, .steps = 4};
      run.toy.tied_head = tied;
      run.options.shard_group = strategy == Strategy::hybrid ? 2 : 0;
      run.options.accumulate = tied ? 2 : 1;
      runs.push_back(run);
      run.options.accumulate_mode = AccumulateMode::every;
      if (tied) { runs.push_back(run); }
    }
  }
  runs.push_back(
      {.options = {.strategy = Strategy::zero3, .compute = DType::bf16, .gradient = DType::bf16},
       .ranks = 3});
  runs.push_back({.options = {.strategy = Strategy::zero2, .reduce = DType::bf16}, .ranks = 2});
  runs.push_back(
      {.options = {.strategy = Strategy::zero2, .offload = Offload::optimizer}, .ranks = 2});
  runs.push_back(
      {.options = {.strategy = Strategy::ddp, .offload = Offload::optimizer}, .ranks = 2});
  runs.push_back({.options = {.strategy = Strategy::zero2, .offload = Offload::state}, .ranks = 2});
  runs.push_back(  // a unit waits in its bucket until the next one fills it
      {.options = {.strategy = Strategy::ddp, .tuning = {.first_bucket_bytes = 600}}, .ranks = 2});
  for (ToyRun& run : runs) {
    SCOPED_TRACE(strategy_name(run.options.strategy));
    const ToyOutcome plain = run_toy(run);
    run.options.checks = Checks::memory;
    EXPECT_EQ(difference(plain, run_toy(run)), "");
  }
}

// A released slot holds NaNs whose bits survive a CPU's arithmetic.
TEST(LateReaders, AreNamedWhereTheirNaNAppears) {
  for (const bool watches : {false, true}) {
    expect({"",
            Kind::contract,
            {watches ? "forward scope of unit 'b': the watched output"
                     : "backward scope of unit 'b': the gradient of 'w'",
             "is NaN at element 0, with the bit pattern of released memory"},
            trainer(kMemory, [&](Trainer& t) {
              const float* late = nullptr;
              { late = t.model->forward(t.a)["w"]; }
              std::vector<float> y(1);
              {
                const auto p = t.model->forward(t.b);
                y[0] = 2.0F * late[0] + 1.0F;
                if (watches) { p.watch(ConstView{y.data(), 1, DType::fp32}); }
              }
              (void)t.add(t.b, 0, y[0]);
              (void)t.add(t.a, 0, 1.0F);
            })});
  }
}

// Not mistakes: everything that they need still exists.
TEST(Survivors, ABufferOutlivesItsWorld) {
  std::optional<Buffer> kept;
  std::optional<Buffer> host;
  std::optional<CountedMemory> counted;
  const WorldOptions traced{.trace = true, .threads = 2};
  const auto body = [&](World& world) {
    kept.emplace(world.allocate(Category::activations, 256, "kept"));
    host.emplace(world.allocate_host(Category::activations, 256, "kept on the host"));
    counted.emplace(world.memory().register_memory(Category::workspace, 64, "registered"));
    kept->floats()[0] = 3.0F;
  };
  run_ranks(1, body, traced);
  EXPECT_EQ(kept->floats()[0], 3.0F);
  Buffer moved = std::move(*kept);
  EXPECT_EQ(moved.name(), "kept");
  kept.reset();
  host.reset();
  counted.reset();
}

TEST(Survivors, AModelThatOutlivesItsWorldCanBeDestroyed) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    std::vector<std::unique_ptr<Trainer>> kept(2);
    run_ranks(2, [&](World& world) {
      auto& mine = kept[static_cast<std::size_t>(world.rank())];
      mine = std::make_unique<Trainer>(world, ModelOptions{.strategy = strategy});
      mine->pass();
      mine->model->step();
    });
    EXPECT_EQ(kept[0]->model->steps(), 1);
    EXPECT_EQ(kept[0]->model->unit_name(kept[0]->a), "a");
  }
}

}  // namespace
}  // namespace tessera::test::mistakes_test
