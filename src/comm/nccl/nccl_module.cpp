#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "base/environment.hpp"
#include "comm/nccl/nccl_communicator.hpp"
#include "comm/nccl/nccl_memory.hpp"
#include "comm/nccl_join.hpp"
#include "device/cuda/communicated_memory.hpp"
#include "device/cuda/cuda_check.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm::nccl {
namespace {

constexpr std::array<const char*, 2> kNames{"gather", "reduce"};

/// What NCCL considers the same GPU: the machine, or its NCCL_HOSTID, and the GPU there.
std::string gpu_of(int ordinal) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> bus{};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
              "cudaDeviceGetPCIBusId");
  return fmt::format("{} of {}", bus.data(),
                     environment("NCCL_HOSTID").value_or(std::string{host.data()}));
}

/// NCCL rejects two ranks on one GPU without naming them; this error does.
void check_gpus(TcpControlPlane& control, int ordinal) {
  std::map<std::string, int> owners;
  const std::vector<std::string> gpus = control.exchange(CallKind::setup, gpu_of(ordinal));
  for (int rank = 0; rank < control.size(); ++rank) {
    const auto [owner, is_first] = owners.emplace(gpus[static_cast<std::size_t>(rank)], rank);
    if (is_first) { continue; }
    control.fail(
        fmt::format("ranks {} and {} would share the GPU {}, which NCCL refuses: start one "
                    "process a GPU, whose local rank (LOCAL_RANK) chooses it; or let the "
                    "ranks be threads of one process (run_ranks, --ranks {})",
                    owner->second, rank, owner->first, control.size()),
        0);
    control.check_alive();
  }
}

/// The ids of both communicators, from rank 0.
std::array<ncclUniqueId, 2> exchange_ids(TcpControlPlane& control) {
  std::array<ncclUniqueId, 2> ids{};
  std::string mine;
  if (control.rank() == 0) {
    for (ncclUniqueId& id : ids) { check(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"); }
    mine.assign(reinterpret_cast<const char*>(&ids), sizeof ids);
  }
  const std::string given = control.exchange(CallKind::setup, std::move(mine)).front();
  if (given.size() != sizeof ids) {
    throw CommError{"rank 0 sent no NCCL id; start the same program on all ranks"};
  }
  std::memcpy(&ids, given.data(), sizeof ids);
  return ids;
}

/// Reads numbers as NCCL does: "01" and "0x1" are 1, and text that is no number is 0.
bool is_on(const std::string& value) {
  errno = 0;
  return std::strtoll(value.c_str(), nullptr, 0) != 0 && errno == 0;
}

void refuse_if_on(const char* name, const char* because) {
  const std::optional<std::string> value = environment(name);
  if (value && is_on(*value)) {
    throw ConfigError{fmt::format("{}={} {}: unset it", name, *value, because)};
  }
}

/// Rejects settings that NCCL would follow whatever it is asked for. With them NCCL would wait
/// within its calls, and a start that waits for a rank could not be ended; batches of a group would
/// not run beside those of others, and one communicator could not end without the others.
void refuse_settings() {
  refuse_if_on("NCCL_COMM_BLOCKING", "makes NCCL's calls wait where a lost rank cannot end them");
  refuse_if_on("NCCL_COMM_SPLIT_SHARE_RESOURCES",
               "makes communicators share resources that each needs for itself, to run beside "
               "others and to end alone");
}

CtaLimits limits_of(const NcclOptions& options) {
  return {options.min_ctas, options.max_ctas};
}

/// Checks what each process can find by itself.
void check_options(const NcclOptions& options) {
  check_can_limit(limits_of(options));
  if (!options.windows) { return; }
  check_can_register_windows();
  const std::string reason = registration_problem();
  if (!reason.empty()) { throw ConfigError{"`nccl.windows`: " + reason}; }
}

/// *Collective.* All ranks register windows together.
void agree_on(const NcclOptions& options, TcpControlPlane& control) {
  const std::string mine = fmt::format("nccl.min_ctas {}, nccl.max_ctas {}, nccl.windows {}",
                                       options.min_ctas, options.max_ctas, options.windows);
  const std::vector<std::string> all = control.exchange(CallKind::setup, mine);
  const auto other = std::ranges::find_if(all, [&](const auto& text) { return text != all[0]; });
  if (other == all.end()) { return; }
  control.fail_and_throw(fmt::format("rank 0 asks NCCL for {}, rank {} for {}: ask for the same on "
                                     "all ranks",
                                     all[0], other - all.begin(), *other),
                         0);
}

std::shared_ptr<NcclLink> make_link(const NcclJoin& join) {
  check_gpus(*join.control, join.ordinal);
  agree_on(join.options, *join.control);
  const std::array<ncclUniqueId, 2> ids = exchange_ids(*join.control);
  auto link = std::make_shared<NcclLink>(join.control, *join.device, *join.memory);
  const std::size_t free_before = link->free_bytes();
  const std::array<CallKind, 2> kinds{CallKind::gather_batch, CallKind::reduce_batch};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    link->channels[i] = std::make_shared<NcclChannel>(
        std::make_unique<NcclComm>(ids[i], join.control, kNames[i], limits_of(join.options)),
        kinds[i], kNames[i]);
  }
  link->taken = link->count_taken(free_before, "nccl");
  if (join.control->size() > 1) {
    link->arenas = std::make_shared<NcclMemory>(join.options.windows ? Registration::window
                                                                     : Registration::buffer);
    for (const auto& channel : link->channels) { link->arenas->add(channel->comm()); }
    cuda::take_communicated_from(link->arenas, *join.device);
  }
  link->watchdog = std::make_unique<NcclWatchdog>(
      join.control, join.ordinal,
      NcclWatchdog::Channels{link->channels.begin(), link->channels.end()});
  return link;
}

}  // namespace
}  // namespace tessera::comm::nccl

extern "C" {

void tessera_nccl_look(tessera::CudaMachine& machine) {
  using namespace tessera::comm::nccl;
  machine.libraries.push_back(describe(loaded_library(), registration_text()));
}

void tessera_cuda_join_nccl(const tessera::comm::NcclJoin& join,
                            tessera::comm::NcclChannels& channels) {
  using namespace tessera::comm::nccl;
  // Kernels of the two communicators start on every rank in program order: where a device has no
  // room for both, ranks that had started different ones would wait for each other.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): NCCL reads it only here
  (void)::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  tessera::device::require_version(loaded_library());
  refuse_settings();
  check_options(join.options);
  tessera::cuda::use_device(join.ordinal);
  const std::shared_ptr<NcclLink> link = make_link(join);
  channels.gather =
      std::make_unique<NcclCommunicator>(link, link->channels[0], join.instruments[0]);
  channels.reduce =
      std::make_unique<NcclCommunicator>(link, link->channels[1], join.instruments[1]);
}
}
