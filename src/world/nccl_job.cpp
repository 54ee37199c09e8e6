#include "world/nccl_job.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/resident.hpp"
#include "comm/control/job_end.hpp"
#include "comm/nccl_join.hpp"
#include "comm/nccl_order.hpp"
#include "device/cuda_module.hpp"
#include "tessera/base/error.hpp"
#include "world/host_cores.hpp"
#include "world/job_rank.hpp"
#include "world/world_state.hpp"

namespace tessera::world {
namespace {

// Processes of one launch start far apart, however short the deadline of collectives is.
constexpr std::chrono::seconds kStart{60};

comm::JobPlace with_build(comm::JobPlace place) {
  place.job.build = device::build_id();
  return place;
}

std::shared_ptr<comm::TcpControlPlane> join(const comm::JobPlace& place,
                                            std::chrono::milliseconds deadline) {
  try {
    return std::make_shared<comm::TcpControlPlane>(
        with_build(place), std::max<std::chrono::milliseconds>(deadline, kStart), deadline);
  } catch (const ConfigError&) {  // every process finds it: rank 0 reports it
    if (place.rank != 0) { std::this_thread::sleep_for(comm::kCourtesy); }
    throw;
  }
}

/// Processes that see all devices of the machine take those of their local ranks; a process that
/// sees one device takes that.
int choose_device(const FoundPlace& place, const WorldOptions& options) {
  if (options.cuda_ordinal) { return *options.cuda_ordinal; }
  const auto devices = static_cast<int>(cuda_machine().devices.size());
  // Without a device, making the device reports what is missing.
  return devices == 0 ? 0 : place.local_rank.value_or(place.place.rank) % devices;
}

/// *Collective.*
int agree_on_host_threads(comm::TcpControlPlane& control, const WorldOptions& options) {
  std::vector<HostCores> all;
  for (const std::string& text : control.exchange(comm::CallKind::setup, encode(own_cores()))) {
    all.push_back(decode_cores(text));
  }
  return host_threads(options.host_threads, all, control.rank());
}

class NcclRank final : public JobRank {
 public:
  NcclRank(const FoundPlace& place, const WorldOptions& options, const ProcessStart& start)
      : control_{join(place.place, options.deadline)},
        place_{place},
        options_{options},
        start_{start} {}

 private:
  comm::ControlPlane& control() noexcept override { return *control_; }
  // Within the run: the others wait for a rank without a device.
  World make_world() override {
    return WorldFactory::make_nccl(control_, choose_device(place_, options_), options_, start_);
  }
  void meet_at_end() override { (void)control_->exchange(comm::CallKind::end, {}); }
  void leave() noexcept override { control_.reset(); }

  std::shared_ptr<comm::TcpControlPlane> control_;
  const FoundPlace& place_;
  const WorldOptions& options_;
  const ProcessStart start_;
};

}  // namespace

void run_in_nccl_job(const FoundPlace& place, const std::function<void(World&)>& body,
                     const WorldOptions& options) {
  (void)device::CudaModule::get();  // without a module, every process finds it
  if (options.deterministic) {
    (void)comm::fixed_nccl_algorithms(comm::nccl_choice());
  }  // and this too
  const ProcessStart start{.ranks = 1, .context_bytes = resident_bytes()};
  NcclRank{place, options, start}.run(body);
}

World WorldFactory::make_nccl(const std::shared_ptr<comm::TcpControlPlane>& control, int ordinal,
                              const WorldOptions& options, const ProcessStart& process) {
  CudaDeviceOptions device;
  device.ordinal = ordinal;
  auto state = std::make_unique<world::WorldState>(control->rank(), control->size(), options,
                                                   make_cuda_device(device), DeviceKind::cuda);
  state->process = process;
  state->host_threads = agree_on_host_threads(*control, options);
  comm::NcclJoin join;
  join.control = control;
  join.device = state->device.get();
  join.ordinal = ordinal;
  join.memory = &state->memory;
  join.options = options.nccl;
  join.instruments = {comm::Instruments{state->recorder.get(), options.testing.delays, "gather",
                                        comm::kGatherNumber},
                      comm::Instruments{state->recorder.get(), options.testing.delays, "reduce",
                                        comm::kReduceNumber}};
  if (options.deterministic && control->size() > 1) { comm::fix_nccl_order(*control); }
  comm::NcclChannels channels;
  device::CudaModule::get().function<comm::JoinNccl>("tessera_cuda_join_nccl")(join, channels);
  state->names = &control->names();
  state->gather = std::move(channels.gather);
  state->reduce = std::move(channels.reduce);
  make_streams(*state);
  return World{std::move(state)};
}

}  // namespace tessera::world
