#include "tessera/world/world_options.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/enumerator.hpp"
#include "tessera/base/error.hpp"
#include "world/nccl_options.hpp"

namespace tessera {
namespace {

constexpr int kMostThreads = CpuDeviceOptions::kMostThreads;
constexpr int kMostCtas = 64;  // NCCL has no more channels

void check_records(const WorldOptions& options) {
  if (options.trace_steps < 0) {
    throw ConfigError{fmt::format("`trace_steps` is {}: choose a number of steps, or 0 for all",
                                  options.trace_steps)};
  }
  if (options.trace_steps > 0 && !options.trace) {
    throw ConfigError{
        "`trace_steps` has no effect, because `trace` is off: leave it at 0, or set `trace`"};
  }
}

void check_cuda(const WorldOptions& options) {
  if (options.threads != 1) {
    throw ConfigError{
        "`threads` has no effect on a CUDA device, which computes without host threads: leave it "
        "at 1"};
  }
  if (options.testing.compute_stream != ComputeStream::caller) {
    throw ConfigError{
        "`testing.compute_stream` has no effect on a CUDA device, whose compute stream is its own: "
        "leave it at its default"};
  }
  if (options.tuning.spared_multiprocessors < 0) {
    throw ConfigError{fmt::format("`tuning.spared_multiprocessors` is {}: choose 0 or more",
                                  options.tuning.spared_multiprocessors)};
  }
  if (options.cuda_ordinal && *options.cuda_ordinal < 0) {
    throw ConfigError{
        fmt::format("`cuda_ordinal` is {}: choose 0 or more, as CUDA devices count from 0",
                    *options.cuda_ordinal)};
  }
}

void check_cpu(const WorldOptions& options) {
  if (options.tuning.channel_priority != StreamPriority::usual) {
    throw ConfigError{
        "`tuning.channel_priority` has no effect on a CPU, whose streams are threads: leave it at "
        "its default, or set `device` to cuda"};
  }
  if (options.cuda_ordinal) {
    throw ConfigError{
        "`cuda_ordinal` has no effect on a CPU: leave it at its default, or set `device` to cuda"};
  }
  if (!options.products.empty()) {
    throw ConfigError{
        "`products` has no effect on a CPU, because cuBLASLt needs a GPU: leave it out, or set "
        "`device` "
        "to cuda"};
  }
  if (options.tuning.spared_multiprocessors != 0) {
    throw ConfigError{
        "`tuning.spared_multiprocessors` has no effect on a CPU: leave it at 0, or set `device` to "
        "cuda"};
  }
  if (options.tuning.attention_workspace_bytes != WorldOptions{}.tuning.attention_workspace_bytes) {
    throw ConfigError{
        "`tuning.attention_workspace_bytes` has no effect on a CPU: leave it out, or set `device` "
        "to cuda"};
  }
  if (options.nondeterministic_attention) {
    throw ConfigError{
        "`nondeterministic_attention` has no effect on a CPU, because cuDNN needs a GPU: leave it "
        "out, or "
        "set `device` to cuda"};
  }
  if (options.host_threads > 0) {
    throw ConfigError{
        "`host_threads` has no effect on a CPU, which computes on the host with `threads`: leave "
        "it at its default"};
  }
}

/// The first option that is not at its default; null: none.
const char* asked_of(const NcclOptions& nccl) {
  return nccl.min_ctas != 0   ? "nccl.min_ctas"
         : nccl.max_ctas != 0 ? "nccl.max_ctas"
         : nccl.windows       ? "nccl.windows"
                              : nullptr;
}

void check_nccl(const NcclOptions& nccl) {
  for (const auto& [ctas, name] :
       {std::pair{nccl.min_ctas, "nccl.min_ctas"}, std::pair{nccl.max_ctas, "nccl.max_ctas"}}) {
    if (ctas < 0 || ctas > kMostCtas) {
      throw ConfigError{
          fmt::format("`{}` is {}: choose from 1 to {} thread blocks, or 0 to leave "
                      "it to NCCL",
                      name, ctas, kMostCtas)};
    }
  }
  if (nccl.max_ctas > 0 && nccl.min_ctas > nccl.max_ctas) {
    throw ConfigError{fmt::format("`nccl.min_ctas` is {}, above `nccl.max_ctas`, {}: lower it",
                                  nccl.min_ctas, nccl.max_ctas)};
  }
}

void check_threads(const WorldOptions& options) {
  if (options.threads < 1 || options.threads > kMostThreads) {
    throw ConfigError{fmt::format("`threads` is {}: choose a number of threads from 1 to {}",
                                  options.threads, kMostThreads)};
  }
  if (options.host_threads >= 0 && options.host_threads <= kMostThreads) { return; }
  throw ConfigError{
      fmt::format("`host_threads` is {}: choose up to {} threads, or 0 for the rank's part of the "
                  "cores",
                  options.host_threads, kMostThreads)};
}

void check_order(const WorldOptions& options) {
  if (options.deterministic && options.nondeterministic_attention) {
    throw ConfigError{
        "`nondeterministic_attention` cannot be combined with `deterministic`, which requires the "
        "same bits in every run: choose one of them"};
  }
}

}  // namespace

void world::refuse_nccl_options(const NcclOptions& nccl) {
  const char* const asked = asked_of(nccl);
  if (asked == nullptr) { return; }
  throw ConfigError{fmt::format(
      "`{}` has no effect, because NCCL does not join these ranks: leave it at its default, or "
      "start one process a GPU (torchrun, srun, mpirun)",
      asked)};
}

void validate(const WorldOptions& options) {
  require_enumerator("`device`", options.device, DeviceKind::meta);
  require_enumerator("`testing.compute_stream`", options.testing.compute_stream,
                     ComputeStream::worker);
  require_enumerator("`tuning.channel_priority`", options.tuning.channel_priority,
                     StreamPriority::high);
  if (options.deadline.count() <= 0) {
    throw ConfigError{
        fmt::format("`deadline` is {} ms: choose a time above 0", options.deadline.count())};
  }
  check_records(options);
  if (options.testing.delays && options.testing.delays->longest.count() < 0) {
    throw ConfigError{fmt::format("`testing.delays.longest` is {} us: choose 0 or more",
                                  options.testing.delays->longest.count())};
  }
  if (options.device == DeviceKind::meta) {
    throw ConfigError{"`device` is meta, which only counts: plan the job, or choose cpu or cuda"};
  }
  check_threads(options);
  check_order(options);
  check_nccl(options.nccl);
  if (options.device == DeviceKind::cuda) { return check_cuda(options); }
  check_cpu(options);
  world::refuse_nccl_options(options.nccl);
}

}  // namespace tessera
