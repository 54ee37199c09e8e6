// The host's update overlaps the next forward, on CPUs and on CUDA (tests/cuda). The tests hold the
// update until the forward reaches a unit; they measure no times.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <optional>

#include "budget/offload_stack.hpp"
#include "cuda/emulation.hpp"
#include "support/rank_job.hpp"
#include "tessera/world/run.hpp"
#include "world/host_pool.hpp"

namespace tessera::test::offload_overlap_test {
namespace {

using test::offload_test::OffloadStack;

constexpr auto kNothing = [](int) {};
constexpr std::chrono::seconds kPatience{20};

/// Marks that the device has reached a unit's forward scope.
class Opened {
 public:
  void note(std::size_t unit) { opened_.at(unit).set_value(); }
  [[nodiscard]] bool within_patience(std::size_t unit) {
    return seen_.at(unit).wait_for(kPatience) == std::future_status::ready;
  }

 private:
  std::array<std::promise<void>, 4> opened_;
  std::array<std::shared_future<void>, 4> seen_{opened_[0].get_future(), opened_[1].get_future(),
                                                opened_[2].get_future(), opened_[3].get_future()};
};

class OffloadBeside : public ::testing::Test {
 protected:
  void SetUp() override {
    // A driver may have one thread for host functions: no update may block it.
    const bool cuda = rank_device() == DeviceKind::cuda;
    if (cuda && Emulation::there()) { emulation_.emplace().set_callbacks(1); }
  }
  static WorldOptions traced() {
    WorldOptions options;
    options.trace = true;
    options.device = rank_device();
    return options;
  }
  /// Runs a step in which the update of unit i returns once the next forward reaches unit
  /// `waits_for(i)` (below 0: at once). Returns the units that were reached in time.
  template <class WaitsFor>
  static std::array<bool, 4> step(World& world, Strategy strategy, const WaitsFor& waits_for) {
    Opened opened;
    std::array<bool, 4> in_time{};
    CustomOptimizer rule{.name = "waiting", .states = 1};
    rule.update = [&](const ShardUpdate& piece) {
      const int unit = piece.parameter->unit.back() - '0';
      const int other = waits_for(unit);
      in_time[static_cast<std::size_t>(unit)] =
          other < 0 || opened.within_patience(static_cast<std::size_t>(other));
    };
    OffloadStack stack{world, strategy, rule};
    stack.forward(kNothing);
    stack.backward(kNothing);
    world.compute_stream().wait();  // a device reports its spans later
    world.recorder()->clear();
    stack.model().step();
    stack.forward([&](int i) {
      world.compute_stream().call([&opened, i] { opened.note(static_cast<std::size_t>(i)); });
    });
    for (const world::CopyKind kind : {world::CopyKind::activations, world::CopyKind::states}) {
      world::HostPool{world}.copy_stream(kind).wait();
    }
    world.compute_stream().wait();
    return in_time;
  }

 private:
  std::optional<Emulation> emulation_;
};

constexpr std::array<bool, 4> kAll{true, true, true, true};

TEST_F(OffloadBeside, EachUnitIsUpdatedWhileTheForwardIsAtTheOneBefore) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    run_ranks(
        1,
        [&](World& world) {
          EXPECT_EQ(step(world, strategy, [](int unit) { return unit - 1; }), kAll)
              << to_string(strategy);
        },
        traced());
  }
}

// The first unit's scope opens as soon as its own parameters arrive: the last unit's update waits
// for that scope.
TEST_F(OffloadBeside, AUnitWaitsForItsOwnParametersAlone) {
  run_ranks(
      1,
      [](World& world) {
        EXPECT_EQ(step(world, Strategy::ddp, [](int unit) { return unit == 3 ? 0 : -1; }), kAll);
        const auto records = world.recorder()->records();
        const auto find = [&](trace::Kind kind, const char* what) {
          const auto found = std::ranges::find_if(records, [&](const trace::Record& r) {
            return r.kind == kind && r.what == what && r.unit == "block.0";
          });
          EXPECT_NE(found, records.end()) << what;
          return found == records.end() ? trace::Record{} : *found;
        };
        // A GPU's clock has a resolution of half a microsecond.
        EXPECT_GE(find(trace::Kind::compute, "forward").begin_ns + 5'000,
                  find(trace::Kind::copy, "reload").end_ns);
      },
      traced());
}

}  // namespace
}  // namespace tessera::test::offload_overlap_test
