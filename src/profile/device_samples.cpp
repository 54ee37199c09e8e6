// Makes a device's profile from the samples of its benchmark (docs/machine-profiles.md describes
// them).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& what) {
  constexpr std::size_t kMostShown = 1000;
  throw ConfigError{"the samples " + shown(what, kMostShown)};
}

/// A collective over `ranks` ranks of a node.
struct MeasuredLink {
  std::int64_t ranks = 0;
  double bytes = 0;
  double bus_bytes_per_second = 0;
  double seconds = 0;
};
using LinksByName = std::map<std::string, std::vector<MeasuredLink>>;

/// The parts of a profile that a document's samples hold, joined.
struct Joined {
  Json profile = {{"tessera_machine", MachineProfile::kVersion},
                  {"name", ""},
                  {"source", ""},
                  {"collectives", "ring"},
                  {"kernels", Json::array()}};
  LinksByName links;
};

MeasuredLink link_of(const Json& json) {
  const MeasuredLink link{
      .ranks = json.at("ranks").get<std::int64_t>(),
      .bytes = json.at("bytes").get<double>(),
      .bus_bytes_per_second = json.at("bus_bytes_per_second").get<double>(),
      .seconds = json.at("seconds").get<double>(),
  };
  constexpr std::int64_t kMostRanks = 1 << 20;
  if (link.ranks < 2 || link.ranks > kMostRanks || !(link.bytes > 0) || !(link.seconds > 0)) {
    refuse("have links of a collective that no ranks can have made: " + json.dump());
  }
  return link;
}

/// Whether copying and printing it needs little of the stack.
bool is_shallow(const Json& value, int levels) {
  return !value.is_structured() || (levels > 0 && std::ranges::all_of(value, [&](const Json& one) {
                                      return is_shallow(one, levels - 1);
                                    }));
}

void join(const Json& samples, Joined& joined) {
  for (const Json& sample : samples) {
    const auto profile = sample.find("profile");
    if (profile == sample.end()) { continue; }
    constexpr int kLevels = 4;  // members, kernels, a kernel, its sizes
    if (!is_shallow(*profile, kLevels)) { refuse("are nested too deeply"); }
    for (const auto& [key, value] : profile->items()) {
      if (key == "kernels") {
        joined.profile[key].insert(joined.profile[key].end(), value.begin(), value.end());
      } else if (key == "links") {
        for (const Json& link : value) {
          joined.links[link.at("collective").get<std::string>()].push_back(link_of(link));
        }
      } else {
        joined.profile[key] = value;
      }
    }
  }
}

/// The samples of a document of the benchmark, or of all parts of a check.
Joined joined_of(const Json& json) {
  Joined joined;
  if (json.is_object() && json.contains("tessera_samples")) {
    const auto version = json.at("tessera_samples").get<std::int64_t>();
    if (version != 1) {
      refuse(fmt::format("are of version {}, but this build reads version 1", version));
    }
    join(json.at("samples"), joined);
    return joined;
  }
  if (!json.is_object() || !json.contains("parts")) {
    refuse("are in no document that a check of a GPU or its benchmark wrote (docs/gpu-check.md)");
  }
  for (const Json& part : json.at("parts")) {
    const auto samples = part.find("samples");
    if (samples == part.end()) { continue; }
    if (part.at("name") == "kernels") {
      joined.profile["name"] = part.at("machine").at("device").get<std::string>();
      joined.profile["source"] = "measured at commit " + part.at("commit").get<std::string>();
    }
    join(*samples, joined);
  }
  return joined;
}

/// A kernel that trainings need, or variants of it.
struct Needed {
  const char* kernel;
  DType dtype;
};
constexpr std::array<Needed, 15> kNeeded{{{"matmul_nn", DType::bf16},
                                          {"matmul_nt", DType::bf16},
                                          {"matmul_tn", DType::bf16},
                                          {"attention_forward", DType::bf16},
                                          {"attention_backward", DType::bf16},
                                          {"cast", DType::bf16},
                                          {"cast", DType::fp32},
                                          {"squared_norm", DType::bf16},
                                          {"squared_norm", DType::fp32},
                                          {"gelu_forward", DType::bf16},
                                          {"gelu_backward", DType::bf16},
                                          {"layer_norm_forward", DType::bf16},
                                          {"layer_norm_backward", DType::bf16},
                                          {"cross_entropy", DType::bf16},
                                          {"adamw", DType::fp32}}};

