// DLPack views: their contents, how long they keep a scope open, and that they outlive the model.
#include "tessera/dlpack.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "c/c_support.hpp"
#include "tessera/engine/dlpack.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::c_test {
namespace {

TEST(DLPack, ShowsATensorInPlace) {
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
    tessera::run_ranks(2, [&](World& world) {
      ShardedModel model{world, {.strategy = Strategy::zero3, .compute = compute}};
      const Unit unit = model.add_unit("u", {{"w", {3, 4, 5}}, {"scalar", {}}});
      model.materialize(init::constant(1.5F));
      const ForwardScope scope = model.forward(unit);
      const auto keep = std::make_shared<int>();
      DLManagedTensor* const view = to_dlpack(scope["w"], world.device(), keep);
      DLManagedTensor* const scalar = to_dlpack(scope["scalar"], world.device());
      const DLTensor& t = view->dl_tensor;
      EXPECT_EQ(t.data, scope["w"].data());
      EXPECT_EQ(t.byte_offset, 0U);
      EXPECT_EQ(t.device.device_type, kDLCPU);
      EXPECT_EQ(t.dtype.code, compute == DType::bf16 ? kDLBfloat : kDLFloat);
      EXPECT_EQ(t.dtype.bits, compute == DType::fp32 ? 32 : 16);
      EXPECT_EQ(t.dtype.lanes, 1);
      EXPECT_EQ(std::vector<std::int64_t>(t.shape, t.shape + t.ndim),
                (std::vector<std::int64_t>{3, 4, 5}));
      EXPECT_EQ(std::vector<std::int64_t>(t.strides, t.strides + t.ndim),
                (std::vector<std::int64_t>{20, 5, 1}));
      EXPECT_EQ(scalar->dl_tensor.ndim, 0);
      EXPECT_EQ(keep.use_count(), 2);
      view->deleter(view);
      scalar->deleter(scalar);
      EXPECT_EQ(keep.use_count(), 1);
    });
  }
}

TEST(DLPack, HoldsItsScopeOpen) {
  EXPECT_DONE(run_ranks(1, [](tessera_world* world) -> tessera_status {
    const Line line{world};
    tessera_scope* scope = nullptr;
    TESSERA_TRY(tessera_forward(line.model, line.unit, &scope));
    DLManagedTensor* w = nullptr;
    DLManagedTensor* b = nullptr;
    expect_failed(tessera_gradient_dlpack(scope, "w", &w), TESSERA_CONTRACT_ERROR,
                  "a forward scope has no gradients");
    TESSERA_TRY(tessera_close(scope));
    TESSERA_TRY(tessera_backward(line.model, line.unit, &scope));
    TESSERA_TRY(tessera_gradient_dlpack(scope, "w", &w));
    TESSERA_TRY(tessera_parameter_dlpack(scope, "b", &b));
    for (int i = 0; i < 5; ++i) { static_cast<float*>(w->dl_tensor.data)[i] += 1.0F; }
    expect_failed(tessera_close(scope), TESSERA_CONTRACT_ERROR,
                  "DLPack views of 'b', 'w' are still held");
    w->deleter(w);
    expect_failed(tessera_close(scope), TESSERA_CONTRACT_ERROR,
                  "DLPack views of 'b' are still held");
    std::thread{[&] { b->deleter(b); }}.join();
    TESSERA_TRY(tessera_close(scope));
    TESSERA_TRY(tessera_step(line.model, nullptr));
    EXPECT_EQ(weight_of(line.model, line.unit), 0.5F);
    return TESSERA_OK;
  }));
}

// A rank that fails cannot wait until its views are released, so it keeps their memory allocated.
TEST(DLPack, KeepsTheMemoryOfARankThatFailed) {
  std::vector<DLManagedTensor*> views(2);
  expect_failed(run_ranks(2,
                          [&](tessera_world* world) -> tessera_status {
                            const Line line{world};
                            std::int32_t rank = 0;
                            tessera_scope* scope = nullptr;
                            TESSERA_TRY(tessera_world_place(world, &rank, nullptr));
                            TESSERA_TRY(tessera_forward(line.model, line.unit, &scope));
                            TESSERA_TRY(tessera_parameter_dlpack(
                                scope, "w", &views[static_cast<std::size_t>(rank)]));
                            TESSERA_TRY(tessera_barrier(world));
                            return tessera_fail(TESSERA_ERROR, "gave up");
                          }),
                TESSERA_ERROR, "gave up");
  for (DLManagedTensor* const view : views) {
    float sum = 0.0F;
    for (int i = 0; i < 5; ++i) { sum += static_cast<const float*>(view->dl_tensor.data)[i]; }
    EXPECT_TRUE(sum == sum || sum != sum) << "readable, whatever it says";
    view->deleter(view);
  }
}

}  // namespace
}  // namespace tessera::c_test
