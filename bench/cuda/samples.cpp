#include "bench/cuda/samples.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "tessera/base/atomic_file.hpp"

namespace tessera::bench {

std::string Amount::text() const {
  return value < 1 ? fmt::format("{:.3g} {}", value, unit)
                   : fmt::format("{:.{}f} {}", value, decimals, unit);
}

Amount amount_of(const Timed& timed, Work work) {
  const double rate = timed.rate(work);
  switch (work) {
    case Work::bytes:
      return {rate * 1e-9, "GB/s", 0};
    case Work::flops:
      return {rate * 1e-12, "TFLOP/s", 1};
    case Work::runs:
      break;
  }
  return {1e3 / rate, "ms", 4};
}

void Samples::add(const std::string& name, const std::string& shape, const Amount& amount,
                  Json profile) {
  Json one = {{"name", name},
              {"shape", shape},
              {"value", amount.value},
              {"unit", amount.unit},
              {"limits", Json::array()}};
  if (!profile.empty()) { one["profile"] = std::move(profile); }
  all_.push_back(std::move(one));
}

void Samples::add(const std::string& name, const std::string& shape, const Comparison& result) {
  add(name, shape, amount_of(result.ours, result.work));
  for (const Timed& limit : result.limits) {
    all_.back()["limits"].push_back({{"name", limit.name},
                                     {"value", amount_of(limit, result.work).value},
                                     {"ratio", result.ratio(limit)}});
  }
}

void Samples::add(const std::string& name, const std::string& shape, const Comparison& result,
                  const trace::KernelWork& work) {
  add(name, shape, result);
  Json& profile = all_.back()["profile"];
  profile["kernels"] = Json::array({{{"kernel", work.name},
                                     {"dtype", to_string(work.dtype)},
                                     {"sizes", work.sizes},
                                     {"flops", work.flops},
                                     {"bytes", work.bytes},
                                     {"seconds", 1 / result.ours.rate(Work::runs)}}});
  if (work.name == "adamw") {  // beside the longest copy
    const Timed& copy = result.limits.at(0);
    profile["bytes_per_second"] = result.ours.rate(Work::bytes) / result.ratio(copy);
  }
}

void Samples::add(const JobCollective& one) {
  const std::string shape = fmt::format("{} ranks, {} bytes", one.ranks, one.bytes);
  add(one.name + ", bus bandwidth", shape, {one.bus_bandwidth() * 1e-9, "GB/s", 2},
      {{"links",
        {{{"collective", one.name},
          {"ranks", one.ranks},
          {"bytes", one.bytes},
          {"bus_bytes_per_second", one.bus_bandwidth()},
          {"seconds", one.seconds}}}}});
  add(one.name + ", a call", shape, {one.seconds * 1e6, "us", 1});
}

void Samples::write(const std::string& path) const {
  const Json document = {{"tessera_samples", 1}, {"samples", all_}};
  const std::string text = document.dump(1) + "\n";
  AtomicFile file{path};
  file.write(std::as_bytes(std::span{text}));
  file.finish();
}

}  // namespace tessera::bench