void require_kernels(const std::vector<KernelSample>& kernels) {
  std::vector<std::string> missing;
  for (const auto& [name, dtype] : kNeeded) {
    const bool found = std::ranges::any_of(kernels, [&](const KernelSample& one) {
      return one.work.name == name && one.work.dtype == dtype;
    });
    if (!found) { missing.push_back(fmt::format("{} in {}", name, to_string(dtype))); }
  }
  if (!missing.empty()) {
    refuse(fmt::format("have no {}; measure them (docs/gpu-check.md, part kernels)",
                       fmt::join(missing, ", ")));
  }
}

/// No purely computing kernel is measured: the rates of memory-bound kernels are a lower bound of
/// the vector units' rate.
void set_rates(MachineProfile& profile) {
  double& fastest = profile.flops_per_second[DType::bf16];
  fastest = 0;
  for (const KernelSample& one : profile.kernels) {
    const double rate = one.work.flops / one.seconds;
    if (one.work.name.starts_with("matmul")) {
      fastest = std::max(fastest, rate);
    } else if (!one.work.name.starts_with("attention")) {
      profile.vector_flops_per_second = std::max(profile.vector_flops_per_second, rate);
    }
  }
}

/// One level and one protocol, over the most ranks: the bus bandwidth of the largest tensors, and
/// the time of the smallest.
void set_links(LinksByName& links, MachineProfile& profile) {
  std::int64_t ranks = 0;
  std::vector<double> rates;
  std::map<std::string, double> least;
  for (const char* const name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    std::vector<MeasuredLink>& all = links[name];
    if (all.empty()) { return; }
    std::ranges::sort(all, [](const MeasuredLink& a, const MeasuredLink& b) {
      return std::pair{-a.ranks, a.bytes} < std::pair{-b.ranks, b.bytes};
    });
    ranks = all.front().ranks;
    std::erase_if(all, [&](const MeasuredLink& one) { return one.ranks != ranks; });
    rates.push_back(all.back().bus_bytes_per_second);
    least[name] = all.front().seconds;
  }
  std::ranges::sort(rates);
  // A ring passes n - 1 links, and twice as many if all ranks get the sum.
  const double passed = static_cast<double>(ranks - 1);
  const double once = (least["all_gather"] + least["reduce_scatter"]) / 2;
  const double step = std::clamp(least["all_reduce"] - once, 0.0, once) / passed;
  profile.protocols = {{"nccl", 1.0, once - passed * step}};
  profile.levels = {{"node", static_cast<int>(ranks), rates[1], {step}}};
}

MeasuredDevice device_of(MachineProfile profile) {
  MeasuredDevice device;
  const auto miss = [&](bool measured, const char* what) {
    if (!measured) { device.not_measured.emplace_back(what); }
  };
  miss(profile.kernel_seconds > 0 && profile.enqueue_seconds > 0,
       "the cost of a launch: plans count none; measure it (docs/gpu-check.md, part kernels)");
  miss(profile.host_bytes_per_second > 0,
       "copies between device and host: they are planned as the device's own; measure them "
       "(docs/gpu-check.md, part kernels)");
  miss(!profile.levels.empty(),
       "links between ranks: plans of several ranks are rejected; measure them "
       "(docs/gpu-check.md, part multi) on a machine with 2 or more GPUs");
  miss(false, "products in fp32 and fp16: plans with them are rejected");
  device.profile = std::move(profile);
  return device;
}

}  // namespace

MeasuredDevice profile_of_samples(std::string_view json) {
  try {
    Joined joined = joined_of(Json::parse(json));
    if (joined.profile["kernels"].empty()) { require_kernels({}); }
    joined.profile["flops_per_second"] = {{"bf16", 1.0}};  // until the samples have been checked
    MachineProfile profile = parse_machine_profile(joined.profile.dump());
    require_kernels(profile.kernels);
    set_rates(profile);
    set_links(joined.links, profile);
    profile.validate();
    return device_of(std::move(profile));
  } catch (const Json::exception& error) {
    refuse(fmt::format("are in no document that a check of a GPU or its benchmark wrote: {}",
                       error.what()));
  }
}

}  // namespace tessera
