#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/cuda/job_collectives.hpp"
#include "tessera/trace/work_log.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

/// A rate as people read it.
struct Amount {
  double value = 0;
  std::string unit;
  int decimals = 0;

  /// Three digits below 1, as on the emulated device: a rate of 0 would tell nothing.
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] Amount amount_of(const Timed& timed, Work work);

/// What a call has measured, as docs/machine-profiles.md describes it: figures for people, and what
/// a machine's profile takes of them.
class Samples {
 public:
  using Json = nlohmann::ordered_json;

  /// Adds a figure. `profile` has members of a MachineProfile's document.
  void add(const std::string& name, const std::string& shape, const Amount& amount,
           Json profile = {});
  void add(const std::string& name, const std::string& shape, const Comparison& result);
  /// Adds a kernel whose time is a sample of a profile.
  void add(const std::string& name, const std::string& shape, const Comparison& result,
           const trace::KernelWork& work);
  void add(const JobCollective& collective);

  /// Whether nothing was added: on ranks other than 0 of a job.
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

  /// Writes all that was added, or nothing if the file cannot be written: then throws IoError.
  void write(const std::string& path) const;

 private:
  Json all_ = Json::array();
};

}  // namespace tessera::bench
