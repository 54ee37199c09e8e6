// The trace of a communicator that is destroyed before its work ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/gate.hpp"
#include "kernels/backend.hpp"
#include "support/rank_job.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::traced_split_test {
namespace {

trace::Record only_record(World& world, const std::string& batch) {
  std::vector<trace::Record> records = world.recorder()->records();
  std::erase_if(records, [&](const trace::Record& record) {
    return record.kind != trace::Kind::collective || record.unit != batch;
  });
  EXPECT_EQ(records.size(), 1U) << batch;
  return records.empty() ? trace::Record{} : records.front();
}

TEST(CudaTracedSplit, RecordsOfADestroyedGroupRemainItsOwn) {
  if (const std::string reason = no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  WorldOptions options;
  options.device = DeviceKind::cuda;
  options.trace = true;
  const auto body = [](World& world) {
    const Channel whole = world.reduce_channel();
    Buffer data = world.allocate(Category::gather, 4 * sizeof(float), "data");
    const QuiesceAtExit quiesce{world};
    const View view{data.data(), 4, DType::fp32};
    world.device().fill(data.data(), 0, data.bytes(), whole.stream);
    const GroupOf together = [](int) { return 0; };
    const GroupOf alone = [](int rank) { return rank; };
    const auto stays = whole.communicator.split(together, "all");
    stays->submit(Batch{"stays"}.all_reduce(view), whole.stream);
    std::int64_t opened_ns = 0;
    {
      Gate gate{whole.stream};
      whole.communicator.split(together, "all")
          ->submit(Batch{"goes"}.all_reduce(view), whole.stream);
      // This communicator most likely reuses the address of the destroyed one.
      const auto other = whole.communicator.split(alone, "alone");
      opened_ns = trace::now_ns();
      gate.open();
      whole.stream.wait();
    }
    const trace::Record goes = only_record(world, "goes");
    EXPECT_GT(goes.bytes, 0U);
    EXPECT_EQ(goes.bytes, only_record(world, "stays").bytes);
    EXPECT_GE(goes.begin_ns, opened_ns);
    EXPECT_LE(goes.begin_ns, goes.end_ns);
  };
  run_ranks(2, body, options);
}

}  // namespace
}  // namespace tessera::test::traced_split_test
