#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include "misuse/mistaken_trainer.hpp"
#include "support/guide_table.hpp"
#include "tessera/tessera.hpp"

// Mistakes in a wrapped trainer and the text of each error: the table of docs/trainer-mistakes.md,
// word for word.
namespace tessera::test::guide_test {
namespace {

using Trainer = MistakenTrainer;

// Declares units a and b, nothing else.
template <class Use>
auto declared(Use use) {
  return on(2, [use](World& world) {
    ShardedModel model{world, kPlain};
    const Unit a = model.add_unit("a", {{"w", {3, 5}}, {"frozen", {5}, /*trainable=*/false}});
    use(model, a);
  });
}

std::vector<GuideRow> rows() {
  return {
      {"a scope before `materialize`",
       declared([](ShardedModel& model, Unit a) { (void)model.forward(a); })},
      {"a unit added after `materialize`",
       trainer(kPlain, [](Trainer& t) { (void)t.model->add_unit("c", {{"w", {1}}}); })},
      {"different shapes on different ranks", on(2,
                                                 [](World& world) {
                                                   ShardedModel model{world, kPlain};
                                                   (void)model.add_unit(
                                                       "a", {{"w", {3 + world.rank()}}});
                                                   model.materialize(init::constant(0.5F));
                                                 })},
      {"an unknown parameter name",
       trainer(kPlain, [](Trainer& t) { (void)t.model->forward(t.a)["weight"]; })},
      {"the gradient of a frozen parameter", declared([](ShardedModel& model, Unit a) {
         model.materialize(init::constant(0.5F));
         model.optimize_with(SGD{});
         (void)model.forward(a);
         (void)model.backward(a).grad("frozen");
       })},
      {"a bf16 parameter taken as `float*`",
       trainer({.strategy = Strategy::zero3, .compute = DType::bf16},
               [](Trainer& t) {
                 const auto p = t.model->forward(t.a);
                 (void)static_cast<const float*>(p["w"]);
               })},
      {"a tensor used after its scope", trainer(kPlain,
                                                [](Trainer& t) {
                                                  std::optional<ConstTensor> kept;
                                                  kept = t.model->forward(t.a)["w"];
                                                  (void)kept->data();
                                                })},
      {"a unit opened twice", trainer(kPlain,
                                      [](Trainer& t) {
                                        const auto p = t.model->forward(t.a);
                                        (void)t.model->forward(t.a);
                                      })},
      {"an exception that left a scope and was swallowed",
       trainer(kPlain,
               [](Trainer& t) {
                 try {
                   const auto scope = t.model->forward(t.a);
                   throw std::runtime_error{"a kernel that fails"};
                 } catch (const std::runtime_error&) {  // swallowed
                 }
                 (void)t.model->forward(t.b);
               })},
      {"a step within a scope", trainer(kPlain,
                                        [](Trainer& t) {
                                          const auto scope = t.model->forward(t.a);
                                          t.model->step();
                                        })},
      {"a step without a pass", trainer(kPlain, [](Trainer& t) { t.model->step(); })},
      {"more micro-batches than `accumulate`", trainer(kPlain,
                                                       [](Trainer& t) {
                                                         t.pass();
                                                         t.pass();
                                                         t.model->step();
                                                       })},
      {"a unit that never goes backward (`Checks::strict`)", trainer(kStrict,
                                                                     [](Trainer& t) {
                                                                       t.forward();
                                                                       (void)t.model->backward(t.b);
                                                                       t.model->step();
                                                                     })},
      {"a gradient written after its scope (`Checks::memory`)", trainer(kMemory,
                                                                        [](Trainer& t) {
                                                                          t.forward();
                                                                          float* const late =
                                                                              t.add(t.b, 0, 1.0F);
                                                                          late[3] += 0.25F;
                                                                          (void)t.add(t.a, 0, 1.0F);
                                                                          t.model->step();
                                                                        })},
      {"a gradient written past its end (`Checks::memory`)", trainer(kMemory,
                                                                     [](Trainer& t) {
                                                                       t.forward();
                                                                       (void)t.add(t.b, 0, 1.0F);
                                                                       (void)t.add(t.a, 15, 1.0F);
                                                                       t.model->step();
                                                                     })},
      {"the first NaN (`Checks::memory`)",
       trainer(kMemory,
               [](Trainer& t) {
                 t.forward();
                 (void)t.add(t.b, 4, std::numeric_limits<float>::quiet_NaN());
                 (void)t.add(t.a, 0, 1.0F);
               })},
      {"another order of units on one rank", trainer(kPlain,
                                                     [](Trainer& t) {
                                                       t.pass();
                                                       t.model->step();
                                                       const bool first =
                                                           t.model->world().rank() == 0;
                                                       (void)t.model->forward(first ? t.a : t.b);
                                                     })},
      {"different learning rates on the ranks",
       trainer(kPlain,
               [](Trainer& t) {
                 t.pass();
                 t.model->set_learning_rate(t.model->world().rank() == 0 ? 0.125F : 0.25F);
                 t.model->step();
               })},
      {"a rank that runs out of data and returns", trainer(kPlain,
                                                           [](Trainer& t) {
                                                             if (t.model->world().rank() == 1) {
                                                               return;
                                                             }
                                                             t.pass();
                                                             t.model->step();
                                                           })},
      {"the trainer's own exception on one rank", on(2,
                                                     [](World& world) {
                                                       if (world.rank() == 1) {
                                                         throw std::runtime_error{
                                                             "the disk is full"};
                                                       }
                                                       world.barrier();
                                                     })},
      {"more memory than the budget",
       on(1, [](World& world) { const Trainer trainer{world}; }, {.budget_bytes = 256})},
      {"a scope that outlives its model", trainer(kPlain,
                                                  [](Trainer& t) {
                                                    const auto scope = t.model->forward(t.a);
                                                    t.model.reset();
                                                  })},
      {"a model used after `run_ranks` returned",
       [] {
         std::optional<Trainer> kept;
         run_ranks(1, [&](World& world) { kept.emplace(world); });
         kept->forward();
       }},
  };
}

TEST(Guide, ShowsWhatTheLibrarySaysToEachMistake) {
  expect_table("docs/trainer-mistakes.md", rows());
}

}  // namespace
}  // namespace tessera::test::guide_test
