#include "comm/nccl_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

constexpr const char* kAlgorithms = "NCCL_ALGO";
constexpr const char* kTuner = "NCCL_TUNER_PLUGIN";

// NCCL_ALGO may name only algorithms, or those of each collective:
// "allreduce:tree,ring;reduce:ring".
constexpr std::array<std::string_view, 2> kInOrder{"ring", "tree"};
constexpr std::array<std::string_view, 5> kCollectives{"allreduce", "reducescatter", "allgather",
                                                       "broadcast", "reduce"};

bool is_in(std::string_view word, auto&& words) {
  return std::ranges::find(words, word) != words.end();
}

bool is_fixed(std::string algorithms) {
  std::ranges::transform(algorithms, algorithms.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (std::string_view rest = algorithms;;) {
    const std::size_t end = rest.find_first_of(",:;");
    const std::string_view word = rest.substr(0, end);
    const bool names_collective = end != std::string_view::npos && rest[end] == ':';
    if (!(names_collective ? is_in(word, kCollectives) : is_in(word, kInOrder))) { return false; }
    if (end == std::string_view::npos) { return true; }
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

std::string fixed_nccl_algorithms(const NcclChoice& choice) {
  if (choice.tuner && *choice.tuner != "none") {
    throw ConfigError{
        fmt::format("deterministic: {}={} may choose another order of sums in every run; unset it, "
                    "or turn deterministic off",
                    kTuner, *choice.tuner)};
  }
  const std::string algorithms = choice.algorithms.value_or("Ring");
  if (!is_fixed(algorithms)) {
    throw ConfigError{
        fmt::format("deterministic: {}={} leaves the order of sums open; unset it (Ring is then "
                    "used), name Ring or Tree, or turn deterministic off",
                    kAlgorithms, algorithms)};
  }
  return algorithms;
}

NcclChoice nccl_choice() {
  return {environment(kAlgorithms), environment(kTuner)};
}

void fix_nccl_order(TcpControlPlane& control) {
  const std::string mine = fixed_nccl_algorithms(nccl_choice());
  const std::vector<std::string> all = control.exchange(CallKind::setup, mine);
  const auto other = std::ranges::find_if(all, [&](const auto& name) { return name != all[0]; });
  if (other != all.end()) {
    control.fail_and_throw(
        fmt::format(
            "deterministic: {} is {} on rank 0 and {} on rank {}: set the same on all ranks",
            kAlgorithms, all[0], *other, other - all.begin()),
        0);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): NCCL reads it only here
  (void)::setenv(kAlgorithms, mine.c_str(), /*overwrite=*/1);
}

}  // namespace tessera::comm
