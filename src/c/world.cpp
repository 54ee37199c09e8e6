#include <array>
#include <memory>
#include <string>
#include <utility>

#include "c/objects.hpp"
#include "c/options.hpp"
#include "c/structs.hpp"
#include "tessera/comm/backend.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::c {
namespace {

/// A rank's handle, valid while its callback runs.
class RankHandle {
 public:
  explicit RankHandle(World& world)
      : rank_{std::make_shared<Rank>(world)}, handle_{Handles::all().add(rank_)} {}
  RankHandle(const RankHandle&) = delete;
  RankHandle& operator=(const RankHandle&) = delete;
  ~RankHandle() {
    Handles::all().remove(handle_);
    rank_->end_all();
  }
  [[nodiscard]] tessera_world* get() const noexcept { return handle_; }
  [[nodiscard]] const Rank& rank() const noexcept { return *rank_; }

 private:
  std::shared_ptr<Rank> rank_;
  tessera_world* handle_;
};

/// `body` as the library calls it: its status becomes an error, which unwinds the rank's objects.
auto rank_program(Call call, tessera_rank_fn body, void* user) {
  call.require(body, "the callback");
  return [body, user](World& world) {
    forget_error();
    const RankHandle rank{world};
    rethrow_from_callback(body(rank.get(), user), "the rank's callback");
    rank.rank().require_nothing_open(Call{"the rank's callback has returned"});
  };
}

tessera_memory_report report_of(World& world) {
  const MemoryReport memory = world.memory().report();
  tessera_memory_report to = {};
  to.live_bytes = memory.live.total();
  to.peak_bytes = memory.peak_bytes;
  to.host_peak_bytes = world.host_memory().report().peak_bytes;
  to.allocations = memory.allocations;
  static_assert(kCategories <= TESSERA_MOST_CATEGORIES);
  for (std::size_t i = 0; i < kCategories; ++i) {
    to.live[i] = memory.live[static_cast<Category>(i)];
    to.at_peak[i] = memory.at_peak[static_cast<Category>(i)];
  }
  return to;
}

tessera_plan_options plan_defaults() {
  tessera_plan_options to = {};
  to.size = sizeof to;
  to.ranks = 1;
  return to;
}

/// The names with a final zero byte, which to_string does not promise.
const std::array<std::string, kCategories>& category_names() {
  static const auto* const names = [] {
    auto* const all =
        new std::array<std::string, kCategories>;  // never freed: a caller may keep one
    for (std::size_t i = 0; i < kCategories; ++i) {
      (*all)[i] = to_string(static_cast<Category>(i));
    }
    return all;
  }();
  return *names;
}

}  // namespace
}  // namespace tessera::c

using namespace tessera::c;
using tessera::World;

tessera_status tessera_launched_ranks(tessera_device device, int32_t* ranks) {
  return guarded(__func__, [&](Call call) {
    call.require(ranks, "ranks");
    const auto job =
        tessera::launched_job(enumerator(call, "device", device, tessera::DeviceKind::cuda));
    *ranks = job ? job->size : 0;
  });
}

tessera_status tessera_run_ranks(int32_t ranks, tessera_rank_fn body, void* user,
                                 const tessera_world_options* options) {
  return guarded(__func__, [&](Call call) {
    tessera::run_ranks(ranks, rank_program(call, body, user), world_options(call, options));
  });
}

tessera_status tessera_run(tessera_rank_fn body, void* user, const tessera_world_options* options) {
  return guarded(__func__, [&](Call call) {
    tessera::run(rank_program(call, body, user), world_options(call, options));
  });
}

tessera_status tessera_plan_options_init(tessera_plan_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_plan_options", options, size, plan_defaults());
  });
}

tessera_status tessera_plan(const tessera_plan_options* options, tessera_rank_fn body, void* user,
                            tessera_memory_report* report) {
  return guarded(__func__, [&](Call call) {
    call.require(report, "report");
    require_size<tessera_memory_report>(call, "tessera_memory_report", report->size);
    const tessera_plan_options from =
        given_or(call, "tessera_plan_options", options, plan_defaults());
    require_zero(call, "tessera_plan_options", from.reserved);
    const tessera::WorldOptions world = world_options(call, from.world);
    tessera::SimulatedRank rank{.rank = from.rank, .ranks = from.ranks};
    rank.backend.device = world.device;
    rank.backend.comm = enumerator(call, "comm", from.comm, tessera::CommKind::nccl);
    const auto program = rank_program(call, body, user);
    tessera_memory_report planned = {};
    tessera::simulate_rank(
        rank,
        [&](World& simulated) {
          program(simulated);
          planned = report_of(simulated);
        },
        world);
    write_sized(call, "tessera_memory_report", report, report->size, planned);
  });
}

tessera_status tessera_world_place(tessera_world* world, int32_t* rank, int32_t* size) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<Rank>(call, world);
    if (rank != nullptr) { *rank = found->world().rank(); }
    if (size != nullptr) { *size = found->world().size(); }
  });
}

tessera_status tessera_world_computes(tessera_world* world, int32_t* computes) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(computes, "computes");
    *computes = rank->world().simulated() ? 0 : 1;
  });
}

tessera_status tessera_world_stream(tessera_world* world, void** stream) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(stream, "stream");
    *stream = rank->world().compute_stream().native();
  });
}

tessera_status tessera_barrier(tessera_world* world) {
  return guarded(__func__, [&](Call call) { find<Rank>(call, world)->world().barrier(); });
}

tessera_status tessera_sum(tessera_world* world, double value, double* sum) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(sum, "sum");
    *sum = rank->world().sum(value);
  });
}

tessera_status tessera_abort(tessera_world* world, const char* reason) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(reason, "reason");
    rank->world().abort(reason);
  });
}

tessera_status tessera_memory(tessera_world* world, tessera_memory_report* report) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(report, "report");
    write_sized(call, "tessera_memory_report", report, report->size, report_of(rank->world()));
  });
}

const char* tessera_category_name(tessera_category category) {
  if (category < 0 || category > TESSERA_UNATTRIBUTED) { return nullptr; }
  return category_names()[static_cast<std::size_t>(category)].c_str();
}

tessera_status tessera_register_memory(tessera_world* world, tessera_category category,
                                       uint64_t bytes, const char* name,
                                       tessera_registration** registration) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(name, "name");
    tessera_registration* const handle = rank->add_registration(
        rank->world().memory().register_memory(category_of(call, category), bytes, name));
    if (registration != nullptr) { *registration = handle; }
  });
}

tessera_status tessera_unregister_memory(tessera_registration* registration) {
  return guarded(__func__, [&](Call call) {
    find<Registration>(call, registration)->rank->remove_registration(registration);
  });
}

tessera_status tessera_allocate(tessera_world* world, tessera_category category, uint64_t bytes,
                                const char* name, void** address) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(name, "name");
    call.require(address, "address");
    *address = rank->add_buffer(rank->world().allocate(category_of(call, category), bytes, name));
  });
}

tessera_status tessera_free(tessera_world* world, void* address) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    if (address != nullptr && !rank->remove_buffer(address)) {
      call.refuse(
          "the address does not come from tessera_allocate of this rank, or is already freed");
    }
  });
}
