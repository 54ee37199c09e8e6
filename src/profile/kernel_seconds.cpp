#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera {
namespace {

constexpr std::size_t kNearest = 4;

struct Roofline {
  double seconds = 0;
  bool memory = false;
};

/// Whether matrix units compute it, if there are any. "unit" is a unit of the stack that --params
/// plans.
bool multiplies(const trace::KernelWork& work) {
  return work.name.starts_with("matmul") || work.name.starts_with("attention") ||
         work.name == "unit";
}

double flops_rate(const trace::KernelWork& work, const MachineProfile& profile) {
  if (profile.vector_flops_per_second > 0 && !multiplies(work)) {
    return profile.vector_flops_per_second;
  }
  // Bookkeeping in fp64 (the sums of a step) is not a matrix product.
  const DType dtype = work.dtype == DType::fp64 ? DType::fp32 : work.dtype;
  const auto rate = profile.flops_per_second.find(dtype);
  if (rate != profile.flops_per_second.end()) { return rate->second; }
  throw ConfigError{fmt::format(
      "the machine's profile has no flops_per_second of {}, in which {} computes; add it",
      to_string(dtype), work.name)};
}

Roofline roofline(const trace::KernelWork& work, const MachineProfile& profile) {
  const bool crosses = work.name == "copy_in" || work.name == "copy_out";
  const bool host = crosses && profile.host_bytes_per_second > 0;
  const double moving =
      work.bytes / (host ? profile.host_bytes_per_second : profile.bytes_per_second);
  const double computing = work.flops > 0 ? work.flops / flops_rate(work, profile) : 0;
  return {std::max(moving, computing), moving >= computing};
}

double distance(const trace::KernelWork& a, const trace::KernelWork& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    const auto x = static_cast<double>(std::max<std::int64_t>(a.sizes[i], 1));
    const auto y = static_cast<double>(std::max<std::int64_t>(b.sizes[i], 1));
    squares += std::log2(x / y) * std::log2(x / y);
  }
  return squares;
}

struct Neighbour {
  double distance;
  const KernelSample* sample;
};

/// Whether samples named `sampled` apply to `name`, or to a variant of it.
bool covers(std::string_view sampled, std::string_view name) {
  return name.starts_with(sampled) &&
         (name.size() == sampled.size() || name[sampled.size()] == '_');
}

/// The most specific samples' name for the kernel; empty if there is none.
std::string_view sampled_name(const trace::KernelWork& work, const MachineProfile& profile) {
  std::string_view longest;
  for (const KernelSample& sample : profile.kernels) {
    const bool fits = sample.work.dtype == work.dtype && covers(sample.work.name, work.name);
    if (fits && sample.work.name.size() > longest.size()) { longest = sample.work.name; }
  }
  return longest;
}

std::vector<Neighbour> nearest(const trace::KernelWork& work, const MachineProfile& profile) {
  const std::string_view name = sampled_name(work, profile);
  std::vector<Neighbour> all;
  for (const KernelSample& sample : profile.kernels) {
    if (sample.work.name != name || sample.work.dtype != work.dtype) { continue; }
    all.push_back({distance(work, sample.work), &sample});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Neighbour& a, const Neighbour& b) { return a.distance < b.distance; });
  if (!all.empty() && all.front().distance == 0) { all.resize(1); }
  if (all.size() > kNearest) { all.resize(kNearest); }
  return all;
}

}  // namespace

KernelSeconds kernel_seconds(const trace::KernelWork& work, const MachineProfile& profile) {
  const Roofline own = roofline(work, profile);
  const std::vector<Neighbour> samples = nearest(work, profile);
  if (samples.empty() || own.seconds == 0) {
    const double seconds = own.seconds + profile.kernel_seconds;
    return {seconds, seconds, own.memory};
  }
  double weights = 0;
  double alone = 0;
  double shared = 0;
  for (const auto& [distance, sample] : samples) {
    const double weight = 1 / std::max(distance, 1e-9);
    const double theirs = roofline(sample->work, profile).seconds;
    const double together = sample->shared_seconds > 0 ? sample->shared_seconds : sample->seconds;
    weights += weight;
    alone += weight * std::log(sample->seconds / theirs);
    shared += weight * std::log(together / theirs);
  }
  return {own.seconds * std::exp(alone / weights), own.seconds * std::exp(shared / weights),
          own.memory};
}

}  // namespace tessera
